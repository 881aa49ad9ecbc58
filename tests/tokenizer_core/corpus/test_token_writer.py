"""Token files are written whole or not at all, in a staged folder, as each trainer reads them."""

import errno
import fcntl
import os
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import (
    LAYOUT_NAMES,
    NARROW,
    WIDE,
    content,
    mask_of,
    write,
    write_texts,
)
from tests.tokenizer_core.corpus.trainer_readers import (
    DOCUMENT_READERS,
    READERS,
    read_megatron_documents,
)
from tests.tokenizer_core.registry.test_disk_faults import Fault
from tokenizer_core.corpus import (
    LAYOUTS,
    TokenFiles,
    TokenFilesWriter,
    plan_token_files,
    token_writer,
    verify_token_files,
)
from tokenizer_core.corpus.staging import StagedFolder
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenFilesPlanError


def joined(documents):
    return list(chain.from_iterable(documents))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def documents_of(tokenizer):
    ids = st.sampled_from(sorted(tokenizer.spec.vocab))
    return st.lists(st.lists(ids, max_size=9), min_size=1, max_size=9)


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@examples(2 / 5)
@given(data=st.data())
def test_the_readers_of_trainers_read_the_ids_back(layout, data, tmp_path_factory):
    wide = data.draw(st.booleans())
    tokenizer = WIDE if wide else NARROW
    documents = data.draw(documents_of(tokenizer).filter(any))
    validation = data.draw(st.just([]) | documents_of(tokenizer).filter(any))
    limit = data.draw(st.none() | st.integers(1, 20))
    folder = tmp_path_factory.mktemp("t") / "tokens"
    is_masked = data.draw(st.booleans())
    plan = plan_token_files(
        tokenizer, layout=layout, end_of_document="", tokens_per_shard=limit, loss_mask=is_masked
    )
    batch = data.draw(st.integers(1, 9))
    cuts = data.draw(st.lists(st.integers(0, len(joined(documents))), max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # a hundred folders, none kept
        write_some = os.write  # like a disk that is nearly full
        patch.setattr(os, "write", lambda file, data: write_some(file, data[:99]))
        manifest = write(folder, plan, documents, validation=validation, batch=batch)
        write_parts(folder.with_name("parts"), plan, documents, cuts, validation)
    assert content(folder) == content(folder.with_name("parts")), "it depends on the batches"
    for split, stem, expected in (("train", "train", documents), ("validation", "val", validation)):
        shards = READERS[layout](folder, stem, wide)
        assert [id_ for shard in shards for id_ in shard.tolist()] == joined(expected)
        if not expected:
            assert split not in [record.name for record in manifest.splits]
            continue
        ends = np.fromfile(folder / f"{stem}.document-ends.u64", dtype="<u8")
        assert ends.tolist() == np.cumsum([len(document) for document in expected]).tolist()
        record = manifest.split(split)
        assert (record.n_documents, record.n_tokens) == (len(expected), ends[-1])
        assert [shard.n_tokens for shard in record.shards] == [len(shard) for shard in shards]
        check_cuts(layout, limit, shards, expected, folder, stem, wide)
        files = TokenFiles.open(folder, tokenizer)
        for index, document in enumerate(expected):
            assert files.document(index, split).tolist() == document
            if is_masked:
                found = files.document_mask(index, split).tolist()
                assert found == mask_of(document).tolist()
        if is_masked:
            assert record.n_loss_tokens == mask_of(joined(expected)).sum()
    assert verify_token_files(folder, tokenizer=tokenizer).n_tokens == len(
        joined(documents + validation)
    )


def write_parts(folder, plan, documents, cuts, validation):
    """Batches that end at any cuts, also within documents; then the validation as one batch."""
    ids = joined(documents)
    ends = np.cumsum([len(document) for document in documents]).tolist()
    place = done = 0
    with TokenFilesWriter(folder, plan) as writer:
        for cut in sorted({*cuts, len(ids)}):
            whole = [end for end in ends[done:] if end < cut or cut == len(ids)]
            is_open = [place, *whole][-1] < cut
            offsets = [at - place for at in (place, *whole, *([cut] if is_open else []))]
            mask = mask_of(ids[place:cut]) if plan.loss_mask else None
            writer.append_batch(ids[place:cut], offsets, mask=mask, is_open=is_open)
            place, done = cut, done + len(whole)
        offsets = np.cumsum([0, *map(len, validation)])
        mask = mask_of(joined(validation)) if plan.loss_mask else None
        writer.append_batch(joined(validation), offsets, mask=mask, split="validation")
        writer.finish()


def check_cuts(layout, limit, shards, expected, folder, stem, wide):
    """Where shards end: anywhere in a stream of ids, never inside a document of another layout."""
    sizes = [len(shard) for shard in shards]
    if layout not in DOCUMENT_READERS:
        n_tokens = sum(sizes)
        limit = limit or n_tokens
        full, rest = divmod(n_tokens, limit)
        assert sizes == [limit] * full + [rest] * (rest > 0)
        return
    found = DOCUMENT_READERS[layout](folder, stem, wide)
    assert [document.tolist() for shard in found for document in shard] == expected
    if limit is None:
        assert len(found) == 1
        return
    for index, shard in enumerate(found):
        longer_than_a_shard = [document for document in shard if len(document) > limit]
        assert sizes[index] <= limit or len([d for d in shard if len(d)]) == 1
        assert not longer_than_a_shard or sizes[index] == len(longer_than_a_shard[0])
    for left, right in pairwise(found):
        first = next(document for document in right if len(document))
        assert sum(map(len, left)) + len(first) > limit, "a shard was ended too early"


@pytest.mark.parametrize(
    ("ids", "offsets", "message"),
    [
        ([1, 259], [0, 2], r"ids\[1\] = 259 is not between 0 and 258"),
        ([-1, 2], [0, 2], r"ids\[0\] = -1 is not between 0 and 258"),
        ([1 << 40], [0, 1], r"not between 0 and 258"),
        ([65_536], [0, 1], r"not between 0 and 258"),
        ([1.0, 2.0], [0, 2], "must be a sequence of integers"),
        ([True], [0, 1], "must be a sequence of integers"),
        ([[1, 2]], [0, 2], "must be a sequence of integers"),
        ([1, 2], [0, 1], r"offsets must rise from 0 to the number of ids \(2\)"),
        ([1, 2], [1, 2], "offsets must rise"),
        ([1, 2], [0, 2, 1, 2], "offsets must rise"),
        ([1, 2], [], "offsets must rise"),
        ([1, 2], [0.0, 2.0], "offsets must rise"),
    ],
)
def test_a_refused_batch_does_not_change_the_writer(ids, offsets, message, tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW, end_of_document="")) as writer:
        writer.append([1, 2], n_bytes=np.int64(1))
        for split in ("train", "validation"):
            with pytest.raises(TokenFilesPlanError, match=message):
                writer.append_batch(ids, offsets, split=split)
        with pytest.raises(TokenFilesPlanError, match="n_bytes is a number of bytes, not -5"):
            writer.append([1, 2], n_bytes=-5)
        writer.append_batch([], [0], split="validation")
        (record,) = writer.finish().splits
        assert (record.n_documents, record.n_tokens, record.n_bytes) == (1, 2, 1)


def test_a_document_in_parts_begins_and_ends_as_the_plan_says(tmp_path):
    plan = plan_token_files(NARROW, begin_of_document="<|begin|>", end_of_document="<|end|>")
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        with pytest.raises(TokenFilesPlanError, match="document 0 of this batch does not begin"):
            writer.append_batch([1], [0, 1], is_open=True)
        writer.append_batch([257, 1], [0, 2], is_open=True)
        writer.append_batch([2], [0, 1], is_open=True)
        writer.append([257, 5, 258], split="validation")
        with pytest.raises(TokenFilesError, match="the last document of train is not whole"):
            writer.finish()
        with pytest.raises(TokenFilesPlanError, match="document 0 of this batch does not end"):
            writer.append([3])
        with pytest.raises(TokenFilesPlanError, match="document 1 of this batch does not begin"):
            writer.append_batch([258, 1, 258], [0, 1, 3])
        writer.append_batch([258, 257, 9, 258], [0, 1, 4])
        writer.finish()
    files = TokenFiles.open(tmp_path / "t")
    assert files.document(0).tolist() == [257, 1, 2, 258]
    assert files.document(1).tolist() == [257, 9, 258]


def test_a_document_of_megatron_is_set_aside_until_it_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(token_writer, "MAX_DOCUMENT_TOKENS", 3)
    plan = plan_token_files(NARROW, end_of_document="", layout="megatron", tokens_per_shard=3)
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        with pytest.raises(TokenFilesPlanError, match=r"a document has 4 ids.*another layout"):
            writer.append([1, 2, 3, 4])
        writer.append_batch([1, 2, 3], [0, 1, 3], is_open=True)
        with pytest.raises(TokenFilesPlanError, match="a document has 4 ids"):
            writer.append([4, 5])
        assert not writer.can_checkpoint
        with pytest.raises(TokenFilesError, match="append its end first"):
            writer.checkpoint({})
        writer.append_batch([4, 5], [0, 1, 2])
        assert writer.can_checkpoint
        writer.checkpoint({})
        writer.finish()
    documents = read_megatron_documents(tmp_path / "t", "train", False)
    found = [[document.tolist() for document in shard] for shard in documents]
    assert found == [[[1]], [[2, 3, 4]], [[5]]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_without_any_id_are_refused(tmp_path, layout):
    plan = plan_token_files(NARROW, layout=layout, end_of_document="")
    for n_ids, empty in ((0, "train and validation"), (1, "validation")):
        with TokenFilesWriter(tmp_path / "t", plan) as writer:
            if n_ids:
                writer.append([1])
                writer.append([], split="validation")
            with pytest.raises(TokenFilesError, match=f"no ids were written for {empty},"):
                writer.finish()
        with pytest.raises(TokenFilesError, match="has finished"):
            writer.append([1])
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(tmp_path):
    write_texts(tmp_path / "t")
    before = content(tmp_path / "t")
    StagedFolder(tmp_path / "u").release()  # a writer that died after it published
    (tmp_path / "u").mkdir()
    for name in "tuu":
        with pytest.raises(TokenFilesError, match=rf"'{name}' is there already.*remove it"):
            TokenFilesWriter(tmp_path / name, plan_token_files(NARROW, end_of_document=""))
    with TokenFilesWriter(tmp_path / "v", plan_token_files(NARROW, end_of_document="")) as writer:
        writer.append([1])
        with pytest.raises(TokenFilesError, match="another process is writing 'v'"):
            StagedFolder(tmp_path / "v")
        (tmp_path / "v").mkdir()
        with pytest.raises(TokenFilesError, match="'v' is there already"):
            writer.finish()
    assert content(tmp_path / "t") == before
    assert names(tmp_path) == ["t", "u", "v"]


def test_a_writer_that_waited_for_the_lock_keeps_finished_files(tmp_path, monkeypatch):
    """The other writer's folder gets its final name between the opening and the lock."""
    first = TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW, end_of_document=""))
    first.append([1])
    real = fcntl.flock

    def locked_late(descriptor, flags):
        first.finish()
        real(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", locked_late)
    with pytest.raises(TokenFilesError, match="another process is writing 't'"):
        TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW, end_of_document=""))
    assert verify_token_files(tmp_path / "t").n_tokens == 1


