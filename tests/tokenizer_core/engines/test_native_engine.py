"""The native engine against the Python engine, and its own parts: caches, locks, its absence."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adversarial import _FRAGMENTS, adversarial_texts
from tests.native_module import native_module
from tests.profiles import first_and_thorough
from tests.tokenizer_core.engines.random_specs import BYTES, spec_of
from tokenizer_core import engines
from tokenizer_core.engines import (
    ARRAY,
    COUNT,
    choose_engine,
    create_engine,
    json_of_ids,
    native_engine,
    native_import,
    python_engine,
)
from tokenizer_core.errors import EngineUnavailableError
from tokenizer_core.spec import Alphabet, TokenizerSpec
from tokenizer_core.splitting.patterns import METASPACE, PATTERNS
from tokenizer_core.splitting.pretokenize import split


def spec_from_corpus(kind, pattern):
    """A vocabulary with tokens of the fragments, so that most of the encoded text merges."""
    rng = random.Random(7)
    tokens = dict.fromkeys(bytes([byte]) for byte in range(256))
    merges = {}
    for fragment in ["the ", "  ", "\n\n", "aaaa", *_FRAGMENTS] * 2:
        parts = [bytes([byte]) for byte in fragment.encode()]
        while len(parts) > 1:
            at = rng.randrange(len(parts) - 1)
            merges[parts[at], parts[at + 1]] = None
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            tokens[parts[at]] = None
    if kind == "ranks":
        ranks = {token: rank for rank, token in enumerate(tokens)}
        return TokenizerSpec.from_ranks(ranks, pattern=pattern)
    vocab = dict(enumerate(tokens))
    return TokenizerSpec.from_merges(
        vocab, merges, pattern=pattern, ignore_merges=kind == "whole merges"
    )


@given(st.integers(0, 10**6), st.text("ab7.,(\n жя中文é🙂", max_size=80))
def test_merges_of_whole_characters_equal_those_of_the_python_engine(seed, text):
    """As in SentencePiece's vocabularies: bytes stand only for characters that have no token."""
    native_module()
    rng = random.Random(seed)
    tokens = [*(character.encode() for character in "ab7.,(\n жя中文"), b"ab"]
    merges = [(b"a", b"b")]
    for _ in range(rng.randrange(1, 25)):
        left, right = rng.choice(tokens), rng.choice(tokens)
        if right[:1] != b" " and left + right not in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    spec = TokenizerSpec.from_merges(
        BYTES | {256 + i: token for i, token in enumerate(tokens)},
        merges,
        pattern=METASPACE,
        normalizer="metaspace",
        alphabet=Alphabet(tuple(range(256))),
    )
    native, python = create_engine(spec, "native"), create_engine(spec, "python")
    for repeated in (text, text * 9):
        assert native.encode(repeated) == python.encode(repeated)


@pytest.mark.row(10)
@pytest.mark.parametrize(
    "characters",
    first_and_thorough(["qxzjthe", "a", "abcabd", " ", "中文字中丮", "🙂🙃", "дѐeéa", "^"]),
)
@pytest.mark.parametrize("kind", ["merges", "ranks"])
def test_a_long_pre_token_has_the_ids_of_merging_it_at_once(kind, characters, monkeypatch):
    """Three windows; the extra character shifts their ends."""
    native_module()
    spec = spec_from_corpus(kind, "gpt2")
    n_characters = 140_000 // len(characters.encode()) * len(characters)
    at_random = "".join(random.Random(3).choices(characters, k=n_characters))
    periodic = characters * (n_characters // len(characters))
    native, in_windows = (create_engine(spec, name) for name in ("native", "python"))
    of_random = in_windows.encode_pre_tokens([at_random])
    monkeypatch.setattr(python_engine, "WINDOW_BYTES", 1 << 30)
    at_once = create_engine(spec, "python")
    for text in (at_random, "b" + periodic):
        expected = at_once.encode_pre_tokens([text])
        assert native.encode_pre_tokens([text]) == expected
        assert native.encode(text, None, COUNT) == len(native.encode(text))
        if split(text, PATTERNS["gpt2"]) == [text]:
            assert native.encode(text) == expected
        if text is at_random:
            assert of_random == expected


@pytest.mark.row(35)
def test_caches_stay_within_their_bound():
    native_module()
    engine = create_engine(spec_of([(b"a", b"b")]), "native")
    rng = random.Random(0)
    for _ in range(4):
        words = (str(rng.random()) * rng.choice([1, 1, 2, 9]) for _ in range(60_000))
        engine.encode("x" + "x".join(words), None, ARRAY)
        statistics = engine.cache_statistics()
        assert 0 < statistics.entries <= statistics.maximum
    assert statistics.hits + statistics.misses > 700_000
    before = engine.cache_statistics()
    engine.encode("y" * 1000)
    after = engine.cache_statistics()
    assert (after.entries, after.misses) == (before.entries, before.misses + 1)


def test_many_threads_share_an_engine():
    native_module()
    spec = spec_from_corpus("merges", "o200k")
    engine = create_engine(spec, "native")
    texts = adversarial_texts(n_random=60, seed=9)
    expected = [create_engine(spec, "python").encode(text) for text in texts]
    barrier = threading.Barrier(12)

    def work(seed):
        order = list(range(len(texts)))
        random.Random(seed).shuffle(order)
        barrier.wait()
        return all(engine.encode(texts[i]) == expected[i] for i in order)

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(12)))


