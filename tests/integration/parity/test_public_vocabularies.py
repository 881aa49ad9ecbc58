"""Our ids equal tiktoken's and Hugging Face's, on real text and on text made to differ."""

import random

import pytest

from tests.adversarial import every_code_point_in_context
from tests.integration.parity.references import check_samples, first_difference, load_pair
from tests.parity.vocabularies import CORPORA, NAMES, OPEN_FILES, RANK_FILES, read_sample
from tokenizer_core import StreamingEncoder
from tokenizer_core.normalizers.forms import normalize_nfc

pytestmark = pytest.mark.shared_data

ALL_NAMES = [*NAMES, *OPEN_FILES]
# The Python engine encodes one vocabulary of each kind.
CASES = [
    *((name, "native") for name in ALL_NAMES),
    *((name, "python") for name in ("cl100k", "qwen3", "tekken", "llama2", "smollm")),
]


@pytest.fixture
def pair(name, engine, shared_data):
    """The vocabulary here and in its library."""
    return load_pair(shared_data, name, engine)


@pytest.mark.parametrize(("name", "engine"), CASES)
def test_ids_equal_the_references(engine, pair, shared_data):
    check_samples(pair, shared_data, 60_000 if engine == "native" else 10_000)


def whole_corpora():
    """Each pair of a vocabulary and a corpus; all but one vocabulary a corpus are slow.

    tiktoken encodes a megabyte in a fraction of a second, Hugging Face's library in ten.
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
    assert first_difference(stream(ours, cut_at_random(text, name)), expected) == ""
    assert ours.count(text) == len(expected)
    if name in NAMES:
        original = normalize_nfc(text) if ours.spec.normalizer.name == "nfc" else text
        assert ours.decode_bytes(expected) == original.encode()
    start = random.Random(name).randrange(max(1, len(text) - 300_000))
    sample = text[start : start + 300_000]
    python = load_pair(shared_data, name, "python").ours
    assert first_difference(ours.encode(sample), python.encode(sample)) == ""


def stream(tokenizer, pieces):
    encoder = StreamingEncoder(tokenizer)
    ids = [id_ for piece in pieces for id_ in encoder.feed(piece)] + encoder.finish()
    assert encoder.bytes_settled == len("".join(pieces).encode())
    return ids


def cut_at_random(text, seed):
    cuts = sorted(random.Random(seed).sample(range(1, len(text)), 200))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_every_code_point_splits_as_in_the_reference(name, engine, pair):
    for text in every_code_point_in_context():
        assert first_difference(pair.ours.encode(text), pair.encode(text)) == "", repr(text[:40])
