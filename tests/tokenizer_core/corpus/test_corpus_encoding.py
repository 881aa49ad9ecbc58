"""The ids of each document of files, with the ids that the plan puts around it."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

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
    TokenFiles,
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
