"""The Tokenizer's public surface: all forms of encoding and decoding agree."""

import copy
import multiprocessing
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizer_core
from tests.adversarial import _FRAGMENTS, adversarial_texts
from tests.conftest import REPOSITORY
from tests.tokenizer_core.every_way import SHAPES, check_every_way, check_stream
from tokenizer_core import StreamingEncoder, Tokenizer, TokenizerSpec, reference, truncate_text
from tokenizer_core.errors import (
    FormatError,
    InvalidSpecError,
    SpecialTokenForbiddenError,
    UnknownPatternError,
    UnknownTokenIdError,
)
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.normalize import normalize_nfc
from tokenizer_core.spec import AddedToken

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [
    (b" ", b"t"), (b"h", b"e"), (b" t", b"he"), (b"l", b"l"), (b"'", b"ll"), (b"\xe4", b"\xb8"),
    (b"\xe4\xb8", b"\xad"), (b" ", b" "), (b"\n", b"\n"), (b"a", b"a"), (b"aa", b"a"),
]  # fmt: skip
VOCAB = BYTES | {256 + i: a + b for i, (a, b) in enumerate(MERGES)}
SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<|end|>"]
TEXTS = adversarial_texts(n_random=80, seed=3)
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


@given(mixed_text)
def test_encode_equals_bpe_by_definition(tokenizer, text):
    ids = tokenizer.encode_ordinary(text)
    assert ids == reference.encode(text, VOCAB, MERGES)
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(mixed_text)
def test_every_form_gives_the_same_ids(tokenizer, nfc, text):
    for each in (tokenizer, nfc):
        check_every_way(each, [text, text], [each.encode(text)] * 2)


@given(mixed_text)
def test_offsets_of_bytes_and_characters(tokenizer, text):
    ids, in_bytes = tokenizer.encode_with_offsets(text)
    data = text.encode()
    assert (in_bytes.shape, in_bytes.dtype) == ((len(ids), 2), np.uint64)
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


def test_offsets_of_nothing(tokenizer):
    ids, offsets = tokenizer.encode_with_offsets("")
    assert ids == []
    assert offsets.shape == (0, 2)
    with pytest.raises(ValueError, match="unit"):
        tokenizer.encode_with_offsets("a", unit="word")


def test_special_tokens_by_policy(engine):
    tokenizer = Tokenizer(BYTES, [], ["<|a|>", "<|a|><|a|>", "<|b|>"], engine=engine)
    assert tokenizer.encode("<|a|><|a|><|a|>") == [257, 256]
    plain = tokenizer.encode_ordinary("<|a|>")
    assert plain == list(b"<|a|>")
    assert tokenizer.encode("<|a|>", allowed_special="none") == plain
    assert tokenizer.encode("<|a|>", allowed_special={"<|b|>"}) == plain
    calls = [
        tokenizer.encode,
        tokenizer.encode_to_numpy,
        tokenizer.encode_to_json,
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


def test_added_tokens_that_are_content_are_always_matched_and_never_skipped():
    spec = TokenizerSpec.from_merges(
        VOCAB, MERGES, [AddedToken("<s>", 300), AddedToken("<think>", 301, special=False)]
    )
    tokenizer = Tokenizer.from_spec(spec)
    assert tokenizer.encode("<s><think>", allowed_special="none")[-1] == 301
    assert tokenizer.decode([300, 301, 97], skip_special_tokens=True) == "<think>a"
    assert 301 not in tokenizer.encode_ordinary("<think>")


def test_the_post_processor_is_applied_only_when_asked():
    spec = TokenizerSpec.from_merges(
        VOCAB, MERGES, [AddedToken("<s>", 300), AddedToken("</s>", 301)],
        prefix_ids=(300,), suffix_ids=(301,),
    )  # fmt: skip
    tokenizer = Tokenizer.from_spec(spec)
    assert tokenizer.encode("a") == [97]
    assert tokenizer.encode("a", add_special_tokens=True) == [300, 97, 301]
    assert tokenizer.encode_to_numpy("a", add_special_tokens=True).tolist() == [300, 97, 301]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.uint32, np.int64])
