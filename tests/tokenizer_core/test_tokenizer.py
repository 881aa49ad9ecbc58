"""The Tokenizer's public surface: all forms of encoding and decoding agree."""

import copy
import html
import itertools
import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizer_core
from tests.adversarial import _FRAGMENTS
from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tests.slow_packages import REGEX
from tests.tokenizer_core.every_way import SHAPES, check_stream
from tokenizer_core import (
    DecodeStreams,
    StreamingDecoder,
    StreamingEncoder,
    Tokenizer,
    TokenizerSpec,
    align,
    chunk_text,
    reference,
    train,
    train_from_iterator,
    truncate_text,
)
from tokenizer_core.engines import COUNT
from tokenizer_core.errors import (
    ConversionError,
    InvalidSpecError,
    SpecialTokenForbiddenError,
    UnknownPatternError,
    UnknownTokenIdError,
)
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.normalizers import normalizer_of
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.presets import find_preset
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import AddedToken, Alphabet, MissingBytes
from tokenizer_core.spec.added_tokens import ADDED_TOKEN_FLAGS
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.spec.document_end import find_eos_token
from tokenizer_core.specials.policy import Policy
from tokenizer_core.splitting.patterns import PATTERNS, PUBLISHED, SplitPattern
from tokenizer_core.text.pieces import MAX_SHOWN

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [
    (b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b"l", b"l"), (b"'", b"ll"), (b"\xe4", b"\xb8"),
    (b"\xe4\xb8", b"\xad"), (b" ", b" "), (b"\n", b"\n"), (b"a", b"a"), (b"aa", b"a"),
]  # fmt: skip
VOCAB = BYTES | {256 + i: a + b for i, (a, b) in enumerate(MERGES)}
SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<|end|>"]
mixed_text = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(codec="utf-8"), max_size=30).map(
    "".join
)


@pytest.fixture(scope="module")
def tokenizer(engine):
    return Tokenizer(VOCAB, MERGES, SPECIALS, engine=engine)


@pytest.fixture(scope="module")
def nfc(engine):
    spec = TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS, pattern="qwen2", normalizer="nfc")
    return Tokenizer.from_spec(spec, engine=engine)


SLOW = {"asyncio", "concurrent", "jinja2", "logging", "numpy", "subprocess"} | REGEX
"""Packages that take long to import."""


