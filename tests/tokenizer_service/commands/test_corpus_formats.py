"""Every command that reads a corpus reads the same documents, in any format."""

import json

import pytest

from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core.corpus import TokenFiles, encoding_run
from tokenizer_core.registry import ArtifactStore

DOCUMENTS = [f"document {number}: low lower lowest, new newer newest" for number in range(12)]
STORIES = "\n".join(json.dumps({"story": text}) for text in DOCUMENTS)
CORPORA = {
    "stories.jsonl": ["--field=story"],
    "hidden.txt": ["--format=jsonl", "--field=story"],
    "mixed.jsonl": ["--field=story", "--field=body"],
    "corpus.txt": [],
    "corpus.jsonl": [],
    "corpus.parquet": [],
}
"""The same documents in three formats, and their options; in three with other fields."""


@pytest.fixture
def corpora(cli):
    for name in ("txt", "jsonl", "parquet"):
        write_corpus(cli.folder / f"corpus.{name}", DOCUMENTS, name)
    for name in ("stories.jsonl", "hidden.txt"):
        (cli.folder / name).write_text(STORIES)
    (cli.folder / "mixed.jsonl").write_text(STORIES.replace("story", "body", 5))
    return cli


def test_training_counting_and_measuring(corpora):
    def figures(*words):
        return json.loads(corpora.run(*words, "--json")[0])

    store = ArtifactStore(corpora.folder / "artifacts")
    found = []
    for name, options in CORPORA.items():
        corpora.run("train", name, *options, "--vocab-size=300", "--name=learned", "--quiet")
        counted = figures("counts", "make", name, *options, "--output=x.counts")
        (measured,) = figures("report", "learned", f"--corpus=x={name}", *options)["measurements"]
        compared = figures("compare", "learned", "learned", f"--corpus={name}", *options)["text"]
        assert measured["n_bytes"] == compared["n_bytes"] == len("".join(DOCUMENTS))
        row = [counted[key] for key in ("n_pre_tokens", "n_distinct_pre_tokens", "n_documents")]
        digest = store.open(store.resolve("learned")).fingerprint
        found.append([*row, measured["n_tokens"], digest])
    assert all(row == found[0] for row in found)
    for command in (
        ("train", "hidden.txt"),
        ("counts", "make", "hidden.txt", "--output=x.counts"),
        ("report", "learned", "--corpus=hidden.txt"),
        ("count", "--file=hidden.txt"),
    ):
        said = corpora.fail(*command, "--quiet")
        assert "is JSON lines, and its name does not say so" in said
        assert "--format" in said


def test_text_has_no_field_and_json_lines_have_no_separator(corpora):
    for command in (
        ("train", "corpus.txt"),
        ("corpus", "encode", "corpus.txt", "--output=x"),
        ("report", "starter", "--corpus=corpus.txt"),
    ):
        error = corpora.fail(*command, "--field=story", code=2)
        assert "leave it out, or name the --format" in error
        error = corpora.fail(*command, "--field=text", "--format=txt.gz", code=2)
        assert "the corpus is text" in error
        command = tuple(word.replace("corpus.txt", "corpus.jsonl") for word in command)
        error = corpora.fail(*command, "--separator=|", code=2)
        assert "--separator is of plain text, and by its name the corpus is none" in error


def test_training_warns_of_document_ends_that_are_text(cli):
    (cli.folder / "ends.txt").write_text("a b<|endoftext|>" * 400)
    for names, is_learned in (
        (["--special-token=</s>"], True),
        (["--special-token=</s>", "--separator=<|endoftext|>"], False),
        ([], False),
    ):
        out, told = cli.run("train", "ends.txt", *names, "--vocab-size=275", "--quiet")
        assert any(n_bytes in out for n_bytes in (b" 1,200 bytes, ", b" 6,400 bytes, "))
        assert ("warning: the text has '<|endoftext|>'" in told) == is_learned