def test_decode_takes_lists_and_arrays(tokenizer, dtype):
    ids = tokenizer.encode("the cat's hat")
    assert tokenizer.decode(np.array(ids, dtype=dtype)) == tokenizer.decode(tuple(ids))
    with pytest.raises(TypeError, match="integers"):
        tokenizer.decode(np.array([1.0, 2.0]))


def test_decode_of_bytes_that_are_no_text(tokenizer):
    assert tokenizer.decode([0xFF, 97]) == "\ufffda"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode([0xFF, 97], errors="strict")
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 99999"):
        tokenizer.decode([97, 99999])


NO_TEXTS = [
    *((text, UnicodeEncodeError) for text in ("a\ud800b", "\u1100\ud800", "x<e>y<e>\xe9\ud800e")),
    (b"a", TypeError),
    (None, TypeError),
]


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
        one.encode_to_json,
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
            elif engine == "python" and call in calls[:8]:
                assert f"must be a str, not {type(text).__name__}" in str(caught.value)
    assert ids + stream.feed("gether") + stream.finish() == one.encode("together")


def test_count_with_a_limit(tokenizer):
    text = "word " * 1000 + "<|end|>"
    full = tokenizer.count(text)
    assert tokenizer.count(text, limit=full) == full
    assert tokenizer.count(text, limit=10) > 10
    for limit in (10**20, np.int64(full)):
        assert tokenizer.count(text, limit=limit) == full
    assert tokenizer.count("", limit=-1) == 0
    assert tokenizer.count("a", limit=-1) == 1
    with pytest.raises(TypeError):
        tokenizer.count(text, limit=1.5)


@pytest.mark.thorough
def test_long_texts_go_through_windows_without_a_seam(tokenizer):
    text = ("".join(TEXTS) * 40)[:140_000]
    assert len(text) > 2 * (1 << 16)
    assert tokenizer.encode_ordinary(text) == reference.encode(text, VOCAB, MERGES)


class Subclass(Tokenizer):
    """Of a user; copies are of it, too."""