def test_leftovers_of_a_dead_writer_are_removed(tmp_path):
    left = tmp_path / ".t.partial"
    (left / "folder").mkdir(parents=True)
    (left / "train_000007.bin").write_bytes(b"old")
    (left / "link").symlink_to(tmp_path)
    write_texts(tmp_path / "t")
    verify_token_files(tmp_path / "t")
    assert names(tmp_path) == ["t"]
    left.symlink_to(tmp_path / "t")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        StagedFolder(tmp_path / "t")
    assert names(tmp_path) == [".t.partial", "t"]


def interrupted(folder, plan, documents):
    """A writer that stops after the checkpoint of these documents."""
    with TokenFilesWriter(folder, plan) as writer:
        for document in documents:
            writer.append(document, mask=mask_of(document) if plan.loss_mask else None)
        writer.checkpoint({})


def test_documents_without_finish_are_dropped_with_a_warning(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="")
    told = pytest.warns(UserWarning, match="nothing of 't' was written: call finish")
    with told, TokenFilesWriter(tmp_path / "t", plan) as writer:
        writer.append([1])
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_is_removed_by_abort_and_kept_without_resume(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="")
    with TokenFilesWriter(tmp_path / "t", plan, resume=True) as writer:
        assert writer.position is None
    assert list(tmp_path.iterdir()) == []
    interrupted(tmp_path / "t", plan, [[1]])
    for other, differs in (
        (plan_token_files(NARROW, end_of_document="", seed=1), r"\(seed\)"),
        (plan_token_files(WIDE, end_of_document=""), r"\(dtype, special tokens, tokenizer\)"),
    ):
        with pytest.raises(TokenFilesPlanError, match=f"'t' was begun with another plan {differs}"):
            TokenFilesWriter(tmp_path / "t", other, resume=True)
    with pytest.raises(TokenFilesError, match=r"or remove .*\.t\.partial to start anew"):
        TokenFilesWriter(tmp_path / "t", plan)
    with TokenFilesWriter(tmp_path / "t", plan, resume=True) as writer:
        assert writer.position == {}
        writer.append([3])
        writer.checkpoint({})
        writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_ids_after_the_checkpoint_are_cut_off(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="")
    interrupted(tmp_path / "t", plan, [[1]])
    with TokenFilesWriter(tmp_path / "t", plan, resume=True) as writer:
        writer.append([2] * 600_000)  # so many that they are written
    with TokenFilesWriter(tmp_path / "t", plan, resume=True) as writer:
        writer.append([3])
        writer.finish()
    assert TokenFiles.open(tmp_path / "t").document(1).tolist() == [3]