@pytest.mark.parametrize(
    ("make", "is_slow"),
    [
        ("from_preset('gpt2')", False),
        ("load('merges.json')", False),
        ("load('nfc.json')", False),
        ("load('folder')", False),
        ("load('merges.json', engine='python')", bool(REGEX)),
    ],
)
def test_the_first_ids_need_no_slow_package(tmp_path, make, is_slow):
    native_module()
    spec = TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS)
    (tmp_path / "folder").mkdir()
    for name, normalizer in (
        ("merges.json", "none"),
        ("nfc.json", "nfc"),
        ("folder/tokenizer.json", "none"),
    ):
        changed = replace(spec, normalizer=normalizer_of(normalizer))
        write_files("tokenizer.json", changed, tmp_path / name)
    code = (
        "import sys; from tokenizer_core import Tokenizer\n"
        f"print(Tokenizer.{make}.decode(Tokenizer.{make}.encode('Hello')))\n"
        f"print(*sorted({SLOW!r} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    text, found = done.stdout.splitlines()
    assert (text, bool(found)) == ("Hello", is_slow)


@given(mixed_text)
def test_encode_equals_bpe_by_definition(tokenizer, text):
    ids = tokenizer.encode_ordinary(text)
    assert ids == reference.encode(text, VOCAB, MERGES)
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(mixed_text)
def test_offsets_of_bytes_and_characters(tokenizer, text):
    ids, in_bytes = tokenizer.encode_with_offsets(text)
    data = text.encode()
    assert (in_bytes.shape, in_bytes.dtype) == ((len(ids), 2), np.uint64)
    with pytest.raises(ValueError, match="unit"):
        tokenizer.encode_with_offsets(text, unit="word")
    for id_, (start, end) in zip(ids, in_bytes.tolist(), strict=True):
        assert data[start:end] == tokenizer.spec.vocab[id_]
    # A character belongs to every token that has one of its bytes.
    _, offsets = tokenizer.encode_with_offsets(text, unit="char")
    starts = [len(text[:i].encode()) for i in range(len(text) + 1)]  # the byte at which each begins
    for (start, end), (first, last) in zip(offsets.tolist(), in_bytes.tolist(), strict=True):
        assert starts[start] <= first < starts[start + 1]
        assert starts[end - 1] < last <= starts[end]


@given(mixed_text)
def test_offsets_under_nfc_refer_to_the_original(nfc, text):
    ids, offsets = nfc.encode_with_offsets(text)
    data = text.encode()
    for id_, (start, end) in zip(ids, offsets.tolist(), strict=True):
        assert 0 <= start < end <= len(data)
        piece = data[start:end].decode("utf-8", "ignore")
        token = nfc.spec.vocab[id_]
        assert token in data[start:end] or token in normalize_nfc(piece).encode()
    if ids:
        assert offsets[0, 0] == 0
        assert offsets[-1, 1] == len(data)


def test_special_tokens_by_policy(engine):
    tokenizer = Tokenizer(BYTES, [], ["<|a|>", "<|a|><|a|>", "<|b|>"], engine=engine)
    assert tokenizer.encode("<|a|><|a|><|a|>") == [257, 256]
    plain = tokenizer.encode_ordinary("<|a|>")
    assert plain == list(b"<|a|>")
    assert tokenizer.encode("<|a|>", allowed_special={"<|b|>"}) == plain
    calls = [
        tokenizer.encode,
        tokenizer.encode_to_numpy,
        tokenizer.encode_with_offsets,
        tokenizer.count,
        lambda text, **options: tokenizer.encode_batch(["x", text], **options),
        lambda text, **options: list(tokenizer.encode_iterable([text], **options)),
    ]
    for call in calls:
        for allowed in ("all", "none", [], ["<|a|>"]):
            options = {"allowed_special": allowed, "disallowed_special": "all"}
            call("no token", **options)
            with pytest.raises(SpecialTokenForbiddenError, match=re.escape("<|b|>")):
                call("x<|b|>", **options)
        call("x<|a|>", allowed_special=["<|a|>"], disallowed_special="all")
        with pytest.raises(SpecialTokenForbiddenError, match=re.escape("<|a|>")):
            call("x<|a|>", disallowed_special="all")
        call("x<|a|>", allowed_special="ordinary")
        for allowed in ("all", "ordinary"):
            with pytest.raises(TypeError, match=r"disallowed_special must be|not iterable"):
                call("x<|a|>", allowed_special=allowed, disallowed_special=None)


def test_decode_takes_lists_and_arrays_and_marks_what_is_no_text(tokenizer):
    for dtype in (np.uint16, np.int32, np.uint32, np.int64):
        assert tokenizer.decode(np.array([0xFF, 97], dtype=dtype)) == "\ufffda"
    assert tokenizer.decode((0xFF, 97)) == "\ufffda"
    with pytest.raises(TypeError, match="integers"):
        tokenizer.decode(np.array([1.0, 2.0]))
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode([0xFF, 97], errors="strict")
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 99999"):
        tokenizer.decode([97, 99999])
    special = next(iter(tokenizer.special_tokens.values()))
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 99999"):
        tokenizer.decode([special, 99999], skip_special_tokens=True)
    with pytest.raises(TypeError, match=r"ids\[1\] = True is a bool"):
        tokenizer.decode([97, True])


NO_TEXTS = [
    *((text, UnicodeEncodeError) for text in ("a\ud800b", "\u1100\ud800", "x<e>y<e>\xe9\ud800e")),
    (b"a", TypeError),
    (None, TypeError),
]


def test_errors_name_the_place_in_a_batch(tokenizer):
    for encode in (tokenizer.encode_batch, tokenizer.encode_batch_to_numpy):
        with pytest.raises(TypeError, match=r"texts\[2\] must be a str, not NoneType"):
            encode(["a", "b", None])
        with pytest.raises(UnicodeEncodeError, match=r"in texts\[1\]"):
            encode(["a", "\ud800"])
        with pytest.raises(SpecialTokenForbiddenError, match=r"texts\[1\] holds the special"):
            encode(["a", "b<|endoftext|>"], disallowed_special="all")
    with pytest.raises(TypeError, match=r"row 1: ids\[0\] = None"):
        tokenizer.decode_batch([[1], [None]])
    for train_on in (train, train_from_iterator):
        with pytest.raises(TypeError, match="options must be TrainingOptions"):
            train_on(["a"], 300)
    with pytest.raises(TypeError, match="the tokenizer comes first"):
        truncate_text("hello", tokenizer, 2)
    for number, error in ((0, ValueError), (-1, ValueError), ("2", TypeError), (1.5, TypeError)):
        for call in (
            partial(tokenizer.encode_batch, ["a"]),
            partial(tokenizer.encode_batch_to_numpy, ["a"]),
            partial(tokenizer.encode_to_numpy, "a"),
            partial(tokenizer.encode_segments_to_numpy, [("a", True)]),
            partial(tokenizer.decode_batch, [[1]]),
            partial(tokenizer.canonical_batch, [[1]]),
        ):
            with pytest.raises(error, match="num_threads must be"):
                call(num_threads=number)
    text = "hello"
    for call, wrong, message in (
        (tokenizer.encode, ["a", "b"], "not list; encode_batch takes a list of texts"),
        (tokenizer.count, ("a", "b"), "not tuple; encode_batch takes a list of texts"),
        (tokenizer.encode_ordinary, b"a", "not bytes; decode it first"),
        (tokenizer.decode, "1 2", "not str; convert each of its words with int"),
        (tokenizer.decode, b"ab", "not bytes; np.frombuffer reads the ids in it"),
        (tokenizer.decode_bytes, {1: 2}, "an array of integers, not dict"),
        (tokenizer.decode, {1, 2}, "an array of integers, not set"),
        (tokenizer.decode, np.array([[1, 2]]), r"is a list; .* are for the methods with _batch"),
        (tokenizer.decode, np.array(5), "an array of integers, not int"),
        (partial(tokenizer.decode, skip_special_tokens=True), [[1]], "is a list; .* with _batch"),
        (tokenizer.encode_batch, iter(["a"]), r"list of strings; list\(texts\) makes one"),
        (tokenizer.decode_batch, 5, "a batch must be a list of lists of ids, not int"),
        (tokenizer.canonical_batch, 5, "a batch must be a list of lists of ids, not int"),
        (tokenizer.token_to_id, 5, "token must be a str or bytes, not int"),
        (tokenizer.id_to_token, True, "is a bool; ids must be integers"),
        (partial(tokenizer.extend, [1]), 5, "text must be a str, not int"),
        (partial(tokenizer.extend, [1]), ["a"], "segments must be pairs .*, not str"),
        (StreamingDecoder(tokenizer).feed, 5, "ids must be a list or an array of integers, not"),
        (StreamingDecoder, "gpt2", r"'gpt2' is no Tokenizer; Tokenizer\.load"),
        (StreamingEncoder, "gpt2", r"'gpt2' is no Tokenizer; Tokenizer\.load"),
        (DecodeStreams, "gpt2", r"'gpt2' is no Tokenizer; Tokenizer\.load"),
        (lambda stop: DecodeStreams(tokenizer, stop=stop), [5], "stop must be a string or a list"),
        (lambda name: align(name, tokenizer, text), "gpt2", "two tokenizers come before the text"),
        (Tokenizer.from_spec, tokenizer, "spec must be a TokenizerSpec, .* not Tokenizer"),
        (tokenizer.decode, 5, "ids must be a list or an array of integers, not int"),
        (tokenizer.canonical, 5, "ids must be a list"),
        (tokenizer.decode_batch, [1, 2], "row 0 must be a list"),
        (tokenizer.canonical_batch, [[1], None], "row 1 must be a list"),
        (tokenizer.encode_batch, {"text": "a"}, "texts must be a list"),
        (tokenizer.encode_batch_to_numpy, np.array([["a"]]), "texts must be a list"),
        (lambda texts: [*tokenizer.encode_iterable(texts)], ["a", None], r"texts\[1\] must be"),
        (tokenizer.encode_segments, ["a"], "segments must be pairs"),
        (lambda n: truncate_text(tokenizer, text, n), "2", "a number of tokens must be an int"),
        (lambda n: [*chunk_text(tokenizer, text, 2, overlap_tokens=n)], "1", "must be an int, not"),
    ):
        with pytest.raises(TypeError, match=message):
            call(wrong)


def test_a_saved_tokenizer_is_loaded(tokenizer, tmp_path):
    for path in (tmp_path / "a.json", tmp_path / "below" / "folder"):
        tokenizer.save(path)
        assert Tokenizer.load(path).spec.fingerprint == tokenizer.spec.fingerprint
    (path / "chat_template.jinja").write_text("x")
    with pytest.raises(ConversionError, match="would replace the chat templates"):
        tokenizer.save(path)
    with pytest.raises(FileNotFoundError, match=r"no such folder: '.*absent'"):
        tokenizer.save(tmp_path / "absent" / "a.json")


def test_a_tokenizer_cannot_be_changed(tokenizer):
    with pytest.raises(AttributeError, match="immutable"):
        tokenizer.foo = 3


@pytest.mark.parametrize("name", SHAPES)
def test_a_value_that_is_not_text_is_refused(name, engine):
    one = Tokenizer.from_spec(SHAPES[name], engine=engine)
    stream = StreamingEncoder(one)
    ids = stream.feed("to")
    calls = [
        one.encode,
        one.encode_ordinary,
        one.encode_to_numpy,
        one.encode_with_offsets,
        one.count,
        stream.feed,
        lambda text: one.encode(text, disallowed_special=["<f>"]),
        lambda text: one.count(text, limit=0),
        lambda text: one.encode_batch(["fine", text]),
        lambda text: one.encode_batch_to_numpy(["fine", text]),
        lambda text: one.encode_segments([("", True), (text, False)]),
        lambda text: one.count_segments([("", True), (text, False)]),
        lambda text: truncate_text(one, text, 1),
    ]
    for call in calls:
        for text, error in NO_TEXTS:
            with pytest.raises(error) as caught:
                call(text)
            if error is UnicodeEncodeError:  # its index is that in the whole text
                assert (caught.value.object, caught.value.start) == (text, text.index("\ud800"))
            elif call in calls[:8]:
                assert f"must be a str, not {type(text).__name__}" in str(caught.value)
    assert ids + stream.feed("gether") + stream.finish() == one.encode("together")


def test_count_with_a_limit(tokenizer):
    text = "word " * 1000 + "<|end|>"
    full = tokenizer.count(text)
    assert tokenizer.count(text, limit=10) > 10
    for limit in (full, 10**20, np.int64(full)):
        assert tokenizer.count(text, limit=limit) == full
    for count in (tokenizer.count, lambda text, limit: tokenizer.count_segments([], limit=limit)):
        with pytest.raises(ValueError, match="limit must be at least 0, not -1"):
            count("", limit=-1)
    with pytest.raises(TypeError):
        tokenizer.count(text, limit=1.5)


class Subclass(Tokenizer):
    """Of a user; copies are of it, too."""


def test_equal_is_what_gives_the_same_ids_and_a_copy_has_the_same_class(tokenizer, nfc):
    one = Subclass.from_spec(tokenizer.spec)
    for copied in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert type(copied) is Subclass
        assert copied == one
        assert copied.spec.fingerprint == tokenizer.spec.fingerprint
        assert copied.encode("the <|end|>") == tokenizer.encode("the <|end|>")
    other_engine = Tokenizer.from_spec(tokenizer.spec, engine="python")
    assert len({tokenizer, other_engine, nfc}) == 2
    assert tokenizer == other_engine
    assert tokenizer != nfc
    assert tokenizer != tokenizer.spec


def test_two_names_for_one_id(engine):
    """As o200k_harmony has for 200018."""
    names = {"<|end|>": 300, "<|x|>": 299, "<|reserved|>": 300}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for spec in (
        TokenizerSpec.from_ranks(ranks, names, pattern="gpt2"),
        TokenizerSpec.from_merges(BYTES, [], [AddedToken(*pair) for pair in names.items()]),
    ):
        tokenizer = Tokenizer.from_spec(spec, engine=engine)
        assert spec.second_names() == ["<|reserved|>"]
        assert tokenizer.encode("<|reserved|>a<|end|><|x|>") == [300, 97, 300, 299]
        assert tokenizer.encode("<|reserved|>", allowed_special={"<|end|>"})[0] == ord("<")
        assert tokenizer.decode([300, 97]) == "<|end|>a"
        assert tokenizer.decode([300, 97], skip_special_tokens=True) == "a"
        check_stream(tokenizer, ["b<|rese", "rved|>", "a<|end", "|>"], [98, 300, 97, 300])
        assert build_spec(render_spec_fields(spec), spec.vocab, spec.merges) == spec
    with pytest.raises(InvalidSpecError, match="'a' is a rank"):
        TokenizerSpec.from_ranks(ranks, {"a": 97}, pattern="gpt2")
    for wrong in ({97: b"a"}, list(ranks)):
        with pytest.raises(InvalidSpecError, match="ranks must be a dict, bytes -> rank"):
            TokenizerSpec.from_ranks(wrong, {}, pattern="gpt2")
    with pytest.raises(InvalidSpecError, match="a dict: token -> id"):
        TokenizerSpec.from_ranks(ranks, ["<end>"], pattern="gpt2")


@pytest.mark.parametrize(
    ("vocab", "merges", "specials", "message"),
    [
        ({}, [], [], "no token for 243"),
        ({"a": 0}, [], [], "turn it round"),
        ("vocab.json", "merges.txt", [], r"vocab is no file .*Tokenizer\.from_files reads"),
        (BYTES, Path("merges.txt"), [], r"merges is no file .*Tokenizer\.from_files reads the"),
        (list(BYTES.values()), [], [], "vocab must be a dict, id -> bytes, not list"),
        (BYTES, [5], [], "merges must be a list of pairs of bytes"),
        (BYTES, [], 5, "list of strings, not 5"),
        ({**BYTES, -1: b"x"}, [], [], "not an integer in"),
        ({**BYTES, True: b"x"}, [], [], "no token for 1 of|not an integer"),
        ({**BYTES, 256: "x"}, [], [], "bytes"),
        ({**BYTES, 256: b""}, [(b"", b"a")], [], "needs the token b''"),
        ({i: b for i, b in BYTES.items() if i != 7}, [], [], "0x07"),
        (BYTES, [(b"a", b"b")], [], "another vocabulary"),
        ({**BYTES, 256: b"ab"}, [(b"a", b"b")] * 2, [], "twice"),
        ({**BYTES, 256: b"ab"}, [], ["<a>"], r"id 256, b'ab'\).*with_special_tokens"),
        (BYTES, [], [""], "empty"),
        (BYTES, [], "<s>", "list of strings"),
        (BYTES, [], [b"<s>"], "must be a string"),
        (BYTES, [], ["<\ud800>"], "surrogate"),
        (BYTES, [], ["x" * 2000], "shorter"),
        (BYTES, ["ab"], [], "pair"),
        (BYTES, [], ["<a>", "<a>"], "twice"),
        (BYTES, [], [AddedToken("<a>", 97)], "belongs to b'a'"),
        (BYTES, [], [AddedToken("<a>", 300), AddedToken("<b>", 300, False)], "make both the same"),
    ],
)
def test_what_is_no_tokenizer_is_refused(vocab, merges, specials, message):
    with pytest.raises(InvalidSpecError, match=message):
        Tokenizer(vocab, merges, specials)


def test_an_unknown_pattern_or_engine_is_refused_by_name(engine, monkeypatch):
    with pytest.raises(UnknownPatternError, match=r"'gpt5'.*gpt2"):
        Tokenizer(VOCAB, MERGES, pattern="gpt5")
    with pytest.raises(ValueError, match="'rust'"):
        Tokenizer(VOCAB, MERGES, engine="rust")
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)
    assert Tokenizer(VOCAB, MERGES).engine_name == engine
    assert Tokenizer(VOCAB, MERGES, engine="python").engine_name == "python"


