"""The native engine against the Python engine, and its own parts: caches, locks, its absence."""

import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizer_core
from tests.adversarial import _FRAGMENTS, adversarial_texts
from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tests.profiles import first_and_thorough
from tests.tokenizer_core.engines.random_specs import (
    BYTES,
    random_character_merges,
    random_merges,
    random_ranks,
    spec_of,
)
from tokenizer_core import engines
from tokenizer_core.engines import (
    choose_engine,
    create_engine,
    native,
    python_engine,
    resolve_engine,
)
from tokenizer_core.errors import EngineUnavailableError, UnknownTokenIdError
from tokenizer_core.patterns import METASPACE, PATTERNS
from tokenizer_core.pretokenize import split
from tokenizer_core.spec import TokenizerSpec

mixed_text = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(codec="utf-8"), max_size=60).map(
    "".join
)
text_of_bytes = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "replace"))
repeated = st.builds(
    lambda text, n: text * n, st.sampled_from(_FRAGMENTS) | mixed_text, st.integers(1, 80)
)

NO_MERGES = np.empty(0, np.uint32)


def spec_from_corpus(kind: str, pattern: str) -> TokenizerSpec:
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


@pytest.fixture(
    scope="module",
    params=[
        (kind, pattern)
        for kind in ("merges", "whole merges", "ranks")
        for pattern in [*PATTERNS, r"\s?\w+|\d"]
    ],
    ids=" ".join,
)
def both(request):
    native_module()
    spec = spec_from_corpus(*request.param)
    return create_engine(spec, "native"), create_engine(spec, "python")


def assert_same(both, text: str) -> None:
    native, python = both
    ids = python.encode(text)
    assert native.encode(text) == ids, repr(text[:80])
    assert native.encode_to_numpy(text).tolist() == ids
    assert native.encode_to_numpy(text, 2).dtype == np.uint32
    assert native.count(text) == len(ids)
    kept = "".join(split(text, python._pattern)).encode()  # as ranks, a custom pattern drops text
    assert native.decode_bytes(ids) == kept
    assert native.decode_bytes(np.array(ids, dtype=np.uint32)) == kept


@given(text=mixed_text | text_of_bytes | repeated)
def test_ids_equal_the_python_engines(both, text):
    assert_same(both, text)


def test_ids_of_adversarial_texts_equal_the_python_engines(both):
    texts = adversarial_texts(n_random=300, seed=5)
    for text in texts:
        assert_same(both, text)
    assert_same(both, "".join(texts))
    native, python = both
    assert native.encode_pre_tokens(texts) == python.encode_pre_tokens(texts)
    assert native.encode_pre_tokens(tuple(texts)) == python.encode_pre_tokens(texts)


