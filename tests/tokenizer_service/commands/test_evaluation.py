"""`tokenizer report` and `tokenizer compare`: what they print, write and refuse."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.tokenizer_core.evaluation.test_pages import Page
from tests.tokenizer_service.run_cli import Cli, write_tiktoken
from tokenizer_core import Tokenizer
from tokenizer_core.registry import ArtifactStore

TEXT = "low low lower newest newest widest widest widest\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with corpora, the published tokenizer `mine`, and a file of ranks."""
    folder = tmp_path_factory.mktemp("evaluation")
    (folder / "en.txt").write_text(TEXT * 100)
    (folder / "ru.txt").write_text("низкий самый новый широкий\n" * 100, encoding="utf-8")
    (folder / "empty.txt").touch()
    write_tiktoken(folder / "ranks.tiktoken")
    with pytest.MonkeyPatch.context() as monkeypatch:
        Cli(folder, monkeypatch).run(
            "train", "en.txt", "--vocab-size=270", "--name=mine", "--promote"
        )
    return folder


@pytest.fixture
def cli(folder, tmp_path, monkeypatch):
    return Cli(shutil.copytree(folder, tmp_path / "copy"), monkeypatch)


def test_a_report_of_a_published_one_and_of_a_file(cli):
    out, error = cli.run(
        "report", "mine", "other=ranks.tiktoken:cl100k", "--corpus", "english=en.txt",
        "--corpus", "ru.txt", "--json", "r.json", "--html", "r.html",
    )  # fmt: skip
    assert error == ""  # no progress bar where standard error is not a terminal
    report = json.loads((cli.folder / "r.json").read_text())
    assert report["schema"] == "tokenizer-report/1"
    assert [t["name"] for t in report["tokenizers"]] == ["mine", "other"]
    assert [t["pattern"] for t in report["tokenizers"]] == ["gpt2", "cl100k"]
    assert [c["name"] for c in report["corpora"]] == ["english", "ru"]
    by_pair = {(m["tokenizer"], m["corpus"]): m for m in report["measurements"]}
    # token counts of the same text, from the count command
    counted = int(cli.run("count", "--file", "en.txt")[0])
    assert by_pair["mine", "english"]["n_tokens"] == counted
    figure = by_pair["mine", "english"]["bytes_per_token"]
    assert figure == len(TEXT) * 100 / counted
    assert f"{figure:.3f}".encode() in out
    page = (cli.folder / "r.html").read_text(encoding="utf-8")
    assert f"{figure:.3f}" in "".join(Page(page).text)


def figures(cli, *words, code=0):
    return json.loads(cli.run(*words, "--json", code=code)[0])


