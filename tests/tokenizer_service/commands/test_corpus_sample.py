"""`tokenizer corpus sample`: draws documents into one file, which is complete or absent."""

import gzip
import json
from pathlib import Path

import pytest

from tests.tokenizer_service.run_cli import Cli
from tokenizer_core.documents import read_documents

END = "<|endoftext|>"
TEXTS = [f'story {i}\nof é and 漢 "{i}"\t' for i in range(400)]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = Cli(tmp_path, monkeypatch)
    Path("a.txt").write_text(END.join(TEXTS[:200]), encoding="utf-8")
    lines = "".join(json.dumps({"story": text}) + "\n" for text in TEXTS[200:])
    Path("b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return made


def test_text_and_json_lines_hold_the_same_documents_of_all_formats(cli: Cli) -> None:
    command = ("corpus", "sample", "a.txt", "*.gz", "--field=story", "--fraction=0.1", "--seed=7")
    out, error = cli.run(*command, "-o", "s.txt")
    cli.run(*command, "-o", "s.jsonl")
    drawn = list(read_documents("s.txt", separator=END))
    assert drawn == list(read_documents("s.jsonl"))
    assert [text for text in TEXTS if text in drawn] == drawn
    assert 20 < len(drawn) < 65
    assert min(TEXTS.index(text) for text in drawn) < 200 <= max(map(TEXTS.index, drawn))
    size = Path("s.txt").stat().st_size
    said = f"s.txt: {len(drawn)} of 400 documents, {size:,} bytes, drawn with seed 7\n"
    assert (out.decode(), error) == (said, "")
    out, _ = cli.run(*command, "-o", "t.txt", "--json")
    assert json.loads(out) == {
        "documents": len(drawn), "documents_read": 400, "bytes": size, "share": 0.1, "seed": 7,
    }  # fmt: skip
    assert Path("t.txt").read_bytes() == Path("s.txt").read_bytes()
    cli.run("train", "s.txt", "--vocab-size=270", "--name=sampled")


ERRORS = [
    (("a.txt", "-o", "s.txt"), 2, "--fraction"),
    (("a.txt", "--fraction=1.5", "-o", "s.txt"), 2, "0.01 is a hundredth), not 1.5"),
    (("a.txt", "--fraction=nan", "-o", "s.txt"), 2, "above 0"),
    (("a.txt", "--fraction=0.5", "-o", "s.csv"), 2, "s.csv must end in .txt or .jsonl"),
    (("a.txt", "--fraction=0.5", "-o", "no/s.txt"), 1, "the folder of no/s.txt is not there"),
    (("a.txt", "--fraction=0.5", "-o", "a.txt"), 2, "a.txt is also an input"),
    (("a.txt", "--fraction=0.5", "--separator=", "-o", "s.txt"), 2, "name one"),
    (("a.txt", "--fraction=1e-9", "-o", "s.txt"), 1, "none of 200 documents was drawn"),
    (("empty.txt", "--fraction=1", "-o", "s.txt"), 1, "the files have no document"),
    (("b.jsonl.gz", "--fraction=0.5", "-o", "s.txt"), 1, "'text'"),
    (("e.jsonl", "--fraction=0.5", "-o", "s.txt"), 1, "a document holds '<|endoftext|>'"),
    (("f.jsonl", "--fraction=0.5", "--separator=aa", "-o", "s.txt"), 1, "holds 'aa'"),
]


def test_an_error_is_one_line_with_the_remedy_and_writes_nothing(cli: Cli) -> None:
    for name, text in (("e", f"{END} "), ("f", "xa")):
        Path(f"{name}.jsonl").write_text(f"{json.dumps({'text': text})}\n" * 20)
    Path("empty.txt").touch()
    Path("s.txt").write_text("what was there")
    before = sorted(Path().iterdir())
    for arguments, code, words in ERRORS:
        assert words in cli.fail("corpus", "sample", *arguments, code=code)
        assert sorted(Path().iterdir()) == before
    assert Path("s.txt").read_text() == "what was there"


def test_two_documents_do_not_make_a_separator_between_them(cli: Cli) -> None:
    halves = ["x<|endof", "text|>y"]
    lines = [json.dumps({"text": text}) + "\n" for text in halves * 20]
    Path("e.jsonl").write_text("".join(lines))
    cli.run("corpus", "sample", "e.jsonl", "--fraction=0.9", "-o", "s.txt")
    assert set(read_documents("s.txt", separator=END)) == set(halves)