@given(st.integers(0, 10**9), st.booleans(), st.text("abc", max_size=400))
def test_any_vocabulary_gives_the_ids_of_the_python_engine(seed, is_ranks, text):
    native_module()
    rng = random.Random(seed)
    if is_ranks:
        ranks = random_ranks(rng, b"abc", rng.randrange(40))
        spec = TokenizerSpec.from_ranks(ranks, pattern="gpt2")
    else:
        merges = random_merges(rng, b"abc", rng.randrange(60))
        spec = spec_of(merges, ignore_merges=rng.random() < 0.5)
    native, python = create_engine(spec, "native"), create_engine(spec, "python")
    for cut in (text, text[: len(text) // 9], text[:5]):
        assert native.encode_pre_tokens([cut]) == python.encode_pre_tokens([cut])


@given(st.integers(0, 10**9), st.booleans(), st.text("中丮丯дѐe \u0434🙂🙃", max_size=120))
def test_merges_across_characters_equal_the_python_engines(seed, is_ranks, text):
    # Characters start as one symbol only where that provably changes nothing.
    native_module()
    rng = random.Random(seed)
    merges = random_character_merges(rng, "中丮丯дѐe 🙂🙃", rng.randrange(1, 60))
    if rng.random() < 0.3:
        rng.shuffle(merges)
    spec = spec_of(merges)
    if is_ranks:
        spec = TokenizerSpec.from_ranks(
            {token: id_ for id_, token in spec.vocab.items()}, pattern="gpt2"
        )
    native, python = create_engine(spec, "native"), create_engine(spec, "python")
    assert native.encode_pre_tokens([text]) == python.encode_pre_tokens([text])
    assert native.encode(text) == python.encode(text)


_MIXED = "ab7.,(\n\t жя中文é\u0e01\u0301🙂"
"""Words, numbers, symbols, white space, and scripts with and without blanks."""


@given(
    st.integers(0, 10**9),
    st.sampled_from(["characters", "merges", "whole merges", "ranks"]),
    st.text(_MIXED, max_size=80) | st.text(_MIXED[:9], max_size=300),
)
def test_cuts_within_pre_tokens_change_no_id(seed, kind, text):
    """Few tokens of two or three characters: between most characters nothing merges."""
    native_module()
    rng = random.Random(seed)
    merges = random_character_merges(rng, _MIXED, rng.randrange(1, 25))
    if kind == "characters":
        tokens = [character.encode() for character in _MIXED]
        merges = []
        for _ in range(rng.randrange(1, 25)):
            left, right = rng.choice(tokens), rng.choice(tokens)
            # No word joins the blank after it.
            if right[:1] != b" " and left + right not in tokens:
                merges.append((left, right))
                tokens.append(left + right)
        spec = TokenizerSpec.from_merges(
            BYTES | {256 + i: token for i, token in enumerate(tokens)},
            merges,
            pattern=METASPACE,
            normalizer="metaspace",
            byte_ids=tuple(range(256)),
        )
    elif kind == "ranks":
        ranks = {token: id_ for id_, token in spec_of(merges).vocab.items()}
        spec = TokenizerSpec.from_ranks(ranks, pattern=METASPACE)
    else:
        # Tokens that no merge makes: only a whole pre-token becomes one.
        whole = ["b中", " a.", "a", "жя7", "\n\n", "中文.a"] if kind == "whole merges" else []
        vocab = dict(spec_of(merges).vocab)
        known = set(vocab.values())
        vocab |= {
            len(vocab) + i: token.encode()
            for i, token in enumerate(whole)
            if token.encode() not in known
        }
        spec = TokenizerSpec.from_merges(
            vocab, merges, pattern=METASPACE, ignore_merges=bool(whole)
        )
    native, python = create_engine(spec, "native"), create_engine(spec, "python")
    for cut in (text, text * 9, text[3:] + " " + text, text.replace(" ", "")):
        ids = python.encode(cut)
        for _ in range(2):  # from the cache too
            assert native.encode(cut) == ids


@pytest.mark.thorough
@pytest.mark.shared_data
def test_corpora_give_the_ids_of_the_python_engine(both, shared_data: Path):
    for path in sorted((shared_data / "corpora").glob("*.txt")):
        with path.open("rb") as file:
            assert_same(both, file.read(60_000).decode("utf-8", "ignore"))


@pytest.mark.parametrize(
    "unit",
    first_and_thorough(["中文字", "the cat's 12345\n\n  hat ", "a", " ", "ABCd\u0301ʰ", "/\n"]),
)
def test_threads_change_no_id(both, unit):
    native, _ = both
    text = unit * (1_500_000 // len(unit.encode()))
    expected = native.encode_to_numpy(text)
    for num_threads in (2, 3, 8):
        assert np.array_equal(native.encode_to_numpy(text, num_threads), expected)


@pytest.mark.row(10)
@pytest.mark.parametrize(
    "characters",
    first_and_thorough(["qxzjthe", "a", "abcabd", " ", "中文字中丮", "🙂🙃", "дѐeéa", "^"]),
)
@pytest.mark.parametrize("kind", ["merges", "ranks"])
def test_a_long_pre_token_has_the_ids_of_merging_it_at_once(kind, characters, monkeypatch):
    native_module()
    spec = spec_from_corpus(kind, "gpt2")
    rng = random.Random(3)
    n_characters = 300_000 // len(characters.encode()) * len(characters)
    at_random = "".join(rng.choices(characters, k=n_characters))
    periodic = characters * (n_characters // len(characters))
    in_windows = [create_engine(spec, name) for name in ("native", "python")]
    monkeypatch.setattr(python_engine, "WINDOW_BYTES", 1 << 30)
    at_once = create_engine(spec, "python")
    for text in (at_random, periodic, "b" + periodic):
        expected = at_once.encode_pre_tokens([text])
        for engine in in_windows:
            assert engine.encode_pre_tokens([text]) == expected
        native = in_windows[0]
        assert native.encode(text) == at_once.encode(text)
        assert native.count(text) == len(native.encode(text))


PEAK_OF_A_LONG_PRE_TOKEN = """
import random, sys
from tests.tokenizer_core.engines.test_native_engine import spec_from_corpus
from tokenizer_core.engines import create_engine

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024

way, characters = sys.argv[1:]
native = create_engine(spec_from_corpus("ranks", "gpt2"), "native")
text = "".join(random.Random(2).choices(characters, k=1 << 20)) * 16
native.encode_to_json("the first call makes tables")
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
made = getattr(native, way)(text)
of_result = {"count": 0, "encode": 8, "encode_to_numpy": 4, "encode_to_json": 4}[way]
n_ids = made if way == "count" else len(made) if way != "encode_to_json" else made[1]
of_json = len(made[0]) if way == "encode_to_json" else 0
print((status("VmHWM") - before - of_result * n_ids - of_json) / len(text))
"""


@pytest.mark.row(10)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is used")
@pytest.mark.parametrize("characters", ["a", "qxzj"])
@pytest.mark.parametrize("way", ["count", "encode", "encode_to_numpy", "encode_to_json"])
def test_a_long_pre_token_needs_few_bytes_of_memory_for_each_of_its_bytes(way, characters):
    native_module()
    done = subprocess.run(
        [sys.executable, "-c", PEAK_OF_A_LONG_PRE_TOKEN, way, characters],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 6


@pytest.mark.parametrize("kind", ["whole merges", "ranks"])
@pytest.mark.parametrize("pattern", [*PATTERNS, METASPACE], ids=str)
def test_tokens_that_no_merge_makes_are_taken_whole(kind, pattern):
    # Some characters never merge with another; of some only the bytes merge.
    native_module()
    tokens = ["中文", "🙂🙂", "ſé", "，。", "ЖЖ", "中文字典大全中文字典大全", "ab", "é\u0301"]
    merges = [(b"\xc5", b"\xbf"), (b"\xe4", b"\xb8"), (b"\xe4\xb8", b"\xad")]
    vocab = dict(BYTES)
    for token in [*(left + right for left, right in merges), *(t.encode() for t in tokens)]:
        vocab[len(vocab)] = token
    if kind == "ranks":
        ranks = {token: id_ for id_, token in vocab.items()}
        spec = TokenizerSpec.from_ranks(ranks, pattern=pattern)
    else:
        spec = TokenizerSpec.from_merges(vocab, merges, pattern=pattern, ignore_merges=True)
    both = create_engine(spec, "native"), create_engine(spec, "python")
    for token in tokens:
        for around in ("{}", " {}", "{} ", "a {} b {}\n", "x{}", "{}y", "{0}{0}", "1{}. {}, {}"):
            for repeated in (around, around * 9):
                assert_same(both, repeated.replace("{}", token).replace("{0}", token))


@pytest.mark.parametrize("length", [1, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1000])
def test_lengths_at_the_edges_of_the_tables_cold_and_warm(length):
    native_module()
    rng = random.Random(length)
    spec = spec_of(random_merges(rng, b"abc", 25))
    native, python = create_engine(spec, "native"), create_engine(spec, "python")
    for _ in range(20):
        piece = "".join(rng.choices("abc", k=length))
        for text in (piece, f"{piece} {piece}", f"x {piece}"):
            assert native.encode(text) == native.encode(text) == python.encode(text)


@pytest.mark.row(35)
def test_the_caches_stay_within_their_bound_whatever_the_text():
    native_module()
    engine = create_engine(spec_of([(b"a", b"b")]), "native")
    rng = random.Random(0)
    for _ in range(6):
        words = (str(rng.random()) * rng.choice([1, 1, 2, 9]) for _ in range(60_000))
        engine.encode_to_numpy("x" + "x".join(words))
        statistics = engine.cache_statistics()
        assert 0 < statistics.entries <= statistics.maximum
    assert statistics.hits + statistics.misses > 1_000_000
    before = engine.cache_statistics()
    engine.encode("y" * 1000)
    after = engine.cache_statistics()
    assert (after.entries, after.misses) == (before.entries, before.misses + 1)


def test_many_threads_share_an_engine():
    native_module()
    spec = spec_from_corpus("merges", "o200k")
    engine = create_engine(spec, "native")
    texts = adversarial_texts(n_random=60, seed=9)
    texts.append("".join(texts) * 3)
    expected = [create_engine(spec, "python").encode(text) for text in texts]
    barrier = threading.Barrier(24)

    def work(seed):
        order = list(range(len(texts)))
        random.Random(seed).shuffle(order)
        barrier.wait()
        return all(engine.encode(texts[i]) == expected[i] for i in order)

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(work, range(24)))


def test_a_long_call_lets_other_threads_run():
    native_module()
    engine = create_engine(spec_of([]), "native")
    text = "".join(map(chr, range(0x4E00, 0x9FFF))) * 60
    done = threading.Event()
    ticks = 0

    def encode():
        engine.count(text)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not done.is_set():
        ticks += 1
        done.wait(0.0005)
    thread.join()
    # Without the GIL released this thread would run only once before and once after.
    assert ticks > 5


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_arrays_of_any_integers_decode(dtype):
    native_module()
    engine = create_engine(spec_of([]), "native")
    ids = np.arange(100, dtype=dtype)
    assert engine.decode_bytes(ids) == bytes(range(100))
    assert engine.decode_bytes(ids[::-3]) == bytes(range(100))[::-3]
    assert engine.decode_bytes(ids[:0]) == b""


def test_an_array_that_is_not_aligned_decodes():
    native_module()
    raw = b"\0" + np.arange(97, 123, dtype=np.uint32).tobytes()
    ids = np.frombuffer(raw, dtype=np.uint32, offset=1)
    assert not ids.flags.aligned
    engine = create_engine(spec_of([]), "native")
    assert engine.decode_bytes(ids) == bytes(range(97, 123))
    # The module itself never gets such memory: it reads whole words in place.
    assert native._as_uint32(ids).flags.aligned


@pytest.mark.parametrize("dtype", ["<u4", ">u4", "<i8"])
def test_arrays_at_odd_addresses_and_of_either_byte_order_decode(dtype):
    native = native_module()
    engine = create_engine(spec_of([]), "native")
    data = b"x" + np.arange(100).astype(dtype).tobytes()
    ids = np.frombuffer(data, dtype=dtype, offset=1)
    assert not ids.flags.aligned
    assert engine.decode_bytes(ids) == bytes(range(100))
    assert engine.decode(ids) == "".join(map(chr, range(100)))
    assert engine.json_of_ids(ids) == str([*range(100)]).replace(" ", "").encode()
    if dtype == "<u4":
        known = {token: id_ for id_, token in BYTES.items()}
        encoder = native.NativeEncoder(dict(BYTES), known, NO_MERGES, False, "gpt2")
        with pytest.raises(ValueError, match="aligned"):
            encoder.decode_array(ids)


@pytest.mark.parametrize("bad", [-1, 1 << 33, (1 << 32) + 5, 300])
def test_an_array_with_an_unknown_id_is_refused(bad):
    native_module()
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\]") as caught:
        create_engine(spec_of([]), "native").decode_bytes(np.array([5, bad, -1]))
    assert caught.value.token_id == bad


def test_a_vocabulary_no_spec_lets_through_is_refused():
    native = native_module()
    known = {token: id_ for id_, token in BYTES.items()}
    for vocab, tokens in [
        (BYTES | {1 << 20: b"ab"}, known),
        (BYTES, {token: id_ for token, id_ in known.items() if id_ != 7}),
        (BYTES, known | {b"ab": 5}),
    ]:
        with pytest.raises(ValueError, match=r"2\^20|0x07|is not that"):
            native.NativeEncoder(vocab, tokens, NO_MERGES, False, "gpt2")
    with pytest.raises(ValueError, match="gpt5"):
        native.NativeEncoder(BYTES, known, NO_MERGES, False, "gpt5")
    for merge in ([97, 98, 99], [97, 98, 1 << 19], [1 << 31, 98, 98], [98, 98, 256]):
        with pytest.raises(ValueError, match="a merge whose sides are not its product"):
            native.NativeEncoder(BYTES, known, np.array(merge, np.uint32), False, "gpt2")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("gone", name="tokenizer_core._native"), "not in this installation"),
        (ImportError("wrong machine"), "wrong machine"),
    ],
)
def test_without_the_module_auto_is_python_and_native_says_why(error, says, monkeypatch):
    monkeypatch.setattr(native, "_import_error", error)
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    assert resolve_engine() == "python"
    assert create_engine(spec_of([])).name == "python"
    for start in (resolve_engine, lambda name: create_engine(spec_of([]), name)):
        with pytest.raises(EngineUnavailableError, match=says):
            start("native")
    monkeypatch.setenv("TOKENIZER_ENGINE", "native")
    with pytest.raises(EngineUnavailableError, match="TOKENIZER_ENGINE"):
        resolve_engine()


