"""`tokenizer judge`: what it prints and writes of a run, and what it refuses; and `inspect --html`,
which shows such a run. The runs are made by hand, so no test here needs torch."""

import json
import sys
from typing import Any

import pytest
from tokenizer_service.commands import judging

from tests.tokenizer_core.evaluation.judge_runs import judged, run_of
from tests.tokenizer_core.evaluation.test_report_page import Page
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core.registry import ArtifactStore


@pytest.fixture
def asked(trained: Cli, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of the calls of `judge`, which returns a run made by hand."""
    calls: list[Any] = []

    def judge(tokenizers: Any, corpus: Any, options: Any, progress: Any) -> Any:
        progress("a, seed 0", 0.5)
        calls.append((tokenizers, corpus, options))
        return run_of(judged("a", [2.0, 2.5]), judged("b", [2.75, 3.0]))

    monkeypatch.setattr(judging, "judge", judge)
    return calls


def test_the_table_and_the_files(trained: Cli, asked: list[Any]) -> None:
    out, error = trained.run(
        "judge", "worked", "again=worked", "--corpus", "corpus.txt", "--json", "j.json",
        "--html", "j.html",
    )  # fmt: skip
    assert error == ""
    assert b"2.000 to 2.500" in out
    written = json.loads((trained.folder / "j.json").read_text())
    assert written["schema"] == "tokenizer-judge/1"
    page = (trained.folder / "j.html").read_text(encoding="utf-8")
    assert "2.000 to 2.500" in "".join(Page(page).text)
    tokenizers, corpus, options = asked[0]
    assert list(tokenizers) == ["worked", "again"]
    assert str(corpus) == "corpus.txt"
    assert options == judging.JudgeOptions()
    printed, _ = trained.run("judge", "worked", "--corpus", "corpus.txt", "--json")
    assert json.loads(printed) == written


def test_the_options_arrive(trained: Cli, asked: list[Any]) -> None:
    trained.run(
        "judge", "worked", "--corpus", "corpus.txt", "--budget", "bytes", "--amount", "2.5e6",
        "--seeds", "3", "--seed", "7", "--size", "small", "--width", "96", "--layers", "3",
        "--heads", "2", "--context", "48", "--batch-size", "5", "--learning-rate", "0.002",
        "--validation-bytes", "1234", "--separator", "##", "--device", "cpu", "--compile",
    )  # fmt: skip
    _, _, options = asked[0]
    assert options == judging.JudgeOptions(
        budget="bytes",
        amount=2_500_000,
        size=judging.SIZES["small"].__class__("small", 96, 3, 2, 48, 5, 0.002),
        n_seeds=3,
        seed=7,
        validation_bytes=1234,
        separator="##",
        device="cpu",
        compiles=True,
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--amount", "much"], 2, "not a number such as"),
        (["--seeds", "0"], 2, "at least 1"),
        (["--width", "30"], 2, "multiple of twice the heads"),
        (["--html", "corpus.txt"], 2, "does not end in .html"),
        (["--json", "worked.json"], 2, "is also an input"),
        (["--json", "nowhere/j.json"], 1, "make it first"),
        (["--corpus", "corpus.txt"], 2, "--corpus: is given twice"),
    ],
)
def test_what_is_refused_before_any_work(
    trained: Cli, asked: list[Any], words: list[str], code: int, message: str
) -> None:
    trained.run("convert", "worked", "--to=tokenizer.json", "--output=worked.json")
    corpus = ("--corpus", "corpus.txt")
    assert message in trained.fail("judge", "worked.json", *corpus, *words, code=code)
    assert "is not there" in trained.fail("judge", "worked", "--corpus", "nowhere.txt")
    assert asked == []


def test_without_torch_one_line_names_the_extra(
    trained: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    line = trained.fail("judge", "worked", "--corpus", "corpus.txt")
    assert "pip install 'tokenizer-service[judge]'" in line


def test_the_training_page_shows_a_judge_run(trained: Cli) -> None:
    store = ArtifactStore(trained.folder / "artifacts")
    fingerprint = store.open(store.resolve("worked")).fingerprint
    run = run_of(judged("w", [2.0, 2.5], fingerprint=fingerprint), judged("b", [2.75, 3.0]))
    (trained.folder / "judge.json").write_text(json.dumps(run.to_dict()))
    out, _ = trained.run("inspect", "worked", "--html", "page.html", "--judge", "judge.json")
    assert b"longest tokens" in out
    shown = "".join(Page((trained.folder / "page.html").read_text(encoding="utf-8")).text)
    assert "Bits per byte" in shown
    ref = out.decode().splitlines()[0]
    assert shown.count(ref) == 4  # in the title, under it, what was made, bits per byte
    assert "2.000 to 2.500" in shown
    assert "2.750 to 3.000" in shown.partition("other tokenizers of the same judge run")[2]
    out, _ = trained.run("inspect", "worked", "--html", "-")
    assert "Bits per byte</h2>" not in out.decode()
    assert out.startswith(b"<!doctype html>")


def test_a_judge_run_that_does_not_belong_is_refused(trained: Cli) -> None:
    (trained.folder / "judge.json").write_text(json.dumps(run_of(judged("b", [2.0])).to_dict()))
    words = ["inspect", "worked", "--html", "page.html", "--judge", "judge.json"]
    assert "is of other tokenizers: b; judge these" in trained.fail(*words)
    (trained.folder / "judge.json").write_text("{}")
    assert "not a judge run of this release" in trained.fail(*words)
    assert "name it with --html" in trained.fail(*words[:2], *words[4:], code=2)
    assert not (trained.folder / "page.html").exists()


def test_several_are_inspected_together(trained: Cli) -> None:
    trained.run("train", "corpus.txt", "--vocab-size", "260", "--name", "other")
    out, _ = trained.run("inspect", "worked", "other", "--html", "page.html")
    assert out.count(b"longest tokens") == 2
    page = (trained.folder / "page.html").read_text(encoding="utf-8")
    assert "worked@" in page
    assert "other@" in page
    assert "name only one" in trained.fail("inspect", "worked", "other", "--json", code=2)


def test_an_imported_tokenizer_has_no_training_page(trained: Cli) -> None:
    (trained.folder / "made").mkdir()
    trained.run("convert", "worked", "--to", "tokenizer.json", "--output", "made/tokenizer.json")
    trained.run("import", "made/tokenizer.json", "--name", "imported")
    assert "no report of its training" in trained.fail("inspect", "imported", "--html", "p.html")
