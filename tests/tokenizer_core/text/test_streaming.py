"""Streams: the same ids for every cut, in bounded memory and linear time."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adversarial import _FRAGMENTS
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.errors import PreTokenTooLongError, SpecialTokenForbiddenError
from tokenizer_core.normalizers import nfc
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.text import streaming

BYTES = {i: bytes([i]) for i in range(256)}
MERGES = [(b" ", b" "), (b"\n", b"\n"), (b"a", b"b"), (b"l", b"l"), (b"'", b"ll"), (b"0", b"1")]
VOCAB = BYTES | {256 + i: a + b for i, (a, b) in enumerate(MERGES)}
pieces = st.lists(st.lists(st.sampled_from(_FRAGMENTS), max_size=6).map("".join), max_size=8)


def tokenizer_of(pattern, normalizer="none", engine="auto"):
    specials = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<|end|>"]
    spec = TokenizerSpec.from_merges(
        VOCAB, MERGES, specials, pattern=pattern, normalizer=normalizer
    )
    return Tokenizer.from_spec(spec, engine=engine)


FORMS = [*((name, "none") for name in PATTERNS), ("gpt2", "prefix-space"), ("qwen2", "nfc")]
TOKENIZERS = [tokenizer_of(*form) for form in FORMS]


@pytest.fixture(scope="module", params=[streaming.LONG_CHARS, 1], ids=["", "cut even if short"])
def long_chars(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "LONG_CHARS", request.param)
        yield


@pytest.fixture(scope="module", params=FORMS, ids=" ".join)
def tokenizer(request, engine, long_chars):
    return tokenizer_of(*request.param, engine)


@given(pieces=pieces)
def test_ids_joined_equal_one_shot(tokenizer, pieces):
    stream = StreamingEncoder(tokenizer)
    ids = []
    data = "".join(pieces).encode()
    for piece in pieces:
        ids += stream.feed(piece)
        prefix = data[: stream.bytes_settled]
        if tokenizer.spec.normalizer.name == "none":
            assert tokenizer.decode_bytes(ids) == prefix
        elif tokenizer.spec.normalizer.name == "nfc":
            normalized = tokenizer.decode_bytes(ids)
            assert normalized.startswith(normalize_nfc(prefix.decode("utf-8", "ignore")).encode())
    ids += stream.finish()
    assert ids == tokenizer.encode("".join(pieces))
    assert stream.bytes_settled == len(data)


def test_ids_come_out_as_soon_as_they_are_settled(monkeypatch):
    monkeypatch.setattr(streaming, "LONG_CHARS", 100)  # `long_chars` may be set up still
    tokenizer = TOKENIZERS[0]
    stream = StreamingEncoder(tokenizer)
    assert tokenizer.decode(stream.feed("one two three ")) == "one two"
    assert tokenizer.decode(stream.feed("<|end|>")) == " three <|end|>"


def test_the_encode_iterable_is_lazy_and_holds_little_memory():
    tokenizer = TOKENIZERS[0]
    n_taken = 0

    def lines():
        nonlocal n_taken
        for _ in range(3_000):
            n_taken += 1
            yield "a word of the line " * 4 + "\n"

    ids = tokenizer.encode_iterable(lines())
    next(ids)
    assert n_taken < 1_500
    n_tokens = 1 + sum(1 for _ in ids)
    tracemalloc.start()
    try:
        assert sum(1 for _ in tokenizer.encode_iterable(lines())) == n_tokens
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_tokens > 200_000
    assert peak < 1_000_000


@pytest.mark.row(15)
def test_a_stream_that_ended_takes_nothing_more():
    finished = StreamingEncoder(TOKENIZERS[0])
    finished.finish()
    too_long = StreamingEncoder(TOKENIZERS[0], max_pending_chars=1000)
    too_long.feed("x" * 900)
    with pytest.raises(PreTokenTooLongError, match="1000"):
        too_long.feed("x" * 700)
    forbidden = StreamingEncoder(TOKENIZERS[0], allowed_special="none", disallowed_special="all")
    forbidden.feed("before <|")
    forbidden.feed("endo")
    with pytest.raises(SpecialTokenForbiddenError):
        forbidden.feed("ftext|> b")
    for stream in (finished, too_long, forbidden):
        with pytest.raises(ValueError, match="finished, or an error ended it"):
            stream.feed("x")
        with pytest.raises(ValueError, match="finished, or an error ended it"):
            stream.finish()


@pytest.mark.thorough
@pytest.mark.row(10, 15)
@pytest.mark.parametrize("unit", ["a", " ", "中", "\u0301"])
@pytest.mark.parametrize("tokenizer", [FORMS[0], FORMS[-1]], ids=" ".join, indirect=True)
def test_work_on_small_pieces_of_a_long_pre_token_is_linear(tokenizer, unit, monkeypatch):
    # Counted, not timed: the number of characters that the look-ahead stages read.
    looked_at = 0

    def counted(function):
        def look(text, *args):
            nonlocal looked_at
            looked_at += len(text)
            return function(text, *args)

        return look

    monkeypatch.setattr(streaming, "split_settled", counted(streaming.split_settled))
    monkeypatch.setattr(nfc, "settled_length", counted(nfc.settled_length))
    stream = StreamingEncoder(tokenizer)
    for _ in range(10_000):
        stream.feed(unit)
    assert stream.feed(unit * 100_000) == []
    assert looked_at < 8 * 110_000
    assert len(tokenizer.decode(stream.finish())) == 110_000