def test_auto_is_native_where_it_was_built(monkeypatch):
    native_module()
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    choice = choose_engine()
    assert (choice.name, choice.native_unavailable, choice.is_fallback) == ("native", None, False)
    assert create_engine(spec_of([])).name == "native"
    monkeypatch.setenv("TOKENIZER_ENGINE", "")
    assert choose_engine() == choice
    monkeypatch.setenv("TOKENIZER_ENGINE", "python")
    assert choose_engine() == choose_engine("python")
    assert choose_engine().name == "python"
    assert choose_engine("native").name == "native"


@pytest.mark.parametrize("engine", ["auto", "native", "python"])
def test_an_unknown_kernel_is_refused_with_the_known_ones(engine, monkeypatch):
    native_module()
    monkeypatch.setattr(native, "_asked_kernel", "AVX2")
    with pytest.raises(EngineUnavailableError) as raised:
        create_engine(spec_of([]), engine)
    assert str(raised.value) == (
        "TOKENIZER_KERNEL names no kernel: it is 'AVX2', and may be avx512, avx2, neon or "
        "portable; unset it for the fastest one"
    )


def test_a_kernel_that_the_processor_lacks_is_refused_where_it_would_run(monkeypatch):
    native_module()
    lacking = "neon" if native._native.KERNEL != "neon" else "avx2"
    monkeypatch.setattr(native, "_asked_kernel", lacking)
    for engine in ("auto", "native"):
        with pytest.raises(EngineUnavailableError, match=f"is {lacking}, which this processor"):
            choose_engine(engine)
    assert choose_engine("python").name == "python"
    monkeypatch.setattr(native, "_import_error", ImportError("wrong machine"))
    assert choose_engine("auto").name == "python"


