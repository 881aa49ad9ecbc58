"""`tokenizer inspect --html`: the training page of published tokenizers."""

from tests.tokenizer_service.run_cli import Cli


def test_several_are_inspected_together(trained: Cli) -> None:
    trained.run("train", "corpus.txt", "--vocab-size", "260", "--name", "other")
    out, _ = trained.run("inspect", "worked", "other", "--html", "page.html")
    assert out.count(b"longest tokens") == 2
    page = (trained.folder / "page.html").read_text(encoding="utf-8")
    assert "worked@" in page
    assert "other@" in page
    printed, _ = trained.run("inspect", "worked", "--html", "-")
    assert printed.startswith(b"<!doctype html>")
    assert b"longest tokens" not in printed
    assert "name only one" in trained.fail("inspect", "worked", "other", "--json", code=2)


def test_an_imported_tokenizer_has_no_training_page(trained: Cli) -> None:
    (trained.folder / "made").mkdir()
    trained.run("convert", "worked", "--to", "tokenizer.json", "--output", "made/tokenizer.json")
    trained.run("import", "made/tokenizer.json", "--name", "imported")
    assert "no report of its training" in trained.fail("inspect", "imported", "--html", "p.html")
