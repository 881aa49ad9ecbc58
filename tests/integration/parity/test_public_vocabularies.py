"""Our ids equal tiktoken's and Hugging Face's, on real text and on text made to differ."""

import random
from collections.abc import Iterator

import pytest

from tests.adversarial import (
    adversarial_texts,
    class_borders_in_context,
    every_code_point_in_context,
)
from tests.integration.parity.references import first_difference, load_pair
from tests.parity.vocabularies import CORPORA, NAMES, OPEN_FILES, RANK_FILES, read_sample
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.normalize import normalize_nfc
from tokenizer_core.spec import AddedToken

pytestmark = pytest.mark.shared_data

ALL_NAMES = [*NAMES, *OPEN_FILES]
# The Python engine encodes one vocabulary of each kind.
CASES = [
    *((name, "native") for name in ALL_NAMES),
    *((name, "python") for name in ("cl100k", "qwen3", "tekken", "llama2", "smollm")),
]
every_case = pytest.mark.parametrize(("name", "engine"), CASES)


@pytest.fixture
def pair(name, engine, shared_data):
    """The vocabulary here and in its library."""
    return load_pair(shared_data, name, engine)


@every_case
def test_ids_equal_the_references(name, engine, pair, shared_data):
    # The digests of tests/parity are of the beginning of each corpus.
    n_bytes = 60_000 if engine == "native" else 10_000
    for corpus in CORPORA:
        path = shared_data / "corpora" / f"{corpus}.txt"
        text = read_sample(path, n_bytes, max(0, path.stat().st_size - n_bytes))
        ours = pair.ours.encode(text)
        assert first_difference(ours, pair.encode_long(text).tolist()) == "", corpus
        if pair.ours.spec.normalizer == "none":
            assert pair.ours.decode_bytes(ours) == text.encode()
    for text in adversarial_texts():
        assert pair.ours.encode(text) == pair.encode(text), repr(text[:80])
        if pair.encode_ordinary:
            assert pair.ours.encode_ordinary(text) == pair.encode_ordinary(text), repr(text[:80])


def whole_corpora() -> Iterator[object]:
    """Each pair of a vocabulary and a corpus; all but one vocabulary a corpus are slow.

    tiktoken encodes a megabyte in a fraction of a second, Hugging Face's library in ten. English
    has the two largest corpora, and the least of special cases.
    """
    for i, corpus in enumerate(CORPORA):
        chosen = list(RANK_FILES)[i % len(RANK_FILES)] if not corpus.startswith("en_") else ""
        for name in ALL_NAMES:
            marks = [] if name == chosen else [pytest.mark.slow, pytest.mark.timeout(0)]
            yield pytest.param(name, "native", corpus, marks=marks)


@pytest.mark.parametrize(("name", "engine", "corpus"), whole_corpora())
def test_ids_of_a_whole_corpus(name, engine, corpus, pair, shared_data):
    path = shared_data / "corpora" / f"{corpus}.txt"
    text = read_sample(path, path.stat().st_size if name in NAMES else 1_000_000)
    ours, expected = pair.ours, pair.encode_long(text)
    for num_threads in (None, 2, 3):
        ids = ours.encode_to_numpy(text, num_threads=num_threads)
        assert first_difference(ids, expected) == "", num_threads
    assert first_difference(stream(ours, *cut_at_random(text, name)), expected) == ""
    assert ours.count(text) == len(expected)
    if name in NAMES:
        original = normalize_nfc(text) if ours.spec.normalizer == "nfc" else text
        assert ours.decode_bytes(expected) == original.encode()
    start = random.Random(name).randrange(max(1, len(text) - 300_000))
    sample = text[start : start + 300_000]
    python = load_pair(shared_data, name, "python").ours
    assert first_difference(ours.encode(sample), python.encode(sample)) == ""


def cut_at_random(text: str, seed: str) -> list[str]:
    cuts = sorted(random.Random(seed).sample(range(1, len(text)), 200))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def texts_around_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Added tokens, those with flags first, between all that their flags may look at."""
    rng = random.Random(24)
    contents = [token.content for token in sorted(tokenizer.spec.added_tokens, key=by_flags)]
    between = ["", " ", "  ", "\n", "\t \r\n", "\u3000", "\x85", "\x1c", "a", "word 12", "\u0301"]
    for n_parts in range(1, 9):
        some = rng.choices(contents[:4] + contents[-4:], k=n_parts)
        yield "".join(rng.choice(between) + content + rng.choice(between) for content in some)


def by_flags(token: AddedToken) -> bool:
    return token.flags in ([], ["normalized"])


@every_case
def test_added_tokens_are_found_as_in_the_reference(name, engine, pair):
    for text in texts_around_added_tokens(pair.ours):
        expected = pair.encode(text)
        assert pair.ours.encode(text) == expected, repr(text)
        for cut in range(1, len(text)):
            assert stream(pair.ours, text[:cut], text[cut:]) == expected, (repr(text), cut)


@pytest.mark.parametrize("engine", ["native"])
@pytest.mark.parametrize("name", OPEN_FILES)
def test_code_points_at_class_borders_split_as_in_the_reference(name, engine, pair):
    for text in class_borders_in_context():
        assert first_difference(pair.ours.encode(text), pair.encode(text)) == "", repr(text[:40])


@pytest.mark.slow
@every_case
def test_every_code_point_splits_as_in_the_reference(name, engine, pair):
    for text in every_code_point_in_context():
        assert first_difference(pair.ours.encode(text), pair.encode(text)) == "", repr(text[:40])


def stream(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    encoder = StreamingEncoder(tokenizer)
    ids = [id_ for piece in pieces for id_ in encoder.feed(piece)] + encoder.finish()
    assert encoder.bytes_settled == len("".join(pieces).encode())
    return ids


@every_case
def test_streaming_equals_one_shot(name, engine, pair, shared_data):
    corpus = CORPORA[CASES.index((name, engine)) % len(CORPORA)]
    text = read_sample(shared_data / "corpora" / f"{corpus}.txt", 60_000)
    assert stream(pair.ours, *cut_at_random(text, name)) == pair.ours.encode(text)
    for text in adversarial_texts(longest=60, n_random=40):
        whole = pair.ours.encode(text)
        for cut in range(1, len(text)):
            assert stream(pair.ours, text[:cut], text[cut:]) == whole, (repr(text), cut)
        assert stream(pair.ours, *text) == whole, repr(text)