def test_copies_are_equal_and_of_the_same_class(tokenizer):
    one = Subclass.from_spec(tokenizer.spec)
    for copied in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert type(copied) is Subclass
        assert copied == one
        assert copied.spec.fingerprint == tokenizer.spec.fingerprint
        assert copied.encode("the <|end|>") == tokenizer.encode("the <|end|>")


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_it_works_in_forked_and_spawned_processes(tokenizer, method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(tokenizer.encode, ["the the"]) == [tokenizer.encode("the the")]


def test_threads_share_it(tokenizer):
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait()
        return [tokenizer.encode(text) for text in TEXTS]

    expected = [tokenizer.encode(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        assert all(result == expected for result in pool.map(work, range(4)))


class Changing:
    """Changes a list when it is read, as another thread may, and is no id."""

    def __init__(self, ids, rest):
        self.ids, self.rest = ids, rest

    def __index__(self):
        self.ids[:] = self.rest
        raise TypeError


@pytest.mark.parametrize("rest", [[], [97], ["a"], [97, True]])
def test_a_list_that_another_thread_changes_gives_its_text_or_names_an_element(tokenizer, rest):
    ids = [97, 98]
    ids[1] = Changing(ids, rest)
    try:
        text = tokenizer.decode(ids)
    except TypeError as error:  # of the list before or after the change; either is right
        assert (str(error)[:6], rest) in [("ids[1]", rest), ("ids[0]", ["a"])]  # noqa: PT017
    else:
        assert text == tokenizer.decode(rest)


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
        assert tokenizer.encode_to_numpy("<|reserved|>a").tolist() == [300, 97]
        assert tokenizer.encode_batch(["<|end|>", "<|reserved|>"]) == [[300], [300]]
        assert tokenizer.encode("<|reserved|>", allowed_special={"<|end|>"})[0] == ord("<")
        assert tokenizer.decode([300, 97]) == "<|end|>a"
        assert tokenizer.decode([300, 97], skip_special_tokens=True) == "a"
        _, offsets = tokenizer.encode_with_offsets("<|reserved|>a")
        assert offsets.tolist() == [[0, 12], [12, 13]]
        check_stream(tokenizer, ["b<|rese", "rved|>", "a<|end", "|>"], [98, 300, 97, 300])
        assert build_spec(render_spec_fields(spec), spec.vocab, spec.merges) == spec


@pytest.mark.parametrize(
    ("vocab", "merges", "specials", "message"),
    [
        ({}, [], [], "no token for 243"),
        ({**BYTES, -1: b"x"}, [], [], "not an integer in"),
        ({**BYTES, 1 << 20: b"x"}, [], [], "not an integer in"),
        ({**BYTES, True: b"x"}, [], [], "no token for 1 of|not an integer"),
        ({**BYTES, 256: "x"}, [], [], "bytes"),
        ({**BYTES, 256: b""}, [(b"", b"a")], [], "needs the token b''"),
        ({i: b for i, b in BYTES.items() if i != 7}, [], [], "0x07"),
        (BYTES, [(b"a", b"b")], [], "another vocabulary"),
        ({**BYTES, 256: b"ab"}, [(b"a", b"b")] * 2, [], "twice"),
        (BYTES, [], [""], "empty"),
        (BYTES, [], "<s>", "list of strings"),
        (BYTES, [], [b"<s>"], "must be a string"),
        (BYTES, [], ["<\ud800>"], "surrogate"),
        (BYTES, [], ["x" * 2000], "shorter"),
        (BYTES, [(b"a",)], [], "pair"),
        (BYTES, ["ab"], [], "pair"),
        (BYTES, [], ["<a>", "<a>"], "twice"),
        (BYTES, [], [AddedToken("<a>", 97)], "belongs to b'a'"),
        (BYTES, [], [AddedToken("<a>", 300), AddedToken("<b>", 300, False)], "make both the same"),
    ],
)
def test_what_is_no_tokenizer_is_refused(vocab, merges, specials, message):
    with pytest.raises(InvalidSpecError, match=message):
        Tokenizer(vocab, merges, specials)


def test_a_special_token_that_is_a_rank_is_refused():
    ranks = {bytes([i]): i for i in range(256)} | {b"th": 256}
    with pytest.raises(InvalidSpecError, match="'th' is a rank"):
        TokenizerSpec.from_ranks(ranks, {"th": 256}, pattern="gpt2")


def test_the_table_of_a_rank_file_is_what_the_vocabulary_says():
    ranks = {token: id_ for id_, token in reversed(VOCAB.items())} | {b"gap": 999}
    spec = TokenizerSpec.from_ranks(ranks, {"<|end|>": 500, "<|x|>": 2000}, pattern="gpt2")
    copied = pickle.loads(pickle.dumps(spec))  # omits derived fields
    assert spec.token_to_id == copied.token_to_id == ranks
    assert spec.fingerprint == copied.fingerprint


def test_pickles_of_another_pattern_are_refused_and_those_of_gpt2_come_back(tokenizer, tmp_path):
    files = tmp_path / "vocab.pkl", tmp_path / "merges.pkl"
    with pytest.raises(FormatError, match="o200k"):
        Tokenizer(VOCAB, MERGES, SPECIALS, pattern="o200k").save_files(*files)
    tokenizer.save_files(*files)
    again = Tokenizer.from_files(*files, SPECIALS)
    assert again.spec == tokenizer.spec


@pytest.mark.shared_data
def test_the_real_gpt2_files_load_and_give_its_ids(shared_data):
    files = shared_data / "cs336" / "gpt2_vocab.json", shared_data / "cs336" / "gpt2_merges.txt"
    tokenizer = Tokenizer.from_files(*files, ["<|endoftext|>"])
    packaged = Tokenizer.from_preset("gpt2")
    assert tokenizer.spec.vocab == packaged.spec.vocab
    for name in ("address.txt", "german.txt", "special_token_trailing_newlines.txt"):
        text = (shared_data / "cs336" / name).read_text(encoding="utf-8")
        ids = tokenizer.encode(text)
        assert ids == packaged.encode(text), name
        assert tokenizer.decode(ids) == text


def test_an_unknown_pattern_or_engine_is_refused_by_name(engine, monkeypatch):
    with pytest.raises(UnknownPatternError, match=r"'gpt5'.*gpt2"):
        Tokenizer(VOCAB, MERGES, pattern="gpt5")
    with pytest.raises(UnknownPatternError, match="compile"):
        Tokenizer(VOCAB, MERGES, pattern="(unclosed")
    with pytest.raises(ValueError, match="'rust'"):
        Tokenizer(VOCAB, MERGES, engine="rust")
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)
    assert Tokenizer(VOCAB, MERGES).engine_name == engine
    assert Tokenizer(VOCAB, MERGES, engine="python").engine_name == "python"


def test_everything_that_decides_an_id_changes_the_fingerprint():
    base = TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS)
    others = [
        TokenizerSpec.from_merges(VOCAB, MERGES[:-1], SPECIALS),
        TokenizerSpec.from_merges(VOCAB, [MERGES[1], MERGES[0], *MERGES[2:]], SPECIALS),
        TokenizerSpec.from_merges(VOCAB | {999: b"zzz"}, MERGES, SPECIALS[:0]),
        TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS[:2]),
        TokenizerSpec.from_merges(VOCAB, MERGES, [AddedToken(SPECIALS[0], 267, special=False)]),
        *(
            TokenizerSpec.from_merges(VOCAB, MERGES, SPECIALS, **option)
            for option in (
                {"pattern": "cl100k"},
                {"ignore_merges": True},
                {"normalizer": "nfc"},
                {"prefix_ids": (5,)},
                {"suffix_ids": (5,)},
            )
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
    shown = [name for name in dir(Tokenizer(BYTES, [])) if not name.startswith("__")]
    assert shown == sorted(methods)
    assert tokenizer_core.__version__ == version("tokenizer-service")
    assert "__version__" in dir(tokenizer_core)


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
    assert tokenizer.token_to_id(" the") == 256
    for absent in ("Ġthe", " thee", b"\xb8\xe4"):
        assert tokenizer.token_to_id(absent) is None
    assert [tokenizer.id_to_token(id_) for id_ in (259, 265, -1)] == [None] * 3
    batch = [[256, 97], np.array([264, 98]), []]
    assert tokenizer.decode_batch(batch) == [" thea", "<|endoftext|>b", ""]
    assert tokenizer.decode_batch(batch[1:2], skip_special_tokens=True) == ["b"]
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode_batch([[260]], "strict")


def test_the_end_of_a_text_is_named_or_refused():
    for names, expected in [
        (["</s>", "<|end_of_text|>"], "<|end_of_text|>"),
        (["</s>"], "</s>"),
        (["<｜end▁of▁sentence｜>"], "<｜end▁of▁sentence｜>"),
    ]:
        tokenizer = Tokenizer(BYTES, [], names)
        assert tokenizer.eot_token == tokenizer.special_tokens[expected]
    with pytest.raises(LookupError, match=r"token_to_id: '<\|im_end\|>'$"):
        _ = Tokenizer(BYTES, [], ["<|im_end|>"]).eot_token
    with pytest.raises(LookupError, match=r"token_to_id: none$"):
        _ = Tokenizer(BYTES, []).eot_token


def test_tokenizers_are_equal_by_what_decides_an_id(tokenizer, nfc):
    again = pickle.loads(pickle.dumps(tokenizer))
    other_engine = Tokenizer.from_spec(tokenizer.spec, engine="python")
    assert tokenizer == again == other_engine
    assert len({tokenizer, again, other_engine, nfc}) == 2
    assert tokenizer != nfc
    assert tokenizer != tokenizer.spec