def test_everything_that_decides_an_id_changes_the_fingerprint():
    base = TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS)
    without = {id_: token for id_, token in VOCAB.items() if id_ != 4}
    rules = [(None, False), (65, False), (65, True), (66, False)]
    first = AddedToken(SPECIALS[0], 267)
    flags = [{name: True} for name in ADDED_TOKEN_FLAGS]
    patterns = itertools.product(["python", "fancy-regex", "oniguruma"], ["keep", "drop"])
    options = [
        {"pattern": "cl100k"},
        {"ignore_merges": True},
        {"normalizer": "nfc"},
        {"prefix_ids": (5,)},
        {"suffix_ids": (5,)},
        *({"pattern": SplitPattern("custom", r"\s+|\S+", *pair)} for pair in patterns),
    ]
    others = [
        TokenizerSpec.from_merges(VOCAB, MERGES[:-1], SPECIALS),
        TokenizerSpec.from_merges(VOCAB, [MERGES[1], MERGES[0], *MERGES[2:]], SPECIALS),
        TokenizerSpec.from_merges(VOCAB | {999: b"zzz"}, MERGES),
        TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS[:2]),
        *(
            TokenizerSpec.from_merges(VOCAB, MERGES, [replace(first, **one)])
            for one in [{}, {"special": False}, *flags]
        ),
        *(TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS, **option) for option in options),
        *(
            TokenizerSpec.from_merges(
                without, MERGES, alphabet=Alphabet(missing=MissingBytes((4,), *rule))
            )
            for rule in rules
        ),
    ]
    assert len({spec.fingerprint for spec in [base, *others]}) == len(others) + 1
    assert all(other != base for other in others)
    again = TokenizerSpec.from_merges(dict(reversed(VOCAB.items())), list(MERGES), SPECIALS)
    assert (again, hash(again), again.fingerprint) == (base, hash(base), base.fingerprint)
    # Artifacts contain it: if it changes, every published manifest is refused.
    assert base.unicode_tables == "regex 2025.9.18"
    assert base.fingerprint == "2a6223f62f9f1a2c935c696062d1201c017773b1282822205fdbd5ffbfa9e439"


