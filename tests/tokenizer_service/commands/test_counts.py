"""`tokenizer counts`: create, extend, merge and show counts, and train from them."""

import json
import sys

import pytest

from tests.native_module import native_module

OTHER = "wide wider widest\n<|endoftext|>low"


@pytest.fixture
def both(cli):
    """The command, after counting two corpora separately and together."""
    (cli.folder / "other.txt").write_text(OTHER)
    cli.run("counts", "make", "corpus.txt", "--output=a.counts")
    cli.run("counts", "make", "other.txt", "--output=b.counts")
    cli.run("counts", "make", "corpus.txt", "other.txt", "--output=ab.counts")
    return cli


def digest(cli, *arguments):
    cli.run("train", *arguments, "--vocab-size=270", "--name=x")
    return json.loads(cli.run("list", "--json")[0])[-1]["digest"]


def are_same(cli, name, other):
    return (cli.folder / name).read_bytes() == (cli.folder / other).read_bytes()


def test_counts_made_in_parts_and_merged_are_the_same(both):
    out, error = both.run("counts", "merge", "a.counts", "b.counts", "--output=merged.counts")
    assert are_same(both, "merged.counts", "ab.counts")
    said = "13 pre-tokens, 8 distinct, of 82 bytes, 3 documents"
    assert (out.decode().splitlines()[0], error) == (f"merged.counts: {said}", "")
    # A run in parts makes the same file, and is resumed.
    make = ("counts", "make", "corpus.txt", "other.txt", "--checkpoint-dir=run")
    for output in ("--output=run.counts", "--output=again.counts"):
        out, error = both.run(*make, output, "--workers=1")
        assert (out.decode().splitlines()[0].partition(": ")[2], error) == (said, "")
        assert are_same(both, output.partition("=")[2], "ab.counts")
    told = both.fail("counts", "make", "other.txt", "--checkpoint-dir=run", "--output=x.counts")
    assert "another run (inputs differ (missing: 'corpus.txt')); name another place" in told
    assert not (both.folder / "x.counts").exists()


def test_weights_become_whole_numbers(both):
    out, _ = both.run("counts", "merge", "a.counts=0.5", "b.counts=1/3", "--output=w.counts")
    lines = out.decode().splitlines()
    assert lines[2].startswith("  corpus   3 times corpus.txt, 48 bytes, sha256 ")
    assert both.run("counts", "inspect", "w.counts")[0] == out
    shown = json.loads(both.run("counts", "inspect", "w.counts", "--json")[0])
    assert [source["weight"] for source in shown["sources"]] == [3, 2]
    assert shown["n_bytes"] == 3 * 48 + 2 * len(OTHER)
    copies = ["1-corpus.txt", "2-corpus.txt", "3-corpus.txt", "1-other.txt", "2-other.txt"]
    for copy in copies:
        (both.folder / copy).write_bytes((both.folder / copy[2:]).read_bytes())
    assert digest(both, "--from-counts=w.counts") == digest(both, *copies)


@pytest.mark.parametrize("engine", ["python", "native"])
def test_counting_under_a_ceiling_gives_the_same_file(both, monkeypatch, engine):
    if engine == "native":
        native_module()
    for module in (
        "tokenizer_core.training.count_pretokens",
        "tokenizer_service.commands.counting_options",
    ):
        monkeypatch.setattr(sys.modules[module], "SMALLEST_CEILING_BYTES", 1)
    files = ("corpus.txt", "other.txt", "--memory-limit=1K", "--temp-dir=.")
    before = sorted(both.folder.iterdir())
    out, _ = both.run("counts", "make", *files, "--output=ab.counts", TOKENIZER_ENGINE=engine)
    assert b"the ceiling was reached" in out
    assert sorted(both.folder.iterdir()) == before
    assert digest(both, *files) == digest(both, "--from-counts=ab.counts")
    both.run("counts", "merge", "a.counts", "b.counts", "--output=merged.counts")
    assert are_same(both, "merged.counts", "ab.counts")


