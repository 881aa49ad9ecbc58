"""The ids of each document of files, with those around it, up to the limit of length."""

import gzip
import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tests.tokenizer_core.documents.file_changes import rewrite, truncate
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    EncodingProgress,
    LostTokens,
    OverLength,
    TokenFiles,
    TokenFilesPlan,
    TokenFilesWriter,
    TokenManifest,
    corpus_encoding,
    document_cuts,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.documents import corpus_files
from tokenizer_core.errors import (
    CorpusChangedError,
    CorpusError,
    SpecialTokenForbiddenError,
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    TokenizerMismatchError,
)

documents = st.lists(
    st.text(st.sampled_from("ab \n<|é🙂") | st.characters(exclude_categories=["Cs"]), max_size=40),
    min_size=1,
    max_size=12,
)


def write_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def encode(
    folder: Path, texts: list[str], tokenizer: Tokenizer = NARROW, **options: object
) -> TokenManifest:
    """The documents of one file of JSON lines, into `folder`/tokens."""
    file = write_lines(folder / "corpus.jsonl", texts)
    plan_names = ("layout", "begin_of_document", "end_of_document", "seed", "allowed_special")
    planned = {name: options.pop(name) for name in plan_names if name in options}
    plan = plan_token_files(tokenizer, **planned)
    return encode_corpus(tokenizer, [file], folder / "tokens", plan, **options)


@examples(1 / 5)  # other threads run meanwhile
@given(
    documents,
    st.sampled_from([None, "<|begin|>"]),
    st.sampled_from([None, "<|end|>"]),
    st.integers(1, 60),
    st.sampled_from(["all", "none"]),
    st.sampled_from([NARROW, WIDE]),
)
def test_each_document_is_encoded_as_if_alone(
    tmp_path_factory, texts, begin, end, batch_bytes, allowed, tokenizer
):
    texts = [*texts, "one <|end|> more<|begin|>"]
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
        manifest = encode(
            folder,
            texts,
            tokenizer,
            begin_of_document=begin,
            end_of_document=end,
            allowed_special=allowed,
        )
    special = tokenizer.spec.special_tokens
    files = TokenFiles.open(folder / "tokens", tokenizer)
    assert files.n_documents() == len(texts)
    for index, text in enumerate(texts):
        expected = [special[name] for name in (begin,) if name]
        expected += tokenizer.encode(text, allowed_special=allowed)
        expected += [special[name] for name in (end,) if name]
        assert files.document(index).tolist() == expected
    assert manifest.split("train").n_bytes == sum(len(text.encode()) for text in texts)
    verify_token_files(folder / "tokens", tokenizer=tokenizer)


def test_the_share_is_drawn_from_the_seed(tmp_path):
    texts = [f"{index} " for index in range(1000)]
    kept = {}
    for name, seed, share in (("a", 1, 0.1), ("b", 1, 0.3), ("c", 2, 0.1)):
        (tmp_path / name).mkdir()
        encode(tmp_path / name, texts, seed=seed, validation_share=share)
        files = TokenFiles.open(tmp_path / name / "tokens")
        held_out = range(files.n_documents("validation"))
        kept[name] = {files.decode_document(index, NARROW, "validation") for index in held_out}
        assert files.n_documents() + len(held_out) == len(texts)
    assert 60 < len(kept["a"]) < 140
    assert kept["a"] < kept["b"]  # a larger share holds out the same ones and more
    assert kept["a"] != kept["c"]


def test_several_files_are_one_corpus_and_each_is_in_the_manifest(tmp_path):
    first, second = tmp_path / "1.txt", tmp_path / "2.jsonl.gz"
    first.write_text("one<|end|>two<|end|>")
    second.write_bytes(gzip.compress(b'{"text": "three"}\n'))
    seen: list[EncodingProgress] = []
    manifest = encode_corpus(
        NARROW,
        [first, second],
        tmp_path / "tokens",
        plan_token_files(NARROW, end_of_document="<|end|>"),
        corpus_format=CorpusFormat(separator="<|end|>"),
        progress=seen.append,
    )
    files = TokenFiles.open(tmp_path / "tokens", NARROW)
    found = [files.decode_document(index, NARROW) for index in range(3)]
    assert found == ["one<|end|>", "two<|end|>", "three<|end|>"]
    expected = [
        (path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (first, second)
    ]
    told = [(source.path, source.size_bytes, source.sha256) for source in manifest.sources]
    assert told == expected
    total = sum(size for _, size, _ in expected)
    assert [(now.bytes_done, now.bytes_total) for now in seen][-1] == (total, total)
    assert (seen[-1].n_documents, seen[-1].n_tokens) == (3, files.n_tokens())


@pytest.mark.row(26)
@pytest.mark.parametrize(
    ("change", "name"), [(truncate, "corpus.jsonl.gz"), (rewrite, "corpus.txt")]
)
def test_a_file_that_changes_between_two_batches_is_an_error(
    change, name, tmp_path, engine, monkeypatch
):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 100)
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 1000)
    texts = [hashlib.sha256(bytes([n])).hexdigest() * 40 for n in range(40)]
    file = write_corpus(tmp_path / name, texts, name.partition(".")[2])
    changes = [change]

    def change_once(progress: EncodingProgress) -> None:
        if changes:
            changes.pop()(file)

    tokenizer = Tokenizer.from_spec(NARROW.spec, engine=engine)
    plan = plan_token_files(tokenizer)
    with pytest.raises(CorpusChangedError, match="changed while it was read"):
        encode_corpus(tokenizer, [file], tmp_path / "tokens", plan, progress=change_once)