@pytest.mark.row(46)
def test_bad_documents_are_left_out_up_to_a_share(corpora):
    for name in ("a", "b"):
        (corpora.folder / name).mkdir()
        (corpora.folder / name / "bad.jsonl").write_text(f'{STORIES}\n{{"story": null}}')
    read = ("a/bad.jsonl", "b/bad.jsonl", "--field=story")
    encode = ("corpus", "encode", *read, "--tokenizer=starter", "--output")
    for command in (
        ("train", *read, "--vocab-size=300"),
        ("counts", "make", *read, "--output=x.counts"),
        (*encode, "tokens"),
    ):
        place = (
            "a/bad.jsonl', line 13: its field 'story' is no string; mend the line, or leave it "
            "out; or leave bad documents out (--skip-bad)\n"
        )
        assert place in corpora.fail(*command, "--quiet")
        assert "belongs to --skip-bad" in corpora.fail(*command, "--max-bad=0.1", code=2)
        assert "no fraction" in corpora.fail(*command, "--skip-bad", "--max-bad=2", code=2)
        command += ("--quiet", "--skip-bad")
        said = "2 bad (null 2: a/bad.jsonl line 13, b/bad.jsonl line 13)"
        assert f"{said} of 26 documents, more than 1.000%" in corpora.fail(*command)
        command += ("--resume",) * ("encode" in command)
        assert said in str(corpora.run(*command, "--max-bad=0.1"))
    for command in (
        ("counts", "make", *read, "--output=y.counts", "--checkpoint-dir=counts"),
        (*encode, "by workers", "--checkpoint-dir=run"),
    ):
        command += ("--workers=1", "--skip-bad", "--max-bad=0.1")
        assert said in str(corpora.run(*command))
    for name in ("tokens", "by workers"):
        sources = TokenFiles.open(corpora.folder / name).manifest.sources
        assert [source.path for source in sources] == ["a/bad.jsonl", "b/bad.jsonl"]
    assert "corpus   b/bad.jsonl" in corpora.run("counts", "inspect", "x.counts")[0].decode()
    for name in ("x.counts", "y.counts"):
        figures = json.loads(corpora.run("counts", "inspect", name, "--json")[0])
        assert figures["n_documents"] == 24


@pytest.mark.row(46)
def test_bytes_that_are_not_utf8_are_a_bad_document(corpora):
    (corpora.folder / "bad.txt").write_bytes(b"one\n\xff")
    skip = "or leave bad documents out (--skip-bad)"
    for command in (("train",), ("corpus", "encode", "--tokenizer=starter", "--output=t")):
        assert skip in corpora.fail(*command, "bad.txt", "--quiet")
    assert skip not in corpora.fail("report", "starter", "--corpus=bad.txt")


@pytest.mark.row(46)
def test_a_mended_corpus_is_continued_with_resume(corpora, monkeypatch):
    fields = ("--field=story", "--field=body")
    encode = ("corpus", "encode", "stories.jsonl", "bad.jsonl", *fields, "--output=tokens")
    bad = corpora.folder / "bad.jsonl"
    bad.write_text(f'{STORIES}\n{{"story": "\\ud800"}}')
    corpora.fail(*encode, "--tokenizer=starter", "--quiet")
    assert not (corpora.folder / ".tokens.partial").exists()  # it failed within seconds
    monkeypatch.setattr(encoding_run, "CHECKPOINT_SECONDS", 0)
    error = corpora.fail(*encode, "--tokenizer=starter", "--quiet", "--skip-bad")
    assert "lone_surrogate 1: bad.jsonl line 13" in error
    assert "the same command with --resume continues" in error
    bad.write_text(STORIES.replace("story", "body"))
    out, _ = corpora.run(*encode, "--tokenizer=starter", "--quiet", "--resume")
    assert out.decode().startswith("train: 24 documents, ")
    assert "left out" not in out.decode()
    _, told = corpora.run(*encode, "--tokenizer=starter", "--quiet", "--resume")
    assert "tokens is complete already" in told