@pytest.mark.parametrize("dtype", ["<u4", ">u4", "<i8", "u1", "<u8"])
def test_unaligned_and_big_endian_arrays_decode(dtype):
    native_module()
    engine = create_engine(spec_of([]), "native")
    data = b"x" + np.arange(100).astype(dtype).tobytes()
    ids = np.frombuffer(data, dtype=dtype, offset=1)
    assert engine.decode(ids, None) == bytes(range(100))
    assert engine.decode(ids[::-3], None) == bytes(range(100))[::-3]
    assert engine.decode(ids[:0], None) == b""
    assert engine.decode(ids) == "".join(map(chr, range(100)))
    assert json_of_ids(ids) == str([*range(100)]).replace(" ", "").encode()
    assert native_engine._as_uint32(ids).flags.aligned


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("gone", name=native_import._MODULE), "not in this installation"),
        (ImportError("/a/secret/_native.so: bad symbol", path="/a/secret/_native.so"), "bad sym"),
    ],
)
def test_without_the_module_auto_is_python_and_native_says_why(error, says, monkeypatch):
    monkeypatch.setattr(native_import, "_import_error", error)
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    assert create_engine(spec_of([])).name == "python"
    fallback, asked = choose_engine(), choose_engine("python")
    assert (fallback.is_fallback, asked.is_fallback) == (True, False)
    assert says in fallback.reason
    for choice in (fallback, asked):
        assert choice.name == "python"
        assert says in choice.native_unavailable
        assert "secret" not in choice.native_unavailable + choice.reason
    for start in (choose_engine, lambda name: create_engine(spec_of([]), name)):
        with pytest.raises(EngineUnavailableError, match=says):
            start("native")
    monkeypatch.setenv("TOKENIZER_ENGINE", "native")
    with pytest.raises(EngineUnavailableError, match="TOKENIZER_ENGINE"):
        choose_engine()


def test_auto_chooses_native_if_available(monkeypatch):
    native_module()
    monkeypatch.setenv("TOKENIZER_ENGINE", "")
    choice = choose_engine()
    assert (choice.name, choice.native_unavailable, choice.is_fallback) == ("native", None, False)
    assert create_engine(spec_of([])).name == choose_engine("native").name == "native"
    monkeypatch.setenv("TOKENIZER_ENGINE", "python")
    assert choose_engine() == choose_engine("python")
    assert choose_engine().name == "python"


def test_an_unknown_kernel_and_one_that_the_processor_lacks_are_refused(monkeypatch):
    native_module()
    monkeypatch.setattr(native_import, "_asked_kernel", "AVX2")
    with pytest.raises(EngineUnavailableError, match=r"TOKENIZER_KERNEL .*'AVX2'.*avx2"):
        choose_engine("auto")
    lacking = "neon" if native_import.native.KERNEL != "neon" else "avx2"
    monkeypatch.setattr(native_import, "_asked_kernel", lacking)
    for engine in ("auto", "native"):
        with pytest.raises(EngineUnavailableError, match=f"is {lacking}, which this processor"):
            choose_engine(engine)
    assert choose_engine("python").name == "python"
    monkeypatch.setattr(native_import, "_import_error", ImportError("wrong machine"))
    assert choose_engine("auto").name == "python"


def test_a_fallback_warns_once_where_the_module_is_installed(monkeypatch, recwarn):
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    engines._warn_of_fallback.cache_clear()
    missing = ModuleNotFoundError("no module", name=native_import._MODULE)
    for error, n_warnings in ((missing, 0), (ImportError("undefined symbol: once"), 1)):
        monkeypatch.setattr(native_import, "_import_error", error)
        for engine in ("auto", "python", "auto"):
            assert create_engine(spec_of([]), engine).name == "python"
        assert len(recwarn) == n_warnings
    warning = recwarn.pop(RuntimeWarning)
    assert "undefined symbol: once" in str(warning.message)


def test_a_module_built_for_other_code_is_stale(tmp_path, monkeypatch):
    native_module()
    stub = native_import._STUB_PATH.read_text(encoding="utf-8")
    path = tmp_path / "_native.pyi"
    assert not native_import._is_stale(path), "a stub that is not installed"
    other = stub.replace("pattern: str | NativeAutomaton | None,", "pattern: str,")
    for content, is_stale in ((stub, False), (stub.replace("\n", "\r\n"), False), (other, True)):
        path.write_bytes(content.encode())
        assert native_import._is_stale(path) is is_stale
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    monkeypatch.setattr(native_import, "_stale", True)
    assert choose_engine().is_fallback
    with pytest.raises(EngineUnavailableError, match="`make setup`"):
        choose_engine("native")