def test_a_kernel_is_read_from_the_environment():
    native_module()
    code = "from tokenizer_core.engines import choose_engine; choose_engine()"
    for kernel, says in (("foo", "names no kernel: it is 'foo'"), ("portable", ""), ("", "")):
        environment = os.environ | {"TOKENIZER_KERNEL": kernel}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (says in ran.stderr, ran.returncode == 0) == (True, not says), ran.stderr


def test_only_what_auto_could_not_choose_is_a_fallback(monkeypatch):
    monkeypatch.setattr(native, "_import_error", ImportError("undefined symbol"))
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    fallback, asked = choose_engine(), choose_engine("python")
    assert fallback.is_fallback
    assert not asked.is_fallback
    for choice in (fallback, asked):
        assert choice.name == "python"
        assert "undefined symbol" in choice.native_unavailable
    assert "undefined symbol" in fallback.reason
    assert "asked for" in asked.reason


def test_a_fallback_warns_once_where_the_module_is_installed(monkeypatch, recwarn):
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    engines._warn_of_fallback.cache_clear()
    missing = ModuleNotFoundError("no module", name=native._MODULE)
    for error, n_warnings in ((missing, 0), (ImportError("undefined symbol: once"), 1)):
        monkeypatch.setattr(native, "_import_error", error)
        assert create_engine(spec_of([])).name == "python"
        assert create_engine(spec_of([]), "python").name == "python"
        assert create_engine(spec_of([])).name == "python"
        assert len(recwarn) == n_warnings
    warning = recwarn.pop(RuntimeWarning)
    assert "undefined symbol: once" in str(warning.message)
    assert "TOKENIZER_ENGINE=python" in str(warning.message)