def test_the_public_surface_is_what_the_documentation_lists():
    page = (REPOSITORY / "docs" / "library.md").read_text(encoding="utf-8")
    documented = re.findall(r"^### `(\w+)", page, flags=re.MULTILINE)
    listed = [name for name in dir(tokenizer_core) if not name.startswith("_")]
    assert listed == sorted(documented) == sorted(tokenizer_core.__all__)
    methods = {name for name in vars(Tokenizer) if not name.startswith("_")}
    assert methods == set(re.findall(r"^- `(?:Tokenizer)?\.(\w+)", page, flags=re.MULTILINE))
    assert tokenizer_core.__version__ == version("tokenizer-service")


def test_documented_signatures_and_patterns_are_those_of_the_code():
    page = (REPOSITORY / "docs" / "library.md").read_text(encoding="utf-8")
    named = page.partition("### `PATTERNS`")[2].partition("\n### ")[0]
    assert {*PATTERNS, *PUBLISHED} <= {*re.findall(r"`(\w+)`", named)}
    found = re.findall(r"^(?:###|-) `(\.?)(\w+)\(([^`]*)\)`", page, flags=re.MULTILINE)
    assert len(found) > 50
    for dot, name, text in found:
        code = getattr(Tokenizer if dot else tokenizer_core, name)
        real = {n: p for n, p in signature(code).parameters.items() if n != "self"}
        text, is_open = re.subn(r",? ?\.\.\.$", "", text)
        documented = signature(eval(f"lambda {text}: 0")).parameters
        for parameter in documented.values():
            written = real[parameter.name].replace(annotation=Parameter.empty)
            assert written == parameter, f"{name}: {written}"
        others = [p for n, p in real.items() if n not in documented]
        assert is_open or not others, f"{name}: {others}"
        assert all(p.default is not Parameter.empty for p in others), name
    encoders = {name for name in vars(Tokenizer) if name.startswith(("encode", "count", "pieces"))}
    for name in encoders - {"encode_ordinary"}:
        assert "add_special_tokens" in signature(getattr(Tokenizer, name)).parameters, name


