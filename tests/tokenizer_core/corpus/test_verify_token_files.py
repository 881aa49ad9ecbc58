"""Verification finds damage anywhere, also damage that changes no hash."""

import shutil
from dataclasses import replace

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
from tests.tokenizer_core.formats.normalizer_files import file_of, file_without_bytes
from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_core.formats.test_tokenizer_json_clip import clip
from tokenizer_core import AddedToken, Tokenizer
from tokenizer_core.corpus import TokenFiles, TokenFilesWriter, plan_token_files, verify_token_files
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenizerMismatchError
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json
from tokenizer_core.patterns import SplitPattern


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_sound_files_pass_verification(layout, tmp_path):
    write_texts(tmp_path / "t", layout)
    seen: list[tuple[int, int]] = []
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
        ("megatron", "train_000000.idx", put(34, 77, "u1"), "train_000000.idx does not agree with"),
        ("megatron", "train_000000.idx", put(38, 77, "u1"), "train_000000.idx does not agree with"),
        ("megatron", "train_000000.idx", put(60, 77, "u1"), "train_000000.idx does not agree with"),
        ("megatron", "train_000000.idx", put(-1, 77, "u1"), "train_000000.idx does not agree with"),
        (
            "llmc",
            "train_000000.bin",
            put(8, 77, "u1"),
            "train_000000.bin does not begin with the header",
        ),
        (
            "npy",
            "train_000000.npy",
            put(70, 77, "u1"),
            "train_000000.npy does not begin with the header",
        ),
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
    plan = plan_token_files(NARROW, **{f"{name}_of_document": "<|end|>"})
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
    write(tmp_path / "t", plan_token_files(tokenizer), encode_all(tokenizer, texts))
    found = verify_token_files(tmp_path / "t", tokenizer=tokenizer, texts={"train": texts})
    assert (found.n_texts, found.n_lossy) == (3, n_lossy)
    for other in ("lows \ufb01 b A", "lower"):
        given = {"train": [texts[0], other, texts[2]]}
        with pytest.raises(TokenFilesCorruptError, match="document 1 of train"):
            verify_token_files(tmp_path / "t", tokenizer=tokenizer, texts=given)


def test_another_tokenizer_and_an_unknown_split_are_refused(tmp_path):
    write_texts(tmp_path / "t")
    for how, error, message in (
        ({"tokenizer": WIDE}, TokenizerMismatchError, "written by another tokenizer"),
        ({"texts": {"train": TEXTS}}, TokenFilesError, "needs the tokenizer"),
        ({"tokenizer": NARROW, "texts": {"test": TEXTS}}, LookupError, "no split 'test'"),
    ):
        with pytest.raises(error, match=message):
            verify_token_files(tmp_path / "t", **how)