def test_the_reason_does_not_tell_where_the_module_lies(monkeypatch):
    path = "/the/secret/place/_native.so"
    error = ImportError(f"{path}: undefined symbol: x", path=path)
    monkeypatch.setattr(native, "_import_error", error)
    reason = native.unavailable_reason()
    assert "undefined symbol: x" in reason
    assert "secret" not in reason


@pytest.fixture
def package_with_stub(tmp_path):
    """Runs the command with this package and its compiled module, but another stub (or None)."""
    native_module()
    package = tmp_path / "tokenizer_core"
    package.mkdir()
    real = Path(tokenizer_core.__file__).parent
    for entry in real.iterdir():
        if entry.name not in ("_native.pyi", "__pycache__", "native"):
            (package / entry.name).symlink_to(entry)
    code = (
        "import sys, tokenizer_core; from tokenizer_core.engines import choose_engine;"
        f"assert tokenizer_core.__file__.startswith({str(tmp_path)!r});"
        "choice = choose_engine(sys.argv[1]); print(choice.name, choice.is_fallback, choice.reason)"
    )

    def choose(stub: str | None, engine: str = "auto") -> subprocess.CompletedProcess[str]:
        if stub is not None:
            (package / "_native.pyi").write_bytes(stub.encode())
        command = [sys.executable, "-c", code, engine]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={})

    return choose


def test_a_module_built_for_other_code_is_not_used_and_says_how_to_build_it(package_with_stub):
    stub = native._STUB_PATH.read_text(encoding="utf-8")
    other = stub.replace("pattern: str | NativeAutomaton | None,", "pattern: str,")
    assert other != stub
    fallback = package_with_stub(other).stdout
    assert fallback.startswith("python True ")
    assert "built for another version" in fallback
    assert "`make setup`" in fallback
    asked = package_with_stub(other, "native")
    assert asked.returncode != 0
    assert "EngineUnavailableError" in asked.stderr
    assert "`make setup`" in asked.stderr


@pytest.mark.parametrize(
    "change", [str, lambda stub: stub.replace("\n", "\r\n"), lambda stub: None]
)
def test_line_ends_and_a_stub_left_out_make_no_module_stale(package_with_stub, change):
    stub = native._STUB_PATH.read_text(encoding="utf-8")
    assert package_with_stub(change(stub)).stdout.startswith("native False ")


def test_a_module_older_than_the_check_is_stale(monkeypatch):
    monkeypatch.setattr(native, "_native", SimpleNamespace(), raising=False)
    assert native._is_stale(native._STUB_PATH)
