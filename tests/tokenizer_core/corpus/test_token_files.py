"""Token files are read by layout, range and document; damage is found, also with right hashes."""

import os
import shutil
import struct
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import (
    LAYOUT_NAMES,
    NARROW,
    TEXTS,
    WIDE,
    content,
    encode_all,
    reseal,
    write,
    write_texts,
)
from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import file_of, file_without_bytes
from tests.tokenizer_core.formats.tokenizer_json.test_model import clip
from tokenizer_core import AddedToken, Tokenizer
from tokenizer_core.corpus import (
    LAYOUTS,
    TokenFiles,
    TokenFilesWriter,
    plan_token_files,
    token_layouts,
    verify_token_files,
)
from tokenizer_core.corpus.document_index import iterate_ends, render_megatron_index
from tokenizer_core.corpus.token_counts import TokenCounts
from tokenizer_core.errors import (
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    TokenizerMismatchError,
)
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.splitting.patterns import SplitPattern


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_documents_and_ranges_of_ids_are_read_and_counted(layout, tmp_path):
    tokenizer = WIDE if layout in ("npy", "megatron") else NARROW
    write_texts(tmp_path / "t", layout, tokenizer)
    files = TokenFiles.open(tmp_path / "t", tokenizer)
    assert files.n_documents() == len(TEXTS)
    for index, text in enumerate(TEXTS):
        assert files.decode_document(index, tokenizer) == text
        ids = files.document(index)
        assert ids.dtype == np.uint32
        assert ids.tolist() == tokenizer.encode(text)
    assert files.decode_document(0, tokenizer, "validation") == "hi"
    for index in (-1, 5, 1 << 70):
        with pytest.raises(IndexError, match=f"no document {index}: train has documents 0 to 4"):
            files.document(index)
    whole = list(chain.from_iterable(encode_all(tokenizer, TEXTS)))
    n_tokens = files.n_tokens()
    assert n_tokens == len(whole)
    for start in range(n_tokens + 1):
        for stop in range(start, n_tokens + 1):
            out = np.empty(stop - start, np.uint32)
            files.copy_tokens(start, out)
            assert out.tolist() == whole[start:stop]
    for start in (-1, n_tokens - 1):
        with pytest.raises(IndexError, match="train has no ids"):
            files.copy_tokens(start, np.empty(2, np.uint32))
    with pytest.raises(TypeError, match="uint8 cannot hold the id"):
        files.copy_tokens(0, np.empty(2, np.uint8))
    largest_id = tokenizer.spec.special_tokens["<|end|>"]
    for split, ids in (("train", whole), ("validation", [104, 105])):
        expected = np.bincount(ids, minlength=largest_id + 1)
        assert files.token_counts(split).tolist() == expected.tolist()


@pytest.mark.parametrize(("place", "value"), [(0, 1 << 40), (1, 0), (1, (1 << 64) - 1)])
def test_a_damaged_document_index_is_refused(place, value, tmp_path):
    write_texts(tmp_path / "t")
    ends = np.memmap(tmp_path / "t" / "train.document-ends.u64", "<u8", mode="r+")
    ends[place] = value
    ends.flush()
    with pytest.raises(TokenFilesCorruptError, match="write the token files anew"):
        TokenFiles.open(tmp_path / "t").document(1)


def test_a_name_is_no_tokenizer(tmp_path):
    write_texts(tmp_path / "t")
    for call in (plan_token_files, partial(TokenFiles.open, tmp_path / "t")):
        with pytest.raises(TypeError, match=r"'gpt2' is no Tokenizer; Tokenizer\.load"):
            call("gpt2")