def test_pruned_counts_report_their_bound(both):
    """All but ` widest`, which occurs four times; `lo` is in `low`, ` low` and ` lower`."""
    out, _ = both.run("counts", "prune", "ab.counts", "--min-count=3", "--output=p.counts")
    said = (
        "without 7 distinct pre-tokens that occur fewer than 3 times, 50.0% of the text: a merge "
        "may be one that occurs up to 4 times less often than the best"
    )
    assert f"  pruned   {said}" in out.decode().splitlines()
    assert both.run("counts", "inspect", "p.counts")[0] == out
    shown = json.loads(both.run("counts", "inspect", "p.counts", "--json")[0])
    assert shown["pruning"]["bound"] == 4
    assert shown["n_distinct_pre_tokens"] + shown["pruning"]["n_distinct"] == 8
    whole = json.loads(both.run("counts", "inspect", "ab.counts", "--json")[0])
    assert whole["pruning"] is None
    assert whole["n_pre_tokens"] == shown["n_pre_tokens"] + shown["pruning"]["n_pre_tokens"]
    arguments = ("--from-counts=p.counts", "--vocab-size=260", "--name=p")
    told = both.run("train", *arguments)[0].decode()
    assert said in told.splitlines()
    assert "bytes per token on the text that pruning kept" in told
    report = json.loads(both.run("inspect", "p", "--json")[0])["training"]
    assert report["pruning"] == shown["pruning"]


ERRORS = [
    (("counts", "make", "corpus.txt", "--output=no/x"), 1, "the folder of no/x is not there"),
    (("counts", "make", "corpus.txt", "--output=x", "--memory-limit=2X"), 2, "is no size"),
    (("counts", "make", "corpus.txt", "--output=x", "--memory-limit=1M"), 2, "at least 16M"),
    (("counts", "make", "corpus.txt", "--output=x", "--temp-dir=no"), 1, "make it first"),
    (("counts", "merge", "a.counts=0", "--output=x"), 2, "above 0"),
    (("counts", "merge", "a.counts=1e9", "--output=x"), 2, "weight of 'a.counts=1e9' is"),
    (("counts", "merge", "no.counts=1e9", "--output=x"), 1, "no.counts=1e9 is not there"),
    (("counts", "merge", "a.counts", "ab.counts", "--output=x"), 1, "is in two of these"),
    (("counts", "merge", "a.counts", "cl.counts", "--output=x"), 1, "different split pattern"),
    (("train", "--from-counts=a.counts", "--separator=|"), 2, "leave out --separator, or"),
    (("train", "--from-counts=a.counts", "--field=text"), 2, "give them to counts make"),
    (("counts", "prune", "a.counts", "--min-count=99", "--output=x"), 1, "a smaller min_count"),
    (("counts", "prune", "a.counts", "--min-count=2", "--output=a.counts"), 2, "another"),
    (("counts", "inspect", "s3://user:secret@bucket/x.counts"), 1, "with nothing beside"),
    (("counts", "inspect", "s3://bucket/.."), 1, "ends in no name"),
    (("counts", "make", "corpus.txt", "--executor=ray", "--output=x"), 2, "--checkpoint-dir"),
    (("counts", "make", "corpus.txt", "--ray-address=auto", "--output=x"), 2, "--executor ray"),
]


def test_an_error_is_one_line_with_the_remedy(both):
    both.run("counts", "make", "other.txt", "--pattern=cl100k", "--output=cl.counts")
    before = sorted(path.name for path in both.folder.iterdir())
    content = (both.folder / "a.counts").read_bytes()
    for arguments, code, words in ERRORS:
        assert words in both.fail(*arguments, code=code)
        assert (both.folder / "a.counts").read_bytes() == content
        assert sorted(path.name for path in both.folder.iterdir()) == before
