"""Our ids equal tiktoken's and Hugging Face's, on real text and on text made to differ."""

import random
from collections.abc import Iterator

import pytest

from tests.adversarial import (
    adversarial_texts,
    class_borders_in_context,
    every_code_point_in_context,
)
from tests.integration.parity.references import first_difference
from tests.parity.vocabularies import CORPORA, NAMES, OPEN_FILES, read_sample
from tests.profiles import first_and_slow
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.spec import AddedToken

ALL_NAMES = [*NAMES, *OPEN_FILES]
# `make parity-full` compares whole corpora.
SAMPLE_BYTES = 1_000_000
# The Python engine encodes this much of each pair in the quick suite, and 200 kB of the others:
# these two vocabularies use most of its special cases, and it encodes a few megabytes a second.
QUICK_BYTES = {"gpt2": SAMPLE_BYTES, "cl100k": SAMPLE_BYTES}
# These split and normalize as gpt2 or gpt_neox, so that more text tries nothing more: the library
# takes 10 s of a processor for each vocabulary and megabyte.
SAME_SPLIT_BYTES = 500_000
SAME_SPLIT = {"gpt2_json", "whisper", "phi2", "roberta", "modernbert"}


@pytest.mark.shared_data
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", ALL_NAMES)
def test_ids_of_a_corpus_equal_the_references(name, corpus, pairs, shared_data):
    pair = pairs(name)
    n_bytes = SAME_SPLIT_BYTES if name in SAME_SPLIT else SAMPLE_BYTES
    if pair.ours.engine_name == "python":
        n_bytes = QUICK_BYTES.get(name, 200_000)
    text = read_sample(shared_data / "corpora" / f"{corpus}.txt", n_bytes)
    ours = pair.ours.encode(text)
    assert first_difference(ours, pair.encode_long(text).tolist()) == ""
    if pair.ours.spec.normalizer == "none":
        assert pair.ours.decode_bytes(ours) == text.encode()


@pytest.mark.shared_data
@pytest.mark.parametrize("corpus", first_and_slow(CORPORA))
@pytest.mark.parametrize("name", first_and_slow(ALL_NAMES))
def test_ids_of_another_place_equal_the_references(name, corpus, pairs, shared_data):
    path = shared_data / "corpora" / f"{corpus}.txt"
    offset = max(0, path.stat().st_size - SAMPLE_BYTES)
    text = read_sample(path, SAMPLE_BYTES, offset)
    assert first_difference(pairs(name).ours.encode(text), pairs(name).encode(text)) == ""


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ALL_NAMES)
def test_ids_of_adversarial_texts_equal_the_references(name, pairs):
    pair = pairs(name)
    for text in adversarial_texts():
        assert pair.ours.encode(text) == pair.encode(text), repr(text[:80])
        if pair.encode_ordinary:
            assert pair.ours.encode_ordinary(text) == pair.encode_ordinary(text), repr(text[:80])


def texts_around_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    """Added tokens, those with flags first, between all that their flags may look at."""
    rng = random.Random(24)
    contents = [token.content for token in sorted(tokenizer.spec.added_tokens, key=by_flags)]
    between = [
        "",
        " ",
        "  ",
        "\n",
        "\t \r\n",
        "\u3000",
        "\x85",
        "\x1c",
        "a",
        "word 12",
        "\u0301",
        "_",
    ]
    for n_parts in range(1, 12):
        some = rng.choices(contents[:4] + contents[-4:], k=n_parts)
        yield "".join(rng.choice(between) + content + rng.choice(between) for content in some)


def by_flags(token: AddedToken) -> bool:
    return token.flags in ([], ["normalized"])


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ALL_NAMES)
def test_added_tokens_are_found_as_in_the_reference(name, pairs):
    pair = pairs(name)
    for text in texts_around_added_tokens(pair.ours):
        expected = pair.encode(text)
        assert pair.ours.encode(text) == expected, repr(text)
        for cut in range(1, len(text)):
            stream = StreamingEncoder(pair.ours)
            ids = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish()
            assert ids == expected, (repr(text), cut)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ALL_NAMES)
def test_code_points_at_class_borders_split_as_in_the_reference(name, pairs):
    pair = pairs(name)
    for text in class_borders_in_context():
        assert first_difference(pair.ours.encode(text), pair.encode(text)) == "", repr(text[:40])


@pytest.mark.shared_data
@pytest.mark.parametrize("name", first_and_slow(ALL_NAMES))
def test_every_code_point_splits_as_in_the_reference(name, pairs):
    pair = pairs(name)
    for text in every_code_point_in_context():
        assert first_difference(pair.ours.encode(text), pair.encode(text)) == "", repr(text[:40])


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("corpus", CORPORA)
def test_streaming_equals_one_shot_for_200_seeded_cuts(name, corpus, pairs, shared_data):
    pair = pairs(name)
    n_bytes = 400_000 if name in QUICK_BYTES else 60_000
    text = read_sample(shared_data / "corpora" / f"{corpus}.txt", n_bytes)
    rng = random.Random(f"{name} {corpus}")
    cuts = sorted(rng.sample(range(1, len(text)), 200))
    stream = StreamingEncoder(pair.ours)
    ids: list[int] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        ids += stream.feed(text[start:end])
    ids += stream.finish()
    assert first_difference(ids, pair.ours.encode(text)) == ""
    assert stream.bytes_settled == len(text.encode())


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ALL_NAMES)
def test_streaming_equals_one_shot_for_every_cut_of_adversarial_texts(name, pairs):
    tokenizer = pairs(name).ours
    for text in adversarial_texts(longest=300):
        whole = tokenizer.encode(text)
        for cut in range(1, len(text)):
            stream = StreamingEncoder(tokenizer)
            assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish() == whole, (
                repr(text),
                cut,
            )
        stream = StreamingEncoder(tokenizer)
        assert [i for c in text for i in stream.feed(c)] + stream.finish() == whole, repr(text)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", first_and_slow(ALL_NAMES))
def test_streaming_equals_one_shot_for_every_cut_of_4_kb(name, pairs):
    tokenizer = pairs(name).ours
    text = "".join(adversarial_texts(longest=300))
    while len(text.encode()) > 4096:
        text = text[:-1]
    whole = tokenizer.encode(text)
    for cut in range(1, len(text)):
        stream = StreamingEncoder(tokenizer)
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish() == whole, cut