def test_tokens_and_ids(engine):
    vocab = BYTES | {256: b" the", 260: b"\xe4\xb8", 262: b"odd", 263: b""}
    merges = [(b" ", b"t"), (b" t", b"h"), (b" th", b"e"), (b"\xe4", b"\xb8")]
    vocab |= {257: b" t", 258: b" th"}
    tokenizer = Tokenizer(vocab, merges, ["<|endoftext|>", "a"], engine=engine)
    assert (len(tokenizer), tokenizer.vocab_size, tokenizer.n_vocab) == (263, 263, 265)
    assert tokenizer.special_tokens == {"<|endoftext|>": 264, "a": 97}
    tokenizer.special_tokens.clear()
    assert tokenizer.eot_token == 264
    for id_, token in tokenizer.spec.vocab.items():
        assert tokenizer.id_to_token(id_) == token
        assert tokenizer.token_to_id(token) == id_
    for absent in ("Ġthe", " thee", b"\xb8\xe4"):
        assert tokenizer.token_to_id(absent) is None
    assert [tokenizer.id_to_token(id_) for id_ in (259, 265, -1)] == [None] * 3
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode_batch([[260]], "strict")


END, TURN = "<|endoftext|>", "<|im_end|>"


def declared(eos, *, source="", stops=()):
    return {"chat": ChatTemplates({"default": source}, {"eos_token": eos}, stop_tokens=stops)}


