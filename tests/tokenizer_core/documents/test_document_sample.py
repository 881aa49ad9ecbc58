"""Documents drawn by a seed: the same ones for any order or format, each independently."""

import gzip
import json
from pathlib import Path

import pytest

from tokenizer_core.documents import DocumentSample

DOCUMENTS = [f"document {i * 7919 % 4001}" for i in range(4000)]


def write(path: Path, documents: list[str]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": one}) + "\n" for one in documents))
    else:
        data = "".join(one + "|" for one in documents).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def drawn(*files: Path, share: float = 0.05, seed: int = 3) -> list[str]:
    texts = []
    for text, is_last in DocumentSample(files, share, seed, separator="|"):
        texts.append(text)
        assert is_last
    return texts


def test_neither_order_nor_names_nor_formats_change_the_draw(tmp_path):
    a, b = DOCUMENTS[:1500], DOCUMENTS[1500:]
    first, second = write(tmp_path / "a.txt", a), write(tmp_path / "b.jsonl", b)
    (tmp_path / "other").mkdir()
    moved, packed = write(tmp_path / "other" / "z.jsonl", a), write(tmp_path / "b.txt.gz", b)
    expected = drawn(first) + drawn(second)
    assert drawn(first, second) == expected
    assert sorted(drawn(second, first)) == sorted(expected)
    assert drawn(moved, packed) == expected


def test_each_document_is_drawn_with_about_the_share(tmp_path):
    file = write(tmp_path / "a.txt", DOCUMENTS)
    for share in (0.01, 0.3, 0.9):
        n = len(drawn(file, share=share))
        spread = (len(DOCUMENTS) * share * (1 - share)) ** 0.5
        assert abs(n - len(DOCUMENTS) * share) < 4 * spread
    seeds = [set(drawn(file, share=0.1, seed=seed)) for seed in (1, 2)]
    assert 15 < len(seeds[0] & seeds[1]) < 80  # 40 by chance
    assert set(drawn(file, share=0.05)) < set(drawn(file, share=0.1)), "a larger share has more"


def test_copies_are_drawn_independently(tmp_path):
    file = write(tmp_path / "a.txt", ["the same"] * 1000)
    assert 60 < len(drawn(file, share=0.1)) < 140
    files = [write(tmp_path / f"{i}.jsonl", [f"copy {i % 2}"]) for i in range(400)]
    texts = drawn(*files, share=0.1)
    assert all(6 < texts.count(text) < 40 for text in ("copy 0", "copy 1"))
    assert sorted(drawn(*reversed(files), share=0.1)) == sorted(texts)


def test_a_long_document_is_drawn_whole_and_documents_are_counted(tmp_path):
    long = "0123456789" * 60_000
    file = write(tmp_path / "a.txt", [long, "short", ""] * 20)
    done: list[int] = []
    sample = DocumentSample([file], 0.5, 1, separator="|", progress=done.append)
    texts, parts = [], []
    for text, is_last in sample:
        parts.append(text)
        if is_last:
            texts.append("".join(parts))
            parts.clear()
    assert not parts
    assert set(texts) == {long, "short", ""}
    assert (sample.n_drawn, sample.n_documents) == (len(texts), 60)
    assert done == sorted(done)
    assert done[-1] == file.stat().st_size
    assert len(done) == 60


def test_an_invalid_share_is_refused():
    for share in (0.0, -0.1, 2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            DocumentSample(["a.txt"], share)
