"""An interrupted or shuffled encoding resumes from its checkpoint and writes the same bytes."""

import gzip
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE, content
from tokenizer_core.corpus import (
    CorpusFormat,
    EncodingProgress,
    TokenFiles,
    TokenFilesPlan,
    TokenFilesWriter,
    can_resume,
    corpus_encoding,
    document_shuffle,
    encode_corpus,
    encoding_run,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.document_batches import CorpusPosition, iterate_batches
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError

TEXTS = [f"document {index}, " * (index % 9) + "é 東京 ab" for index in range(60)]
LONG = "Ein Wort, <|begin|> ein Wort: ab. " * 400


class Interrupted(Exception):  # noqa: N818 - not an error of the library
    pass


def write_corpus(folder: Path) -> list[Path]:
    """Plain text with a document longer than a piece, packed JSON lines, and an empty file."""
    plain, packed, empty = folder / "a.txt", folder / "b.jsonl.gz", folder / "c.txt"
    plain.write_text("<|end|>".join([*TEXTS[:30], LONG, *TEXTS[30:]]))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in [*TEXTS, LONG * 4, "", "last"])
    packed.write_bytes(gzip.compress(lines.encode()))
    empty.write_text("")
    return [plain, packed, empty]


def encode(
    folder: Path,
    files: Sequence[Path | str],
    plan: TokenFilesPlan,
    stop_after: int | None = None,
    **how: Any,
) -> int:
    """Encode until this many batches are done; return the number of batches."""
    n_batches = 0

    def count(progress: EncodingProgress) -> None:
        nonlocal n_batches
        n_batches += 1
        if n_batches == stop_after:
            raise Interrupted

    options = {"validation_share": 0.3, "corpus_format": CorpusFormat(separator="<|end|>")} | how
    tokenizer = WIDE if plan.dtype == "uint32" else NARROW
    encode_corpus(tokenizer, files, folder, plan, progress=count, **options)
    return n_batches


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 3000)
    monkeypatch.setattr(document_shuffle, "BATCH_TOKENS", 900)
    monkeypatch.setattr(encoding_run, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(encoding_run, "_CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("layout", ["npy", "megatron"])
def test_resuming_after_any_batch_gives_the_same_bytes(layout, tmp_path, monkeypatch):
    files = write_corpus(tmp_path)
    tokenizer = WIDE if layout == "npy" else NARROW
    plan = plan_token_files(
        tokenizer,
        layout=layout,
        tokens_per_shard=5000,
        begin_of_document="<|begin|>",
        end_of_document="<|end|>",
        seed=3,
    )
    n_batches = encode(tmp_path / "expected", files, plan)
    expected = content(tmp_path / "expected")
    assert n_batches > 20
    # Stop once in each document, the first of which is long, and at the very end.
    for stop in (2, 8, n_batches // 2, n_batches):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(Interrupted):
            encode(folder, files, plan, stop, workers=1 + stop % 2)
        # Megatron's documents stay whole in their shards: no checkpoint within the first one.
        assert can_resume(folder) or (layout == "megatron" and stop < 8)
        monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 3500 + stop)
        left = encode(folder, files, plan, resume=True, workers=1 + (stop + 1) % 2)
        assert left < n_batches or stop < 8, "it began anew"
        assert content(folder) == expected
        assert not can_resume(folder)
        monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 3000)


@pytest.mark.usefixtures("small_batches")
def test_other_files_or_settings_are_refused(tmp_path):
    files = write_corpus(tmp_path)
    plan = plan_token_files(NARROW)
    encode(tmp_path / "expected", files, plan)
    with pytest.raises(Interrupted):
        encode(tmp_path / "t", files, plan, 10)

    def refused(match: str, files: list[Path] = files, **how: Any) -> None:
        with pytest.raises(TokenFilesPlanError, match=match):
            encode(tmp_path / "t", files, plan, resume=True, **how)

    refused("another validation share; go on with the same, or start anew", validation_share=0.2)
    refused("another separator", corpus_format=CorpusFormat(separator="<|begin|>"))
    refused("another files", files[::-1])
    refused("another files", files[:1])
    begun = files[0].stat()
    os.utime(files[0], ns=(begun.st_atime_ns, begun.st_mtime_ns + 1))
    refused("'a.txt' has changed since encoding was interrupted; start anew")
    os.utime(files[0], ns=(begun.st_atime_ns, begun.st_mtime_ns))
    encode(tmp_path / "t", files, plan, resume=True)
    assert content(tmp_path / "t") == content(tmp_path / "expected")


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_file_that_is_not_begun_may_change_before_resuming(shuffle, tmp_path):
    files, plan = write_corpus(tmp_path), plan_token_files(NARROW)
    with pytest.raises(Interrupted):
        encode(tmp_path / "t", files, plan, 1, shuffle=shuffle)  # in the first file
    files[1].write_bytes(gzip.compress(b'{"text": "mended"}\n'))
    encode(tmp_path / "t", files, plan, resume=True, shuffle=shuffle)
    encode(tmp_path / "expected", files, plan, shuffle=shuffle)
    assert content(tmp_path / "t") == content(tmp_path / "expected")


@pytest.mark.usefixtures("small_batches")
def test_a_shuffle_is_not_resumed_after_a_file_has_changed(tmp_path):
    files, plan = write_corpus(tmp_path), plan_token_files(NARROW)
    n_batches = encode(tmp_path / "expected", files, plan, shuffle=True)
    with pytest.raises(Interrupted):
        encode(tmp_path / "t", files, plan, n_batches - 1, shuffle=True)
    before = files[1].stat()
    os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(TokenFilesPlanError, match=r"'b\.jsonl\.gz' has changed since encoding was"):
        encode(tmp_path / "t", files, plan, shuffle=True, resume=True)


@pytest.mark.parametrize(
    "position", [CorpusPosition(n_documents=99, n_in_file=99), CorpusPosition(n_bytes=3)]
)
def test_a_file_that_has_fewer_documents_now_is_refused(position, tmp_path):
    (tmp_path / "a.txt").write_text("one|two")
    cuts = DocumentCuts(plan_token_files(NARROW))
    how = CorpusFormat(separator="|")
    with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed"):
        list(iterate_batches([str(tmp_path / "a.txt")], how, cuts, position, 50))


def test_the_checkpoint_of_another_caller_is_refused(tmp_path):
    files, plan = write_corpus(tmp_path), plan_token_files(NARROW)
    with TokenFilesWriter(tmp_path / "tokens", plan) as writer:
        writer.append([97, 98])
        writer.checkpoint({"line": 1})
    for shuffle in (False, True):
        with pytest.raises(TokenFilesPlanError, match="another files; go on with the same, or"):
            encode(tmp_path / "tokens", files, plan, resume=True, shuffle=shuffle)
    assert can_resume(tmp_path / "tokens")


@pytest.mark.usefixtures("small_batches")
def test_files_in_stores_are_resumed_unless_they_changed(tmp_path):
    store = fsspec.filesystem("memory")
    paths = write_corpus(tmp_path)
    store.pipe({f"/resume/{path.name}": path.read_bytes() for path in paths})
    files = [f"memory://resume/{path.name}" for path in paths]
    plan = plan_token_files(NARROW)
    n_batches = encode(tmp_path / "expected", paths, plan)
    try:
        for name in ("t", "u"):
            with pytest.raises(Interrupted):
                encode(tmp_path / name, files, plan, n_batches // 2)
        assert encode(tmp_path / "t", files, plan, resume=True) < n_batches
        assert content(tmp_path / "t") == content(tmp_path / "expected")
        store.pipe(f"/resume/{paths[0].name}", paths[0].read_bytes())
        with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed since encoding"):
            encode(tmp_path / "u", files, plan, resume=True)
    finally:
        store.rm("/resume", recursive=True)


def test_checkpoints_take_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    now = 0.0
    written: list[float] = []

    class Writer:
        can_checkpoint = True

        def checkpoint(self, position: dict[str, Any]) -> None:
            nonlocal now
            written.append(now)
            now += 1.0  # a slow disk

    monkeypatch.setattr(time, "monotonic", lambda: now)
    checkpoints = encoding_run._Checkpoints(Writer())
    while now < 200:
        checkpoints.write_if_due(dict)
        now += 0.5
    assert written == [5.0, 56.0, 107.0, 158.0]


def documents_of(folder: Path) -> dict[str, list[bytes]]:
    files = TokenFiles.open(folder)
    return {
        split.name: [
            files.document(number, split.name).tobytes() for number in range(split.n_documents)
        ]
        for split in files.manifest.splits
    }


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_a_shuffle_is_a_permutation_of_all_documents(layout, tmp_path):
    files = write_corpus(tmp_path)

    def shuffled(name: str, seed: int = 7, **how: Any) -> dict[str, list[bytes]]:
        plan = plan_token_files(
            NARROW, layout=layout, tokens_per_shard=5000, end_of_document="<|end|>", seed=seed
        )
        encode(tmp_path / name, files, plan, **how)
        return documents_of(tmp_path / name)

    in_order, found = shuffled("a"), shuffled("b", shuffle=True)
    assert {split: sorted(found[split]) for split in found} == {
        split: sorted(in_order[split]) for split in in_order
    }
    for split, documents in found.items():
        assert documents != in_order[split]
        # No buffer limits the order: documents of the first half appear everywhere.
        places = [documents.index(document) for document in in_order[split][: len(documents) // 2]]
        assert max(places) > len(documents) * 0.8
    assert shuffled("d", seed=8, shuffle=True)["train"] != found["train"]
    shuffled("e", shuffle=True, workers=2)
    assert content(tmp_path / "e") == content(tmp_path / "b")
    manifests = [TokenFiles.open(tmp_path / name).manifest for name in "ab"]
    assert manifests[0].sources == manifests[1].sources
    assert [split.n_bytes for split in manifests[0].splits] == [
        split.n_bytes for split in manifests[1].splits
    ]
    assert np.array_equal(
        TokenFiles.open(tmp_path / "a").token_counts(),
        TokenFiles.open(tmp_path / "b").token_counts(),
    )
    verify_token_files(tmp_path / "b", tokenizer=NARROW)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_resuming_a_shuffle_after_any_batch_gives_the_same_bytes(layout, tmp_path):
    files = write_corpus(tmp_path)
    plan = plan_token_files(NARROW, layout=layout, tokens_per_shard=5000, seed=3)
    n_batches = encode(tmp_path / "expected", files, plan, shuffle=True)
    for stop in (1, 13, 2 * n_batches // 3, n_batches):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(Interrupted):
            encode(folder, files, plan, stop, shuffle=True)
        assert can_resume(folder)
        left = encode(folder, files, plan, shuffle=True, resume=True, workers=2)
        assert left < n_batches or stop == 1
        assert content(folder) == content(tmp_path / "expected")


@pytest.mark.usefixtures("small_batches")
def test_a_shuffle_is_resumed_only_as_a_shuffle(tmp_path):
    files = write_corpus(tmp_path)
    plan = plan_token_files(NARROW)
    encode(tmp_path / "expected", files, plan)
    for begun in (False, True):
        with pytest.raises(Interrupted):
            encode(tmp_path / "t", files, plan, 10, shuffle=begun)
        with pytest.raises(TokenFilesPlanError, match="begun with another shuffle"):
            encode(tmp_path / "t", files, plan, shuffle=not begun, resume=True)
    encode(tmp_path / "t", files, plan)  # anew
    assert content(tmp_path / "t") == content(tmp_path / "expected")


def test_progress_names_the_second_phase(tmp_path):
    files = write_corpus(tmp_path)
    seen: list[EncodingProgress] = []
    plan = plan_token_files(NARROW)
    encode_corpus(NARROW, files, tmp_path / "t", plan, shuffle=True, progress=seen.append)
    assert {now.phase for now in seen} == {"encoding", "shuffling"}
    last = seen[-1]
    opened = TokenFiles.open(tmp_path / "t")
    assert last.bytes_done == last.bytes_total == 2 * last.n_tokens == 2 * opened.n_tokens()
    assert last.n_documents == opened.n_documents()


def test_a_scratch_file_that_was_cut_short_is_refused(tmp_path):
    files = write_corpus(tmp_path)
    encode_corpus(NARROW, files, tmp_path / "t", plan_token_files(NARROW))
    opened = TokenFiles.open(tmp_path / "t")
    (tmp_path / "t" / "train.bin").write_bytes(b"12")
    with pytest.raises(TokenFilesCorruptError, match="ends before a document does"):
        list(document_shuffle.shuffle_documents(opened, 0, document_shuffle.ShufflePosition()))