EOS_AND_DOCUMENT_END = [
    ([TURN, "<eos>"], {}, "<eos>", "<eos>"),
    (["</s>", END], declared("</s>"), "</s>", "</s>"),
    ([TURN, END], declared(TURN, source="{{ messages }}" + TURN), TURN, END),
    ([TURN, END], declared(TURN, source="{{ messages }}{{ eos_token }}"), TURN, END),
    ([TURN, END], declared(TURN, stops=(TURN, END)), TURN, END),
    ([TURN, END], {"chat": ChatTemplates({}, {"pad_token": END})}, None, END),
    (["<|end|>"], {}, None, "has none, and its eos is not declared; choose"),
    (["</s>", END], {}, None, f"has '{END}' and '</s>', and its eos is not declared"),
    ([TURN, END], declared(TURN), TURN, f"has '{END}', and its eos is '{TURN}'"),
    (["<e>"], declared("<e>"), "<e>", "has none, and its eos is '<e>'"),
    (["[SEP]", END], {"suffix_ids": (256,)}, "[SEP]", f"has '{END}', and its eos is '[SEP]'"),
]


@pytest.mark.parametrize(("names", "how", "eos", "end"), EOS_AND_DOCUMENT_END)
def test_eos_and_document_end_are_two_roles(names, how, eos, end):
    tokenizer = Tokenizer.from_spec(replace(TokenizerSpec.from_merges(BYTES, [], names), **how))
    assert find_eos_token(tokenizer.spec) == eos
    if end in names:
        assert tokenizer.eot_token == tokenizer.special_tokens[end]
        return
    with pytest.raises(LookupError, match=re.escape(end)):
        _ = tokenizer.eot_token


