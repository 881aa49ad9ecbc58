"""Truncating and chunking: whole characters, whole special tokens, ids that are the text's own."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.trap_texts import kinds, patterns, seeds, short_trap_texts, tiny_spec
from tokenizer_core import Tokenizer, chunk_text, truncate_text
from tokenizer_core.errors import MaxTokensTooSmallError, SpecialTokenForbiddenError
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.text.streaming import StreamingEncoder
from tokenizer_core.text.truncate_and_chunk import TextChunks

BYTES = {i: bytes([i]) for i in range(256)}
WORDS = "the quick brown fox jumps over the lazy dog, don't we'll 12345   \n\n  naïve "
normalizers = st.sampled_from(["none", "none", "nfc"])
policies = st.sampled_from(["all", "none", ("<|a|>",)])


def word_tokenizer(engine="auto", **options):
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b" ", b"q"), (b" ", b"b"), (b"o", b"x")]
    vocab = BYTES | {256 + i: left + right for i, (left, right) in enumerate(merges)}
    return Tokenizer(vocab, merges, ["<|a|>", "<|a|><|a|>"], engine=engine, **options)


def check_part(tokenizer, text, part, policy):
    assert part.text.encode() == text.encode()[part.start : part.end]
    assert part.ids.dtype == "uint32"
    assert part.ids.tolist() == tokenizer.encode(part.text, allowed_special=policy)


def special_spans(tokenizer, text, policy):
    """The positions of the recognised special tokens of `text`, in bytes."""
    specials = set(tokenizer.spec.special_tokens)
    names = specials if policy == "all" else set() if policy == "none" else set(policy)
    spans, place = [], 0
    for plain, token in matcher_of_strings(frozenset(names)).split(text):
        place += len(plain.encode())
        if token is not None:
            spans.append((place, place + len(token.encode())))
            place = spans[-1][1]
    return spans


def tiny_tokenizer(engine, choices, policy):
    """The tokenizer, and the policy without tokens that it does not have."""
    tokenizer = Tokenizer.from_spec(tiny_spec(*choices), engine=engine)
    names = set(tokenizer.spec.special_tokens)
    return tokenizer, policy if isinstance(policy, str) else set(policy) & names


choices = st.tuples(seeds, kinds, patterns, normalizers)
COMPOSED = (0, "merges", "gpt2", "nfc")


@given(choices, short_trap_texts, st.integers(4, 20), st.integers(0, 40), policies)
@example(COMPOSED, "e\u0323\u0301" * 3, 4, 1, "all")
@example(COMPOSED, "e" + "\u0323\u0301" * 9, 4, 3, "all")
def test_parts_are_within_the_limit_and_chunks_join(
    engine, choices, text, max_tokens, number, policy
):
    tokenizer, policy = tiny_tokenizer(engine, choices, policy)
    spans = special_spans(tokenizer, text, policy)
    fits = tokenizer.count(text, allowed_special=policy) <= number
    for side in ("right", "left"):
        part = truncate_text(tokenizer, text, number, side=side, allowed_special=policy)
        check_part(tokenizer, text, part, policy)
        assert len(part.ids) <= number
        assert text.startswith(part.text) if side == "right" else text.endswith(part.text)
        assert (part.text == text) == fits
        place = part.end if side == "right" else part.start
        assert not any(a < place < b for a, b in spans)
    is_plain = tokenizer.spec.normalizer.name == "none"
    overlap = number % max_tokens
    options = {"overlap_tokens": overlap, "allowed_special": policy}
    try:
        chunks = list(chunk_text(tokenizer, text, max_tokens, **options))
    except MaxTokensTooSmallError:
        assert not is_plain  # else a character has at most four tokens
        return
    encoded, joined = text.encode(), b""
    for part in chunks:
        check_part(tokenizer, text, part, policy)
        assert 1 <= len(part.ids) <= max_tokens
        assert part.start <= len(joined) < part.end
        joined += encoded[len(joined) : part.end]
    assert joined == encoded
    _, offsets = tokenizer.encode_with_offsets(text, allowed_special=policy)
    for one, other in pairwise(chunks):
        assert one.start < other.start
        assert one.end < other.end
        starts, ends = offsets[:, 0], offsets[:, 1]
        repeated = (starts >= other.start) & (ends <= one.end) & (starts < one.end)
        assert repeated.sum() <= overlap
    if is_plain:
        cuts = [place for part in chunks for place in (part.start, part.end)]
        assert not any(a < place < b for a, b in spans for place in cuts)


def test_every_limit_of_an_ordinary_text(engine):
    # Where nothing prevents it the cut is exactly at the limit, and the ids are a prefix of the
    # whole text's: the properties above do not test that.
    tokenizer = word_tokenizer(engine)
    text = WORDS.replace("ï", "i") + "<|a|><|a|><|a|> the end"
    ids = tokenizer.encode(text)
    for limit in range(len(ids) + 2):
        first = truncate_text(tokenizer, text, limit)
        last = truncate_text(tokenizer, text, limit, side="left")
        assert first.ids.tolist() == ids[:limit]
        assert last.ids.tolist() == ids[max(0, len(ids) - limit) :]
        assert (first.start, last.end) == (0, len(text))
    for limit, overlap in ((7, 0), (7, 3), (20, 19), (1000, 1)):
        chunks = TextChunks(tokenizer, text, limit, overlap_tokens=overlap)
        step = limit - overlap
        wanted = [ids[i : i + limit] for i in range(0, max(1, len(ids) - overlap), step)]
        assert [chunk.ids.tolist() for chunk in chunks] == wanted
        assert list(chunks.plan()) == [(part.start, part.end) for part in chunks]
        for other in ("naïve 👩‍👩‍👧 日本語 " * 5, "", "a"):
            chunks = TextChunks(tokenizer, other, limit, overlap_tokens=overlap)
            assert list(chunks.plan()) == [(part.start, part.end) for part in chunks]


def test_a_character_of_several_tokens_is_kept_or_left_whole(engine):
    tokenizer = word_tokenizer(engine)
    text = "a中b👩"
    kept = [truncate_text(tokenizer, text, limit).text for limit in range(10)]
    assert kept == ["", "a", "a", "a", "a中", "a中b", "a中b", "a中b", "a中b", text]
    kept = [truncate_text(tokenizer, text, limit, side="left").text for limit in range(10)]
    assert kept == ["", "", "", "", "👩", "b👩", "b👩", "b👩", "中b👩", text]
    assert [chunk.text for chunk in chunk_text(tokenizer, "a中b", 3)] == ["a", "中", "b"]
    with pytest.raises(MaxTokensTooSmallError) as caught:
        list(chunk_text(tokenizer, "a中b", 2))
    error = caught.value
    assert (error.max_tokens, error.n_tokens, error.byte_offset) == (2, 3, 1)
    assert list(TextChunks(tokenizer, "ab 👩", 3).plan()) == [(0, 3)]


def test_a_shorter_text_with_more_tokens_is_cut_further_back(engine):
    # "'ll" is one pre-token of two tokens, ["'l", "l"]; "'l" alone is split into two.
    merges = [(b"'", b"l")]
    tokenizer = Tokenizer(BYTES | {256: b"'l"}, merges, engine=engine)
    assert tokenizer.encode("a'll") == [97, 256, 108]
    assert tokenizer.encode("a'l") == [97, 39, 108]
    part = truncate_text(tokenizer, "a'll", 2)
    assert (part.text, part.ids.tolist()) == ("a", [97])
    assert [chunk.text for chunk in chunk_text(tokenizer, "a'll", 2)] == ["a", "'ll"]


def test_wrong_arguments_are_refused():
    tokenizer = word_tokenizer()
    for limit, options in ((-1, {}), (1, {"side": "middle"})):
        with pytest.raises(ValueError):
            truncate_text(tokenizer, "a", limit, **options)
    for limit, overlap in ((0, 0), (3, 3), (3, -1)):
        with pytest.raises(ValueError):
            chunk_text(tokenizer, "a", limit, overlap_tokens=overlap)
    forbidding = {"allowed_special": "none", "disallowed_special": "all"}
    with pytest.raises(SpecialTokenForbiddenError):
        truncate_text(tokenizer, "a b c <|a|>", 1, **forbidding)
    with pytest.raises(SpecialTokenForbiddenError):
        chunk_text(tokenizer, "a b c <|a|>", 1, **forbidding)
    assert list(chunk_text(tokenizer, "", 1)) == []


def test_a_long_text_costs_no_more_than_its_beginning_takes(engine, monkeypatch):
    tokenizer = word_tokenizer(engine)
    with monkeypatch.context() as patch:
        patch.setitem(StreamingEncoder.__init__.__kwdefaults__, "max_pending_chars", 100)
        assert truncate_text(tokenizer, "x" * 1000, 300).text == "x" * 300
    fed = []

    def count_windows(self, windows, **options):
        del self
        return (id_ for text in windows for id_ in fed.append(text) or [1] * len(text))

    monkeypatch.setattr(Tokenizer, "encode_iterable", count_windows)
    truncate_text(tokenizer, "a " * 500_000, 10)
    assert sum(map(len, fed)) <= 1 << 14


def test_few_parts_are_tried(monkeypatch):
    # A text whose every shorter form has too many tokens must not be encoded once for each form.
    tokenizer = word_tokenizer("python")
    tried = []
    encode = Tokenizer.encode_to_numpy

    def grow(self, text, **options):
        tried.append(len(text))
        ids = encode(self, text, **options)
        return ids if len(text) < 10 else ids.repeat(5)

    monkeypatch.setattr(Tokenizer, "encode_to_numpy", grow)
    part = truncate_text(tokenizer, "x" * 3000, 1000)
    assert 0 < len(part.text) < 10
    assert len(tried) < 14
