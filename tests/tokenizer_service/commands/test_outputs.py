"""Outputs of commands: complete or absent, also after an interrupt or an error."""

import gzip
import json
import os
import signal

import pytest

from tokenizer_core.documents.document_pieces import DEFAULT_PIECE_CHARS
from tokenizer_service.commands import coders, evaluation, training


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_an_output_may_be_a_link_or_a_device(trained):
    (trained.folder / "real").write_bytes(b"before")
    (trained.folder / "link").symlink_to("real")
    trained.run("encode", "low", "-o", "link")
    assert (trained.folder / "link").is_symlink()
    assert (trained.folder / "real").read_bytes() == trained.run("encode", "low")[0]
    trained.run("encode", "low", "-o", "/dev/null")
    assert "No space left" in trained.fail("encode", "low", "-o", "/dev/full")


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_keeps_the_earlier_file(trained, monkeypatch, ending, code):
    (trained.folder / "ids").write_bytes(b"before")
    there = names_in(trained.folder)

    class Ended(coders.StreamingEncoder):
        def finish(self):
            assert names_in(trained.folder) > there  # written to a temporary file
            signal.raise_signal(ending)  # to this thread: it is handled before the next line
            return super().finish()

    monkeypatch.setattr(coders, "StreamingEncoder", Ended)
    # A test run that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        error = trained.fail("encode", "--file=corpus.txt", "-o", "ids", code=code)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted" in error
    assert names_in(trained.folder) == there
    assert (trained.folder / "ids").read_bytes() == b"before"