PIECE_MERGES = [(b"<", b"&"), (b"<&", b">"), (b"\xe6", b"\x9d"), (b"l", b"o")]
PIECE_VOCAB = BYTES | {256 + i: left + right for i, (left, right) in enumerate(PIECE_MERGES)}
SHOWN = Tokenizer(PIECE_VOCAB, PIECE_MERGES, ["<|end|>"])


@pytest.mark.parametrize("text", ["", "low", "<b>&amp;\"'\n 東京\t👩\u200d👩<|end|>", "<|end|>"])
def test_the_bytes_of_the_pieces_are_the_text(text):
    pieces = SHOWN.pieces(text)
    assert b"".join(token for _, token in pieces) == text.encode()
    assert [id_ for id_, _ in pieces] == pieces.ids == SHOWN.encode(text)
    assert len(pieces) == len(pieces.ids)
    assert SHOWN.pieces(text, allowed_special="none").ids == SHOWN.encode_ordinary(text)


def shown(markup):
    """What a browser shows, after a check that the text added no element and no attribute."""
    assert set(re.findall(r"</?(\w+)", markup)) <= {"code", "div", "span"}
    assert set(re.findall(r"""\s([\w-]+)=["']""", markup)) <= {"style", "title"}
    return [html.unescape(text) for text in re.findall(r">([^<]*)<", markup) if text]


def test_markup_in_a_text_is_shown_and_never_run():
    text = "<script>alert('x')</script>b<&>&lt;\n東<|end|>"
    tokenizer = Tokenizer(PIECE_VOCAB, PIECE_MERGES, ["<|end|>", '<i onclick="x">'])
    markup = tokenizer.pieces(text + '<i onclick="x">')._repr_html_()
    *texts, summary = shown(markup)
    assert "".join(texts).replace("⏎", "").startswith("<script>alert('x')</script>b<&>&lt;\n")
    assert texts[-4:] == ["e6 9d", "b1", "<|end|>", '<i onclick="x">']
    assert 'title="257: b&#x27;&lt;&amp;&gt;&#x27;"' in markup
    assert summary == "38 tokens, 61 bytes"


def test_a_long_text_is_shown_in_part():
    *pieces, more, _ = shown(SHOWN.pieces("ab" * MAX_SHOWN)._repr_html_())
    assert len(pieces) == MAX_SHOWN
    assert more.startswith(f" … and {MAX_SHOWN:,} more")
    assert repr(SHOWN.pieces("ab" * 99)).endswith("'b', ...>")
    title, *pieces, _ = shown(SHOWN._repr_html_())
    assert (title, pieces[-1]) == (repr(SHOWN), "<|end|>")
    spec = TokenizerSpec.from_merges(PIECE_VOCAB, PIECE_MERGES, normalizer="prefix-space")
    assert list(Tokenizer.from_spec(spec).pieces("lo")) == [(32, b" "), (259, b"lo")]