def test_a_checkpoint_that_does_not_fit_its_files_is_refused(tmp_path):
    plan = plan_token_files(NARROW, tokens_per_shard=2, loss_mask=True)
    interrupted(tmp_path / "t", plan, [[1], [2], [3]])
    files = tmp_path / ".t.partial" / "files"
    before = {path: path.read_bytes() for path in files.iterdir()}
    assert len(before) == 5
    for path, data in before.items():
        path.write_bytes(data[:-1])
        with pytest.raises(TokenFilesCorruptError, match=path.name):
            TokenFilesWriter(tmp_path / "t", plan, resume=True)
        path.unlink()
        with pytest.raises(TokenFilesCorruptError, match=f"{path.name} is missing"):
            TokenFilesWriter(tmp_path / "t", plan, resume=True)
        path.write_bytes(data)
    checkpoint = files.parent / "checkpoint.json"
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"3", b"4"))
    with pytest.raises(TokenFilesCorruptError, match="start anew: remove the unfinished"):
        TokenFilesWriter(tmp_path / "t", plan, resume=True)


@pytest.mark.parametrize("step", ["append", "checkpoint", "finish"])
def test_a_failing_disk_leaves_the_checkpoint_and_ends_the_writer(step, tmp_path, monkeypatch):
    plan = plan_token_files(NARROW, end_of_document="", tokens_per_shard=1)
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        writer.append([1])
        writer.checkpoint({"done": 1})
        steps = {
            "append": lambda: writer.append([2, 3]),  # ends a shard
            "checkpoint": lambda: writer.checkpoint({"done": 2}),
            "finish": writer.finish,
        }
        with monkeypatch.context() as patch:
            Fault(patch, "fsync", 0, errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                steps[step]()
        for later in steps.values():
            with pytest.raises(TokenFilesError, match="has finished or failed"):
                later()
    with TokenFilesWriter(tmp_path / "t", plan, resume=True) as writer:
        assert writer.position == {"done": 1}
        writer.append([2])
        writer.finish()
    assert verify_token_files(tmp_path / "t").n_tokens == 2


@pytest.mark.parametrize(
    ("function", "number", "least"),
    [
        ("open", errno.EMFILE, 10),
        ("write", errno.ENOSPC, 10),
        ("fsync", errno.EIO, 8),
        ("mkdir", errno.EROFS, 2),
        ("rename", errno.ENOSPC, 1),
    ],
)
def test_a_failing_disk_leaves_nothing(function, number, least, tmp_path):
    folder, named = tmp_path / "a" / "t", set()
    for at in range(200):
        with pytest.MonkeyPatch.context() as patch:
            Fault(patch, function, at, number)
            try:
                write_texts(folder, "llmc")
                break
            except OSError as error:
                failed = error
        assert failed.errno == number
        named.add(str(failed.filename).rpartition("/")[2])
        if folder.exists():  # only the folder's entry may not be on the disk
            assert function in ("fsync", "open")
            break
        assert not folder.parent.exists() or list(folder.parent.iterdir()) == []
    assert least <= at < 199
    assert ("train_000000.bin" in named) == (function in ("open", "write", "fsync"))
    verify_token_files(folder)