def test_a_folder_without_token_files_is_refused(tmp_path):
    write_texts(tmp_path / "t")
    (tmp_path / "t" / "manifest.json").rename(tmp_path / "manifest.json")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / ".begun.partial").mkdir()
    for name, why in (
        ("t", "write them"),
        ("absent", "check the path"),
        ("file", "name the folder"),
        ("begun", "go on with resume"),
    ):
        with pytest.raises(TokenFilesError, match=f"'{name}' holds no token files.*{why}"):
            TokenFiles.open(tmp_path / name)
    (tmp_path / "t" / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(TokenFilesError, match="symbolic link"):
        TokenFiles.open(tmp_path / "t")


def test_sizes_are_checked_when_opening(tmp_path):
    write_texts(tmp_path / "t")
    path = tmp_path / "t" / "val_000000.bin"
    path.write_bytes(b"\0\0\0\0\0\0")
    with pytest.raises(TokenFilesCorruptError, match=r"val_000000.bin has 6 bytes, the manifest"):
        TokenFiles.open(tmp_path / "t")
    path.unlink()
    with pytest.raises(TokenFilesCorruptError, match=r"val_000000.bin is missing"):
        TokenFiles.open(tmp_path / "t")


def test_a_shard_that_became_shorter_after_opening_is_refused(tmp_path):
    write_texts(tmp_path / "t")
    files = TokenFiles.open(tmp_path / "t")
    os.truncate(tmp_path / "t" / "val_000000.bin", 2)
    with pytest.raises(TokenFilesCorruptError, match="fewer than 2 ids"):
        files.document(0, "validation")


def test_a_numpy_with_other_headers_is_refused(monkeypatch):
    monkeypatch.setattr(token_layouts, "_NPY_HEADER_BYTES", 80)
    with pytest.raises(TokenFilesPlanError, match="headers of 128 bytes, not 80; install"):
        LAYOUTS["npy"].render_header(1, np.dtype("<u2"))


def test_ids_are_counted_again_from_files(tmp_path):
    path = tmp_path / "train.npy"
    path.write_bytes(b"head" + np.array([1, 2, 2, 9], "<u2").tobytes())
    use = TokenCounts(2)
    use.add_file(path, np.dtype("<u2"), 3, 4)
    assert use.counts.tolist() == [0, 1, 2]
    for n_tokens in (4, 5):
        with pytest.raises(TokenFilesCorruptError, match="start anew: remove the unfinished"):
            TokenCounts(9 if n_tokens == 5 else 8).add_file(path, np.dtype("<u2"), n_tokens, 4)


def render(lengths, dtype="<u2", piece=3):
    array = np.array(lengths, np.int64)
    pieces = [array[start : start + piece] for start in range(0, len(array), piece)]
    return b"".join(render_megatron_index(len(lengths), lambda: iter(pieces), np.dtype(dtype)))


def test_an_index_has_the_bytes_of_the_format():
    expected = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    expected += struct.pack("<2i", 3, 2) + struct.pack("<2q", 0, 6) + struct.pack("<3q", 0, 1, 2)
    assert render([3, 2]) == expected
    longest = (1 << 31) - 1
    wide = render([longest] * 5, "<i4")
    assert wide[17] == 4
    places = tuple(4 * longest * index for index in range(5))  # over four gigabytes
    assert struct.unpack_from("<5q", wide, 34 + 20) == places
    for n_documents in (1, 7, 65_536, 150_000):
        lengths = [index % 5 for index in range(n_documents)]
        whole = render(lengths, piece=n_documents)
        assert render(lengths, piece=1 + n_documents // 3) == whole
        assert len(whole) == 34 + 20 * n_documents + 8


def test_ends_that_are_too_few_are_refused(tmp_path):
    np.array([1, 2, 3], "<u8").tofile(tmp_path / "ends")
    assert [ends.tolist() for ends in iterate_ends(tmp_path / "ends", 1, 3)] == [[2, 3]]
    with pytest.raises(TokenFilesCorruptError, match="ends before document 4"):
        list(iterate_ends(tmp_path / "ends", 0, 4))


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_sound_files_pass_verification(layout, tmp_path):
    write_texts(tmp_path / "t", layout)
    seen = []
    found = verify_token_files(
        tmp_path / "t",
        tokenizer=NARROW,
        texts={"train": iter(TEXTS), "validation": ["hi"]},
        progress=lambda *at: seen.append(at),
    )
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}
    assert found.n_files == len(content(tmp_path / "t"))
    assert (found.n_documents, found.n_texts, found.n_lossy) == (6, 6, 0)
    assert found.n_tokens == sum(map(len, encode_all(NARROW, TEXTS))) + 2


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_a_changed_missing_or_extra_file_is_refused(layout, tmp_path):
    folder = tmp_path / "t"
    write_texts(folder, layout)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        for changed in (data[:-1], data + b"\0", b"", flipped):
            path.write_bytes(changed)
            with pytest.raises(TokenFilesCorruptError):
                verify_token_files(folder)
        path.unlink()
        with pytest.raises(TokenFilesError, match=r"write the|write them"):
            verify_token_files(folder)
        path.write_bytes(data)
    (folder / "train_000099.bin").write_bytes(b"\1\0")
    with pytest.raises(TokenFilesCorruptError, match=r"'train_000099.bin' stands among"):
        verify_token_files(folder)


def put(place, value, dtype="<u8"):
    data = np.array([value], dtype=dtype).tobytes()

    def change(file):
        start = place * len(data) if place >= 0 else len(file) + place * len(data)
        file[start : start + len(data)] = data

    return change


def test_ids_outside_the_vocabulary_are_found_despite_right_hashes(tmp_path):
    write_texts(tmp_path / "a", "raw", WIDE)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    reseal(tmp_path / "a", "train_000001.bin", put(2, 70_001, "<u4"))
    with pytest.raises(
        TokenFilesCorruptError, match=r"train_000001.bin holds the id 70001 at index 2"
    ):
        verify_token_files(tmp_path / "a")
    use = TokenFiles.open(tmp_path / "b").token_counts()
    changed = TokenFiles.open(tmp_path / "b").map_shard(1)[2]
    reseal(tmp_path / "b", "train_000001.bin", put(2, 300, "<u4"))  # a gap of the vocabulary
    with pytest.raises(TokenFilesCorruptError, match=r"train.token-use.u64 does not say how often"):
        verify_token_files(tmp_path / "b")
    reseal(tmp_path / "b", "train.token-use.u64", put(300, 1))
    reseal(tmp_path / "b", "train.token-use.u64", put(changed, use[changed] - 1))
    verify_token_files(tmp_path / "b")
    with pytest.raises(TokenFilesCorruptError, match="holds the id 300 at index 2"):
        verify_token_files(tmp_path / "b", tokenizer=WIDE)


def test_special_tokens_that_are_not_in_the_texts_are_found(tmp_path):
    manifest = write_texts(tmp_path / "t", "raw", WIDE)
    train, validation = manifest.splits
    assert train.special_tokens_found == {"<|end|>": 1}
    assert validation.special_tokens_found == {}
    # Those around documents do not stand in texts, nor do any of an encoder of conversations.
    plan = plan_token_files(NARROW, end_of_document="<|end|>")
    ids = np.array([257, 97, 258, 258, 98, 258])
    with TokenFilesWriter(tmp_path / "ends", plan) as writer:
        writer.append_batch(ids, [0, 3, 6])
        ids[:] = 1  # the caller's again
        (ends,) = writer.finish().splits
    assert ends.special_tokens_found == {"<|begin|>": 1, "<|end|>": 1}
    masked = write(tmp_path / "masked", replace(plan, loss_mask=True), [[257, 97, 258, 98, 258]])
    assert masked.split("train").special_tokens_found == {}
    verify_token_files(tmp_path / "masked")
    for name, written, wrong in (
        ("t", manifest, ({}, {"<|end|>": 2}, {"<|end|>": 1, "<|begin|>": 1})),
        ("masked", masked, ({"<|begin|>": 1, "<|end|>": 1},)),
    ):
        for found in wrong:
            splits = (replace(written.splits[0], special_tokens_found=found), *written.splits[1:])
            changed = replace(written, splits=splits)
            (tmp_path / name / "manifest.json").write_bytes(changed.to_json())
            with pytest.raises(TokenFilesCorruptError, match="which special tokens stand in train"):
                verify_token_files(tmp_path / name)


ENDS = "train.document-ends.u64"


@pytest.mark.parametrize(
    ("layout", "name", "change", "message"),
    [
        ("raw", ENDS, put(-1, 7), "goes back"),
        ("raw", ENDS, put(0, 1 << 63), "goes back"),
        ("raw", ENDS, put(-1, 999), "ends at 999, and train has"),
        ("megatron", ENDS, put(-1, 7), "goes back"),
        ("megatron", ENDS, put(0, 3), "does not agree with"),
        ("megatron", "train_000001.bin", put(0, -5, "<i4"), "holds the id -5 at index 0"),
        ("megatron", "train_000000.idx", put(2, 77, "u1"), "is no Megatron index of int32 ids"),
        ("megatron", "train_000000.idx", put(17, 8, "u1"), "is no Megatron index of int32 ids"),
        ("megatron", "train_000000.idx", put(26, 77, "u1"), "is no Megatron index of int32 ids"),
        ("megatron", "train_000000.idx", bytearray.pop, "is no Megatron index of int32 ids"),
        ("megatron", "train_000000.idx", put(34, 77, "u1"), "train_000000.idx does not agree with"),
        ("megatron", "train_000000.idx", put(-1, 77, "u1"), "train_000000.idx does not agree with"),
        ("parquet", ENDS, put(0, 3), "train_000000.parquet does not agree with"),
        ("parquet", "train_000000.bin", put(0, 7, "<u4"), "000000.parquet does not agree with"),
        ("parquet", "train_000000.parquet", bytearray.pop, "is no Parquet file"),
        ("llmc", "train_000000.bin", put(8, 77, "u1"), "bin does not begin with the header"),
        ("npy", "train_000000.npy", put(70, 77, "u1"), "npy does not begin with the header"),
    ],
)
def test_damage_is_found_despite_right_hashes(layout, name, change, message, tmp_path):
    write_texts(tmp_path / "t", layout, WIDE)
    reseal(tmp_path / "t", name, change)
    with pytest.raises(TokenFilesCorruptError, match=message):
        verify_token_files(tmp_path / "t")


@pytest.mark.parametrize(("count", "message"), [(0, "too few doc"), (99, "too many doc")])
def test_a_megatron_index_of_another_number_of_documents_is_refused(count, message, tmp_path):
    write_texts(tmp_path / "t", "megatron")

    def change(file):
        file[18:] = np.array([count, count + 1], "<u8").tobytes()
        file += bytes(12 * count + 8 * (count + 1))

    last = sorted((tmp_path / "t").glob("train*.idx"))[-1].name
    reseal(tmp_path / "t", last, change)
    with pytest.raises(TokenFilesCorruptError, match=message):
        verify_token_files(tmp_path / "t")


@pytest.mark.parametrize(("name", "place"), [("begin", 0), ("end", 1)])
def test_documents_without_their_begin_or_end_are_found(name, place, tmp_path):
    plan = plan_token_files(NARROW, **{"end_of_document": "", f"{name}_of_document": "<|end|>"})
    for number, (file, change) in enumerate(
        (("train.bin", put(place, 5, "<u2")), (ENDS, put(0, 3)))
    ):
        folder = tmp_path / str(number)
        write(folder, plan, [[258, 258], [258]])
        verify_token_files(folder)
        reseal(folder, file, change)
        with pytest.raises(TokenFilesCorruptError, match="does not begin or end with id 258"):
            verify_token_files(folder)


def test_texts_are_compared_without_the_tokens_around_documents(tmp_path):
    plan = plan_token_files(NARROW, begin_of_document="<|begin|>", end_of_document="<|end|>")
    write(tmp_path / "t", plan, [[257, *ids, 258] for ids in encode_all(NARROW, TEXTS)])
    write_texts(tmp_path / "cut", "raw")
    reseal(tmp_path / "cut", ENDS, put(0, 3))
    for folder in tmp_path.iterdir():
        verify_token_files(folder)
    verify_token_files(tmp_path / "t", tokenizer=NARROW, texts={"train": TEXTS})
    for name, texts, message in (
        ("t", [*TEXTS[:-1], "other"], "document 4 of train does not decode to its text"),
        ("t", TEXTS[:-1], "train has more documents than there are texts"),
        ("t", [*TEXTS, "more"], "train has more texts than there are documents"),
        ("cut", TEXTS, "document 0 of train does not decode"),
    ):
        with pytest.raises(TokenFilesCorruptError, match=message):
            verify_token_files(tmp_path / name, tokenizer=NARROW, texts={"train": texts})


UPPER = ["lower", "low \ufb01 b A", "a"]
# Each makes a tokenizer; its texts, and how many of them it does not decode to themselves.
CHANGED = {
    # NFC would join the last character of the special token with the text after it.
    "nfc": (
        lambda: trained_spec(
            normalizer="nfc", pattern="qwen2", special_tokens=[AddedToken("<|a|>", 900)]
        ),
        ["cafe\u0301", "<|a|>\u0338x", "\u2126"],
        2,
    ),
    "white space": (
        lambda: trained_spec(special_tokens=[AddedToken("<m>", 900, lstrip=True, rstrip=True)]),
        ["low  <m> \n er", " <m>", "low"],
        2,
    ),
    "steps": (lambda: parse_tokenizer_json(file_of({"type": "NFKC"})), UPPER, 1),
    "missing bytes": (lambda: parse_tokenizer_json(file_without_bytes(None)), UPPER, 1),
    "suffix": (lambda: parse_tokenizer_json(clip("clip")), UPPER, 3),
    "dropped text": (
        lambda: trained_spec(pattern=SplitPattern("custom", r"\w+", "oniguruma", "drop")),
        UPPER,
        1,
    ),
    "two names": (
        lambda: trained_spec(
            special_tokens=[AddedToken("<a>", 900), AddedToken("\ufb01 b A", 900)]
        ),
        UPPER,
        1,
    ),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_texts_that_a_tokenizer_changes_are_lossy_and_not_corrupt(kind, tmp_path):
    make, texts, n_lossy = CHANGED[kind]
    tokenizer = Tokenizer.from_spec(make())
    write(
        tmp_path / "t",
        plan_token_files(tokenizer, end_of_document=""),
        encode_all(tokenizer, texts),
    )
    found = verify_token_files(tmp_path / "t", tokenizer=tokenizer, texts={"train": texts})
    assert (found.n_texts, found.n_lossy) == (3, n_lossy)
    for other in ("lows \ufb01 b A", "lower"):
        given = {"train": [texts[0], other, texts[2]]}
        with pytest.raises(TokenFilesCorruptError, match="document 1 of train"):
            verify_token_files(tmp_path / "t", tokenizer=tokenizer, texts=given)


def test_another_tokenizer_and_an_unknown_split_are_refused(tmp_path):
    write_texts(tmp_path / "t")
    for how, error, message in (
        ({"tokenizer": WIDE}, TokenizerMismatchError, "are of another tokenizer"),
        ({"texts": {"train": TEXTS}}, TokenFilesError, "needs the tokenizer"),
        ({"tokenizer": NARROW, "texts": {"test": TEXTS}}, LookupError, "no split 'test'"),
    ):
        with pytest.raises(error, match=message):
            verify_token_files(tmp_path / "t", **how)
    with pytest.raises(TokenizerMismatchError, match="name that tokenizer"):
        TokenFiles.open(tmp_path / "t", WIDE)
    with pytest.raises(TokenizerMismatchError):
        TokenFiles.open(tmp_path / "t", NARROW).decode_document(0, WIDE)