def test_an_output_that_is_an_input_or_a_corpus_is_refused(trained):
    before = (trained.folder / "corpus.txt").read_bytes()
    trained.run("convert", "worked", "--to=tokenizer.json", "--output=t.json")
    trained.run("counts", "make", "corpus.txt", "--output=c.counts")
    for name in ("page.html", "more.txt"):
        (trained.folder / name).write_bytes(before)
    for words, reason in (
        (("encode", "low", "--files", "t.json", "-o", "t.json"), "also an input"),
        (("report", "t.json", "--corpus=corpus.txt", "--json=./t.json"), "also an input"),
        (("counts", "merge", "c.counts=2", "-o", "c.counts"), "also an input"),
        (("encode", "--file=corpus.txt", "-o", "corpus.txt"), "also an input"),
        (("train", "page.html", "--html", "./page.html"), "also an input"),
        (("report", "worked", "--corpus=corpus.txt", "--html", "more.txt"), "not end in .html"),
        (("train", "corpus.txt", "--json", "more.txt"), "put it before the option"),
        (("train", "corpus.txt", "--json=a.json", "--save-counts=./a.json"), "two outputs go to"),
        (("train", "corpus.txt", "--json=-", "--html=-"), "two outputs go to"),
    ):
        assert reason in trained.fail(*words, code=2)
    for name in ("corpus.txt", "more.txt"):
        assert (trained.folder / name).read_bytes() == before
    assert "is not there" in trained.fail("encode", "low", "-o", "none/ids")
    assert "is a folder" in trained.fail("encode", "low", "-o", ".")
    out, _ = trained.run("report", "worked", "--corpus=corpus.txt", "--json", "/dev/null")
    assert b"bytes/token" in out


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(trained, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    for module, work in ((training, "train"), (evaluation, "build_report")):
        monkeypatch.setattr(module, work, None)
    report = ("report", "worked", "--corpus=corpus.txt")
    for output, words in (
        ("artifacts", ("train", "corpus.txt", "--vocab-size=265")),
        ("new/one", ("train", "corpus.txt", "--artifacts-dir=new/one")),
        ("artifacts", ("import", "gpt2", "--name=gpt2")),
        ("ids", ("encode", "low", "-o", "ids")),
        ("tokens", ("corpus", "encode", "corpus.txt", "-o", "tokens")),
        ("page.html", (*report, "--html=page.html")),
    ):
        said = f": {output} cannot be written: this user may not write to the folder "
        assert said in trained.fail(*words), words


def test_a_page_that_cannot_be_written_does_not_lose_the_table(trained, monkeypatch):
    monkeypatch.setattr(evaluation, "check_outputs", lambda *paths: None)
    words = ("report", "worked", "--corpus=corpus.txt", "--html=none/page.html")
    out, error = trained.run(*words, code=1)
    assert b"bytes/token" in out
    assert "the folder of none/page.html is not there" in error


def test_compressed_text_is_refused_and_a_byte_order_mark_is_skipped(trained):
    (trained.folder / "t.gz").write_bytes(gzip.compress(b"low"))
    line = trained.fail("encode", "--file", "t.gz")
    assert "t.gz is packed with gzip, and this command reads plain text; unpack it first" in line
    assert "'t.gz' is packed with gzip, and its name does" in trained.fail("count", "--file=t.gz")
    assert trained.run("count", "--file=t.gz", "--format=txt.gz") == trained.run("count", "low")
    assert trained.run("decode", stdin=b"\xef\xbb\xbf97 98")[0] == b"ab"


def test_documents_are_counted_by_their_format(trained):
    long = "lowest" * (DEFAULT_PIECE_CHARS // 4)
    texts = ["low lower", "", "newest <|endoftext|> é", long]
    lines = "".join(json.dumps({"body": text}) + "\n" for text in texts)
    (trained.folder / "t.jsonl").write_text(lines, encoding="utf-8")
    (trained.folder / "t.txt.gz").write_bytes(gzip.compress(b"low lower"))
    words = ("count", "--file=t.jsonl", "--field=body")
    for allowed in ("all", "none"):
        option = f"--allowed-special={allowed}"
        each = [int(trained.run("count", option, stdin=text.encode())[0]) for text in texts]
        for named in ((), ("--format=jsonl",)):
            assert int(trained.run(*words, option, *named)[0]) == sum(each)
        mixed = trained.run(*words, option, "--file", "corpus.txt", "t.txt.gz")[0].split()
        whole = trained.run("count", option, "--file=corpus.txt")[0].strip()
        assert mixed[:6:2] == [b"%d" % sum(each), whole, b"%d" % each[0]]
    for command in (words, ("corpus", "encode", "t.jsonl", "--field=body", "--output=o")):
        assert "line 3: the document holds the special token" in trained.fail(*command)
    (trained.folder / "s.txt").write_text("low<|endoftext|>")
    assert trained.run("count", "--file=s.txt") == trained.run("count", "low<|endoftext|>")
    assert "give one of txt, " in trained.fail("count", "--file=t.jsonl", "--format=x", code=2)


def test_figures_as_json_and_a_conversion_into_a_pipe(trained):
    def figures(*words):
        return json.loads(trained.run(*words, "--json")[0])

    (trained.folder / "é.txt").write_text("low é", encoding="utf-8")
    found = figures("count", "--file", "é.txt", "corpus.txt")
    assert found["tokenizer"].startswith("worked@")
    assert figures("count", "low", "--tokenizer=gpt2")["tokenizer"] == "gpt2"
    assert [row["file"] for row in found["files"]] == ["é.txt", "corpus.txt"]
    assert found["tokens"] == sum(row["tokens"] for row in found["files"])
    assert found["files"][0]["bytes"] == 6
    (run,) = figures("train", "corpus.txt", "--vocab-size=260", "--name=j")["runs"].values()
    assert run["vocab_size"] == 260
    assert figures("report", "worked", "--corpus=corpus.txt")["corpora"]
    for words in (("counts", "make", "corpus.txt", "-o", "c"), ("counts", "inspect", "c")):
        assert figures(*words)["n_documents"] == 1
    converted = figures("convert", "worked", "--to=tokenizer.json", "-o", "t.json")
    assert converted["files"][0]["path"] == "t.json"
    assert figures("import", "t.json", "--name=i")["active"] is False
    out, error = trained.run("convert", "worked", "--to=tiktoken", "--output=-")
    assert out.startswith(b"AA== 0\n")
    assert error.startswith("left out: the split pattern (gpt2)")
    assert "one file" in trained.fail("convert", "worked", "--to=gpt2", "-o", "-", code=2)
