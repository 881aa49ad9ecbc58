"""Every command that reads a corpus reads the same documents, in any format."""

import json

import pytest

from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core.registry import ArtifactStore

DOCUMENTS = [f"document {number}: low lower lowest, new newer newest" for number in range(12)]


@pytest.fixture
def corpora(cli):
    """The same documents in three formats, and as text with the default special token."""
    made = {
        name: write_corpus(cli.folder / f"corpus.{name}", DOCUMENTS, name)
        for name in ("txt", "jsonl", "parquet")
    }
    stories = [json.dumps({"story": text}) for text in DOCUMENTS]
    made["story"] = cli.folder / "stories.jsonl"
    made["story"].write_text("\n".join(stories))
    made["hidden"] = cli.folder / "hidden.txt"
    made["hidden"].write_text("\n".join(stories))
    return made


def options_of(name):
    return {"story": ["--field=story"], "hidden": ["--format=jsonl", "--field=story"]}.get(name, [])


def test_training_and_counting(cli, corpora):
    digests, pre_tokens = set(), set()
    for name, path in corpora.items():
        options = options_of(name)
        cli.run("train", str(path), *options, "--vocab-size=300", "--name=learned", "--quiet")
        store = ArtifactStore(cli.folder / "artifacts")
        digests.add(store.open(store.resolve("learned")).fingerprint)
        shown, _ = cli.run(
            "counts", "make", str(path), *options, "--output=x.counts", "--json", "--quiet"
        )
        figures = json.loads(shown)
        pre_tokens.add(
            (figures["n_pre_tokens"], figures["n_distinct_pre_tokens"], figures["n_documents"])
        )
    assert len(digests) == len(pre_tokens) == 1
    cli.run("counts", "make", str(corpora["txt"]), "--output=twice.counts", "--quiet")
    more = str(corpora["story"])
    shown, _ = cli.run(
        "counts", "extend", "twice.counts", more, "--field=story", "--json", "--quiet"
    )
    assert json.loads(shown)["n_pre_tokens"] == 2 * next(iter(pre_tokens))[0]
    for command in (["train"], ["counts", "make", "--output=x.counts"]):
        said = cli.fail(*command, str(corpora["hidden"]), "--quiet")
        assert "is JSON lines, and its name does not say so" in said
        assert "--format" in said


def test_measuring(cli, corpora):
    cli.run("train", str(corpora["txt"]), "--vocab-size=300", "--name=learned", "--quiet")
    measured = set()
    for name, path in corpora.items():
        options = [f"--corpus=x={path}", *options_of(name), "--quiet"]
        shown, _ = cli.run("report", "learned", *options, "--json")
        (figures,) = json.loads(shown)["measurements"]
        measured.add((figures["n_bytes"], figures["n_tokens"]))
        options[0] = f"--corpus={path}"
        shown, _ = cli.run("compare", "learned", "learned", *options, "--json")
        assert json.loads(shown)["text"]["n_bytes"] == figures["n_bytes"]
    assert measured == {(len("".join(DOCUMENTS)), min(measured)[1])}
    said = cli.fail("report", "learned", f"--corpus={corpora['hidden']}", "--quiet")
    assert "is JSON lines, and its name does not say so" in said


COMMANDS = [
    ("train", "corpus.txt"),
    ("counts", "make", "corpus.txt", "--output=x.counts"),
    ("corpus", "encode", "corpus.txt", "--output=x"),
    ("corpus", "sample", "corpus.txt", "--fraction=0.5", "--output=x.jsonl"),
    ("report", "starter", "--corpus=corpus.txt"),
    ("compare", "starter", "starter", "--corpus=corpus.txt"),
]


def test_text_has_no_field_and_json_lines_have_no_separator(cli, corpora):
    for command in COMMANDS:
        error = cli.fail(*command, "--field=story", code=2)
        assert "leave it out, or name the --format" in error
        error = cli.fail(*command, "--field=text", "--format=txt.gz", code=2)
        assert "the corpus is text" in error
        command = tuple(word.replace("corpus.txt", "corpus.jsonl") for word in command)
        error = cli.fail(*command, "--separator=|", code=2)
        assert "--separator is of plain text, and by its name the corpus is none" in error