def test_a_failed_encoding_leaves_nothing(tmp_path):
    def fails(error: type[Exception], match: str, **options: object) -> None:
        with pytest.raises(error, match=match):
            encode(tmp_path, ["text <|end|>"], **options)
        assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]

    fails(TokenFilesPlanError, "validation_share", validation_share=1.0)
    fails(TokenFilesPlanError, "validation_share", validation_share=float("nan"))
    fails(CorpusError, "line 1", corpus_format=CorpusFormat(field="story"))
    fails(CorpusError, "line 1", corpus_format=CorpusFormat(field="story"), shuffle=True)
    fails(CorpusError, "UTF-8|gzip", corpus_format=CorpusFormat(format="txt.gz"))
    with pytest.raises(TokenFilesError, match="no ids were written"):
        encode(tmp_path, ["", ""])
    file = tmp_path / "corpus.jsonl"
    with pytest.raises(TokenizerMismatchError):
        encode_corpus(WIDE, [file], tmp_path / "tokens", plan_token_files(NARROW))
    plan = plan_token_files(NARROW, allowed_special="none", disallowed_special="all")
    write_lines(file, ["one", "two<|end|>"])
    with pytest.raises(SpecialTokenForbiddenError):
        encode_corpus(NARROW, [file], tmp_path / "tokens", plan)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.parametrize(
    ("name", "place", "engine", "normalizer"),
    [
        ("b.txt", "document 30", "auto", "none"),
        ("b.jsonl.gz", "line 31", "python", "nfc"),
        ("b.parquet", "row 30", "auto", "nfc"),
    ],
)
def test_a_bad_document_is_reported_with_file_and_place(
    tmp_path, monkeypatch, engine, normalizer, name, place
):
    monkeypatch.setattr(document_cuts, "MAX_PENDING_CHARS", 1000)
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 100)
    tokenizer = Tokenizer.from_spec(replace(NARROW.spec, normalizer=normalizer), engine=engine)
    texts = [f"number e\u0301 {number}" for number in range(40)]
    files = [write_corpus(tmp_path / "a.txt", ["one", "two"], "txt"), tmp_path / name]
    plan = plan_token_files(tokenizer, allowed_special="none", disallowed_special="all")
    for text, error, message in (
        ("a long text " * 100 + "<|end|> and", SpecialTokenForbiddenError, "the text holds"),
        ("one two " * 100 + "ACGT" * 1000, CorpusError, "a document has no"),
    ):
        texts[30] = text
        write_corpus(files[1], texts, name.partition(".")[2])
        how = {"corpus_format": CorpusFormat(separator=SEPARATOR), "resume": engine == "python"}
        for _ in range(2):
            with pytest.raises(error) as caught:
                encode_corpus(tokenizer, files, tmp_path / f"{error}", plan, **how)
            told = f"the corpus file '{files[1]}', {place}: {message}"
            assert str(caught.value).startswith(told)