STARTER = "51b920339bb2a732b799ab854f392b501edea3f31e29c13ca34853d5713c02f6"
GPT2 = "9d39b78957bce1d53289e6164c8adbf8c196b916bce5a9d5cdbc5cf011c4ad8a"
HARMONY = "e98d13742dea156bbcd9cc065607332f0e522b8e80db4817ca74caa5a7d8d774"


def test_small_specs_and_committed_artifacts_have_their_fingerprints():
    """If one changed, every manifest with it would be refused."""
    ranks = {token: id_ for id_, token in BYTES.items()}
    specs = [
        TokenizerSpec.from_merges(BYTES, []),
        TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+"),
        TokenizerSpec.from_ranks(ranks, pattern="cl100k"),
    ]
    found = [spec.fingerprint[:12] for spec in specs]
    assert found == ["3aa343a83c9d", "4905c41cc401", "6ee42ed0b8bd"]
    assert "merges: 256 tokens (0 added)" in repr(specs[0])
    store = ArtifactStore(REPOSITORY / "artifacts")
    for name, fingerprint in [("starter", STARTER), ("gpt2", GPT2)]:
        assert store.open(store.resolve(name)).fingerprint == fingerprint


@pytest.mark.shared_data
def test_a_preset_has_its_fingerprint(shared_data):
    """tests/parity has those of the other vocabularies."""
    preset = find_preset("o200k_harmony")
    spec = preset.build_spec((shared_data / "vocab" / preset.file_name).read_bytes())
    assert spec.fingerprint == HARMONY


def test_a_byte_that_only_a_special_token_has_is_missing():
    ranks = {token: id_ for id_, token in BYTES.items() if token != b"1"}
    with pytest.raises(InvalidSpecError, match=r"byte 0x31.*leave out the special token"):
        TokenizerSpec.from_ranks(ranks, {"1": 49}, pattern="gpt2")


@pytest.mark.parametrize("pattern", [r"[a-c[x-z]]+", r"\s+|\S+"])
def test_an_expression_for_ranks_is_read_as_tiktoken_reads_it(pattern):
    ranks = {token: id_ for id_, token in BYTES.items()}
    spec = TokenizerSpec.from_ranks(ranks, pattern=pattern)
    assert spec.pattern == SplitPattern("custom", pattern, "fancy-regex", "drop")
    given = SplitPattern("custom", pattern, "python", "keep")
    assert TokenizerSpec.from_ranks(ranks, pattern=given).pattern == given
    assert TokenizerSpec.from_merges(BYTES, [], pattern=r"\s+|\S+").pattern.dialect == "python"


@pytest.mark.parametrize(("text", "ends"), [("aé", {"byte": 3, "char": 2}), ("", {})])
def test_ids_around_a_text_count_and_are_empty_at_its_ends(engine, text, ends):
    ids = {"prefix_ids": (300,), "suffix_ids": (301, 301)}
    tokens = [AddedToken("<s>", 300), AddedToken("</s>", 301)]
    spec = TokenizerSpec.from_merges(BYTES, [], tokens, **ids)
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    expected = tokenizer.encode(text, add_special_tokens=True)
    assert expected == [300, *text.encode(), 301, 301]
    options = {"add_special_tokens": True}
    assert tokenizer.encode_source(text, Policy(), COUNT, **options) == len(expected)
    for unit in ("byte", "char"):
        inside = tokenizer.encode_with_offsets(text, unit=unit)[1].tolist()
        found, offsets = tokenizer.encode_source_with_offsets(text, Policy(), unit, **options)
        assert found.tolist() == expected
        end = ends.get(unit, 0)
        assert offsets.tolist() == [[0, 0], *inside, [end, end], [end, end]]
    tokenizer = tokenizer.with_chat_templates({"default": "{{ messages[0].content }}"})
    chat = tokenizer.encode_chat([{"role": "user", "content": text}], **options)
    assert (chat.ids.tolist(), chat.message_tokens()) == (expected, [(1, 4)] if text else [None])
