"""Batches become ids, in order, with any number of workers."""

from collections.abc import Iterator

import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder, SplitPart, encode_batches
from tokenizer_core.corpus.document_batches import DocumentBatch
from tokenizer_core.errors import DocumentRefusedError


def batch_of(texts: list[str], first: int = 0, **how: bool) -> DocumentBatch:
    data = [text.encode() for text in texts]
    return DocumentBatch(first, how.pop("is_continued", False), data, **how)


def documents(part: SplitPart) -> list[list[int]]:
    return [
        part.ids[part.offsets[i] : part.offsets[i + 1]].tolist()
        for i in range(len(part.offsets) - 1)
    ]


@pytest.mark.parametrize("is_continued", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_tokens_are_put_around_complete_documents_only(is_continued: bool, is_open: bool) -> None:
    plan = plan_token_files(NARROW, begin_of_document="<|begin|>", end_of_document="<|end|>")
    batch = batch_of(["ab", "", "é"], is_continued=is_continued, is_open=is_open)
    (part,) = BatchEncoder(NARROW, plan, 0.0).encode(batch).parts
    expected = [[257, 256, 258], [257, 258], [257, 0xC3, 0xA9, 258]]
    if is_continued:
        del expected[0][0]
    if is_open:
        del expected[2][-1]
    assert documents(part) == expected
    assert (part.split, part.n_bytes.sum(), part.is_open) == ("train", 4, is_open)


def test_a_document_is_drawn_by_its_number_and_its_parts_stay_together() -> None:
    plan = plan_token_files(NARROW, seed=3)
    encoder = BatchEncoder(NARROW, plan, 0.5)
    texts = [chr(97 + number) for number in range(20)]
    drawn = {}
    for part in encoder.encode(batch_of(texts)).parts:
        for document in documents(part):
            drawn[NARROW.decode(document)] = part.split
    assert set(drawn.values()) == {"train", "validation"}
    for number, text in enumerate(texts):
        for how in ({"is_open": True}, {"is_continued": True}):
            (part,) = encoder.encode(batch_of([text], number, **how)).parts
            assert part.split == drawn[text]
            assert part.is_open == how.get("is_open", False)
    # Only the split of the unfinished document is open.
    parts = encoder.encode(batch_of(texts, is_open=True)).parts
    assert {part.split: part.is_open for part in parts} == {
        split: split == drawn[texts[-1]] for split in ("train", "validation")
    }


@pytest.mark.parametrize(
    ("in_processes", "workers"), [(False, 1), (False, 3), (True, 1), (True, 3)]
)
def test_batches_come_in_order(in_processes: bool, workers: int) -> None:
    tokenizer = Tokenizer.from_spec(NARROW.spec, engine="python" if in_processes else "auto")
    encoder = BatchEncoder(tokenizer, plan_token_files(tokenizer), 0.0)
    # The first batches take the longest: with several workers, later ones finish first.
    texts = [f"{number} " * (2000 if number < 3 else 1) for number in range(20)]
    batches: Iterator[DocumentBatch] = iter([batch_of([text]) for text in texts])
    encoded = encode_batches(encoder, batches, workers=workers, in_processes=in_processes)
    found = [NARROW.decode(batch.parts[0].ids) for batch in encoded]
    assert found == texts


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_forbidden_token_ends_it(in_processes: bool) -> None:
    plan = plan_token_files(NARROW, allowed_special="none", disallowed_special="all")
    batches = iter([batch_of(["a"]), batch_of(["b", "<|end|>"], 1), batch_of(["c"], 3)])
    encoder = BatchEncoder(NARROW, plan, 0.0)
    with pytest.raises(DocumentRefusedError, match="disallowed_special forbids") as caught:
        list(encode_batches(encoder, batches, workers=2, in_processes=in_processes))
    assert (caught.value.number, caught.value.forbidden) == (2, "<|end|>")