@pytest.mark.parametrize(("engine", "batch_bytes"), [("auto", 20), ("python", 1 << 19)])
def test_bytes_that_are_not_utf8_are_reported_with_file_and_offset(
    tmp_path, monkeypatch, engine, batch_bytes
):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    tokenizer = Tokenizer.from_spec(NARROW.spec, engine=engine)
    good, bad = tmp_path / "a.txt", tmp_path / "b.txt"
    good.write_text("good|words")
    bad.write_bytes("né|".encode() * 30 + b"more\xffwords|" + b"end")
    with pytest.raises(CorpusError, match=r"b\.txt' is not UTF-8: its text is wrong at byte 124;"):
        encode_corpus(
            tokenizer,
            [good, bad],
            tmp_path / "tokens",
            plan_token_files(tokenizer),
            corpus_format=CorpusFormat(separator="|"),
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


END = 258


def plan_of(limit: int | None, over: OverLength, **how: Any) -> TokenFilesPlan:
    how.setdefault("end_of_document", "<|end|>")
    return plan_token_files(NARROW, max_length=limit, over_length=over, **how)


TEXTS = [("a b " * 100)[:n] for n in (3, 9, 1, 400, 10, 0, 11, 5)]


def write_letters(folder: Path) -> list[Path]:
    (folder / "corpus.txt").write_text("|".join(TEXTS))
    return [folder / "corpus.txt"]


def encode_limited(folder: Path, files: list[Path], plan: TokenFilesPlan, **how: Any) -> TokenFiles:
    options = {"corpus_format": CorpusFormat(separator="|"), **how}
    encode_corpus(NARROW, files, folder, plan, **options)
    verify_token_files(folder, tokenizer=NARROW)
    return TokenFiles.open(folder)


@pytest.mark.parametrize("batch_bytes", [1, 20, 1 << 19])
@pytest.mark.parametrize(("over", "shuffle"), [("truncate", True), ("drop", True), ("drop", False)])
def test_the_manifest_counts_lost_tokens(over, shuffle, batch_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    plan = plan_of(11, over)
    files = encode_limited(tmp_path / "t", write_letters(tmp_path), plan, shuffle=shuffle)
    # With the end id a text of 10 letters is exactly 11 ids long.
    (split,) = files.manifest.splits
    documents = [files.document(index).tolist() for index in range(split.n_documents)]
    lengths = [len(document) for document in documents]
    if over == "truncate":
        assert split.lost == LostTokens(2, 0, 390 + 1)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11, 11, 11]
        assert split.n_bytes == sum(map(len, TEXTS))
        # Of whole documents: their letters and ends.
        assert split.bytes_per_token == split.n_bytes / (split.n_bytes + len(TEXTS))
    else:
        assert split.lost == LostTokens(0, 2, 401 + 12)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11]
        assert split.n_bytes == 3 + 9 + 1 + 10 + 0 + 5
    assert all(document[-1] == END for document in documents)
    if not shuffle:
        assert lengths[:2] == [4, 10]


@pytest.mark.parametrize("normalizer", ["none", "nfc"])
@pytest.mark.parametrize("end", [None, "<|end|>"])
def test_truncated_documents_are_compared_with_the_beginning_of_their_text(
    end, normalizer, tmp_path
):
    tokenizer = Tokenizer.from_spec(replace(NARROW.spec, normalizer=normalizer))
    texts = ["ab\u0301", "é漢" * 9, "ab e\u0301" * 5, "", "x" * 10]
    (tmp_path / "corpus.txt").write_text("|".join(texts))
    plan = plan_token_files(tokenizer, max_length=10, end_of_document=end)
    how = CorpusFormat(separator="|")
    encode_corpus(tokenizer, [tmp_path / "corpus.txt"], tmp_path / "t", plan, corpus_format=how)
    verify = partial(verify_token_files, tmp_path / "t", tokenizer=tokenizer)
    found = verify(texts={"train": texts})
    assert (found.n_texts, found.n_lossy) == (5, int(normalizer == "nfc"))
    for index, other in ((0, "ab"), (0, "ab\u0301c"), (1, "é漢é"), (1, "漢é" * 9), (4, "x" * 8)):
        wrong = [*texts[:index], other, *texts[index + 1 :]]
        with pytest.raises(TokenFilesCorruptError, match=f"document {index} of train does not"):
            verify(texts={"train": wrong})


def test_the_writer_refuses_a_longer_document(tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_of(3, "drop")) as writer:
        with pytest.raises(TokenFilesPlanError, match="has 4 ids, and the plan's max_length is 3"):
            writer.append([1, 2, 3, END])
        writer.append([1, 2, END])
        writer.finish()


def test_verifying_finds_a_longer_document(tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_of(4, "drop")) as writer:
        writer.append([1, 2, 3, END])
        manifest = writer.finish()
    data = manifest.to_json()
    shorter = replace(manifest, plan=replace(manifest.plan, max_length=3)).to_json()
    assert data != shorter
    (tmp_path / "t" / "manifest.json").write_bytes(shorter)
    with pytest.raises(TokenFilesCorruptError, match="a document of 4 ids"):
        verify_token_files(tmp_path / "t")