def test_a_corpus_of_several_files(cli):
    both = figures(cli, "report", "mine", "--corpus=a=en.txt", "--corpus=a=ru.txt")
    alone = figures(cli, "report", "mine", "--corpus=en.txt", "--corpus=ru.txt")
    (corpus,), (measured,) = both["corpora"], both["measurements"]
    assert corpus["size_bytes"] == sum(each["size_bytes"] for each in alone["corpora"])
    assert measured["n_tokens"] == sum(each["n_tokens"] for each in alone["measurements"])
    (part,) = figures(cli, "report", "mine", "--corpus=en.txt", "--sample-bytes=1500", "--seed=3")[
        "corpora"
    ]
    assert (part["sample_bytes"] // 100, part["seed"]) == (14, 3)
    by_pattern = figures(cli, "report", "mine", "--corpus=[er]*.txt")  # also the empty file
    assert [c["name"] for c in by_pattern["corpora"]] == ["[er]*.txt"]
    assert by_pattern["measurements"][0]["n_tokens"] == measured["n_tokens"]
    compared = figures(cli, "compare", "mine", "ranks.tiktoken:gpt2", "--corpus=??.txt", code=3)
    assert compared["text"]["n_tokens_a"] == measured["n_tokens"]
    counted = figures(cli, "count", "--file", "??.txt")
    assert [each["file"] for each in counted["files"]] == ["en.txt", "ru.txt"]
    assert counted["tokens"] == measured["n_tokens"]


def test_parallel_corpora_and_documents(cli):
    words = ("report", "mine", "--corpus=en.txt", "--corpus=ru.txt", "--parallel")
    parity = figures(cli, *words)["parity"]
    assert parity["basis"] == "parallel lines"
    lines = (TEXT.strip(), "низкий самый новый широкий")
    english, russian = (int(cli.run("count", "--", line)[0]) for line in lines)
    assert parity["ratios"]["mine"]["ru"] == russian / english
    for name, line in (("en2", "low"), ("ru2", "низкий")):
        (cli.folder / f"{name}.txt").write_text(f"{line}\n##\n" * 9, encoding="utf-8")
    pair = ("report", "mine", "--corpus=en2.txt", "--corpus=ru2.txt", "--parallel")
    for options, n_bytes in (([], 9 * len("low##")), (["--separator=##"], 9 * len("low"))):
        assert figures(cli, *pair, *options)["measurements"][0]["n_bytes"] == n_bytes


def test_the_table_of_bytes_of_each_id(cli):
    out, _ = cli.run("report", "mine", "--token-bytes", "token_bytes.npy")
    assert b"270 ids" in out
    table = np.load(cli.folder / "token_bytes.npy", allow_pickle=False)
    ids = [int(word) for word in cli.run("encode", "low<|endoftext|>lower")[0].split()]
    assert table[ids].sum() == len("lowlower")
    assert (len(table), table[256]) == (270, 0)
    assert math.isclose(table[:256].mean(), 1)


def test_a_diff_of_two_versions_and_of_a_file(cli):
    cli.run("train", "en.txt", "--vocab-size=265", "--name=mine")
    cli.run("convert", "mine", "--to=tokenizer.json", "-o", "t.json")
    versions = [f"{row['name']}@{row['version']}" for row in figures(cli, "list")]
    out, _ = cli.run("compare", *versions, "--corpus", "en.txt", code=3)
    assert b"pre-tokens of A" in out
    found = figures(cli, "compare", *versions, code=3)
    assert found["schema"] == "tokenizer-diff/1"
    assert [found["a"], found["b"]] == versions
    assert (found["tokenizers"]["is_same"], found["text"]) == (False, None)
    other = ("mine", "ranks.tiktoken:gpt2", "--corpus=en.txt")
    on_text = figures(cli, "compare", *other, code=3)["text"]
    counted = int(cli.run("count", "--tokenizer=mine", "--file", "en.txt")[0])
    assert (on_text["n_tokens_a"], on_text["n_bytes"]) == (counted, len(TEXT) * 100)
    assert on_text["n_texts_other_ids"] == 1
    assert cli.run("compare", "mine", "mine")[0].startswith(b"A and B are the same: equal ids")
    Tokenizer.from_spec(replace(Tokenizer.load("t.json").spec, ignore_merges=True)).save("w.json")
    for options, said in (
        (["--corpus=en.txt"], b"Equal ids in all texts compared (1, 4,900 bytes); A and B differ"),
        (["--corpus=en.txt", "--sample-bytes=1500"], b"Equal ids in all texts compared (1, 1,4"),
        ([], b"No text was compared: --corpus FILE shows whether ids are equal. A and B differ"),
    ):
        shown, _ = cli.run("compare", "t.json", "w.json", *options, code=3)
        assert shown.startswith(said)
        assert shown.partition(b"\n")[0].endswith(b" in whole pre-tokens first.")
    shown, _ = cli.run("compare", *other, code=3)
    assert shown.startswith(b"Other ids in 1 of 1 texts compared (4,900 bytes); A and B differ")
    assert b"tokens, ids of tokens, added tokens, merges.\n" in shown


def test_files_of_every_form(cli):
    store = ArtifactStore(cli.folder / "artifacts")
    tokenizer = Tokenizer.from_spec(store.open(store.resolve("mine")))
    tokenizer.save(cli.folder / "my=t.json")
    tokenizer.save_gpt2_files(cli.folder / "vocab.json", cli.folder / "merges.txt")
    tokenizer.save_files(cli.folder / "v.pkl", cli.folder / "m.pkl")
    files = ("mine", "my=t.json", "gpt=vocab.json,merges.txt", "./v.pkl,./m.pkl:gpt2")
    report = figures(cli, "report", *files, "--corpus=en.txt")
    assert [t["name"] for t in report["tokenizers"]] == ["mine", "my=t", "gpt", "v"]
    assert len({m["n_tokens"] for m in report["measurements"]}) == 1


ERRORS = [
    (("report", "mine"), 2, "--corpus"),
    (("report", "mine", "mine", "--corpus=en.txt"), 2, "LABEL="),
    (("report", "mine", "--corpus=en.txt", "--corpus=en.txt"), 2, "NAME=FILE"),
    (("report", "mine", "--token-bytes=n.npy", "--html=r.html"), 2, "no text to measure"),
    (("report", "mine", "--token-bytes=n.npy", "--seed=1"), 2, "--seed belongs to --corpus"),
    (("report", "mine", "--corpus=en.txt", "--field=x"), 2, "--field is of JSON lines"),
    (("compare", "mine", "mine", "--separator=x"), 2, "--separator belongs to --corpus"),
    (("report", "ranks.tiktoken", "--corpus=en.txt"), 1, "ranks.tiktoken:cl100k"),
    (("report", "mine", "--corpus=en.txt", "--html=no/r.html"), 1, "folder"),
    (("report", "mine", "--corpus=en.txt", "--sample-bytes=-1"), 2, "'-1' is no whole number"),
    (("report", "mine", "--corpus=en.txt", "--corpus=en=ru.txt"), 2, "called en"),
    (("report", "mine", "--corpus=en.txt", "--parallel"), 2, "two corpora"),
    (("report", "mine", "--corpus=a=??.txt", "--corpus=b=en.txt", "--parallel"), 2, "a has 2"),
    (("report", "mine", "x=mine", "--token-bytes=t.npy"), 2, "one tokenizer"),
    (("report", "mine", "--corpus=empty.txt"), 1, "empty"),
]


def test_an_error_is_one_line_with_the_remedy(cli):
    for words, code, says in ERRORS:
        assert says in cli.fail(*words, code=code), words
