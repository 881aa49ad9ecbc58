"""Which tokenizer a word on the command line is."""

import io
import shutil

import pytest

from tokenizer_core import Tokenizer
from tokenizer_core.presets import PRESETS, cached_paths

END = "<|endoftext|>"
STARTER_IDS = b"10687 44 1948 33\n"
MISSING = "publish it: tokenizer import starter --name starter"


def test_a_word_is_a_path_only_with_a_separator_a_suffix_or_a_comma(trained):
    trained.run("alias", "worked", "chat")
    single_bytes = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    for name in ("worked", "chat", "starter", "gpt2", "plain"):
        before = "" if name == "plain" else trained.run("encode", "newest", "--tokenizer", name)
        single_bytes.save(trained.folder / name)
        assert len(trained.run("encode", "newest", f"--tokenizer=./{name}")[0].split()) == 6
        if before:
            assert trained.run("encode", "newest", "--tokenizer", name) == before
            trained.run("convert", name, "--to=tokenizer.json", "-o", "t.json", "--force")
            assert trained.run("encode", "newest", "--tokenizer=t.json") == before
    for words in (
        ("convert", "plain", "--to=tokenizer.json", "-o", "x.json"),
        ("import", "plain", "--name=again"),
        ("encode", "newest", "--tokenizer=plain"),
        ("compare", "plain", "worked"),
        ("promote", "plain"),
    ):
        assert "the file or folder here is ./plain" in trained.fail(*words)
    single_bytes.save(trained.folder / "Plain")
    assert "the file or folder here is ./Plain" in trained.fail("encode", "x", "--tokenizer=Plain")
    assert "tokenizer import ./Plain --name NAME" in trained.fail("promote", "Plain")
    assert "./plain a path" in trained.fail("import", "plain", "--name=x", "--no-special", code=2)


def test_a_folder_may_have_a_colon_or_a_comma_in_its_name_or_a_slash_after_it(trained):
    for name in ("./model:v1", "a,b", "model/"):
        trained.run("convert", "worked", "--to=transformers", "-o", name)
        trained.run("import", name, "--name=again")
        assert trained.run("encode", "low", "--tokenizer", name) == trained.run("encode", "low")


def test_the_file_of_a_preset_with_its_pattern_has_its_special_tokens(cli):
    shutil.copyfile(next(cached_paths(PRESETS["r50k_base"])), cli.folder / "ranks.tiktoken")
    (cli.folder / "alone").mkdir()
    shutil.copyfile(cli.folder / "ranks.tiktoken", cli.folder / "alone" / "r50k_base.tiktoken")
    for options in (
        ("--pattern=r50k", "--files", "ranks.tiktoken"),
        ("--tokenizer=ranks.tiktoken:gpt2",),
        ("--tokenizer=ranks.tiktoken",),
        ("--tokenizer=./alone",),
    ):
        assert cli.run("encode", END, *options) == (b"50256\n", "")
    out, warned = cli.run("encode", END, "--tokenizer=ranks.tiktoken:cl100k")
    assert len(out.split()) == 7
    assert "names no special tokens" in warned


def test_a_model_of_another_algorithm_is_run_by_its_library(cli):
    tokenizers = pytest.importorskip("tokenizers")
    library = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {"[UNK]": 0, "[SEP]": 1, "low": 2, "##er": 3}, unk_token="[UNK]"
        )
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.decoder = tokenizers.decoders.WordPiece()
    library.add_special_tokens(["[SEP]"])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A [SEP]", special_tokens=[("[SEP]", 1)]
    )
    library.save(str(cli.folder / "tokenizer.json"))
    (cli.folder / "text").write_text("lower [SEP]", encoding="utf-8")
    named = "--tokenizer=tokenizer.json"
    for options in (("lower [SEP]", named), ("--file=text", named)):
        assert cli.run("encode", *options)[0] == b"2 3 1\n"
        assert cli.run("count", *options)[0] == b"3\n"
    assert cli.run("encode", "lower", "--files", "tokenizer.json")[0] == b"2 3\n"
    (cli.folder / "d.jsonl").write_text('{"text": "low"}\n' * 2, encoding="utf-8")
    around = ("--add-special-tokens", named, "--allowed-special=none")
    assert cli.run("encode", "lower", *around)[0] == b"2 3 1\n"
    assert cli.run("count", "--file=d.jsonl", *around)[0] == b"4\n"
    assert "takes allowed_special 'all' or" in cli.fail("count", "--file=d.jsonl", named)
    assert cli.run("decode", "--skip-special-tokens", named, "2", "3", "1")[0] == b"lower"
    assert "run by the library" in cli.fail("encode", "--pieces", "lower", named)
    assert "its model is WordPiece" in cli.fail("import", "tokenizer.json", "--name=words")


def test_a_word_names_files_where_files_are_expected(trained):
    shutil.copyfile(next(cached_paths(PRESETS["r50k_base"])), trained.folder / "ranks.tiktoken")
    trained.run("import", "ranks.tiktoken:gpt2", "--name=ranks")
    assert trained.run("encode", END, "--tokenizer=ranks")[0] == b"50256\n"
    assert "leave --pattern out" in trained.fail(
        "import", "ranks.tiktoken:gpt2", "--pattern=gpt2", "--name=x", code=2
    )
    trained.run("convert", "worked", "--to=gpt2", "-o", "files")
    pair = "files/vocab.json,files/merges.txt"
    trained.run("import", pair, "--name=pair")
    assert trained.run("encode", "newest", "--tokenizer=pair") == trained.run("encode", "newest")


def test_without_an_active_tokenizer_the_error_has_the_remedy(cli):
    cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked")
    line = cli.fail("inspect", "active")
    assert "no tokenizer is active; make one so: tokenizer promote NAME" in line
    for said in ("nothing was promoted before", "is the first that was promoted"):
        line = cli.fail("rollback")
        assert said in line
        assert line.endswith("package: tokenizer import starter --name starter --promote\n")
        cli.run("promote", "worked")
    (cli.folder / "file").touch()
    assert "but a file" in cli.fail("encode", "x", "--tokenizer=gpt2", "--artifacts-dir=file")


def test_commands_find_the_packaged_starter_in_an_empty_folder(cli, monkeypatch):
    version = cli.run("inspect", "starter")[0].decode().split()[0]
    for options in ((), ("--tokenizer", "starter"), ("--tokenizer", version)):
        assert cli.run("encode", "Hello, world!", *options)[0] == STARTER_IDS
    # The ids of another folder's default are others: what is kept has a note.
    note = "note: no tokenizer is active here, so this is the packaged starter; name it, or another"
    assert cli.run("encode", "x", "--tokenizer=starter")[1] == ""
    assert cli.run("encode", "x")[1] == f"{note}: --tokenizer starter\n"
    terminal = type("Terminal", (io.TextIOWrapper,), {"isatty": lambda _: True})
    monkeypatch.setattr(io, "TextIOWrapper", terminal)
    assert cli.run("count", "x")[1] == ""
    assert cli.run("truncate", "-n9", "x")[0] == b"x\n"
    assert note in cli.run("encode", "x", "--output=ids")[1]
    assert not (cli.folder / "artifacts").exists()
    cli.fail("encode", "--tokenizer", "starter@20200101T000000Z-00000000", "x")
    assert "'mine'" in cli.fail("encode", "x", TOKENIZER_DEFAULT="mine")
    assert "'other'" in cli.fail("encode", "--tokenizer", "other", "x")


def test_the_starter_is_the_default_where_no_folder_is_named_and_no_tokenizer_is_active(trained):
    assert trained.run("encode", "Hello, world!")[0] != STARTER_IDS
    (trained.folder / "artifacts" / "active.json").unlink()
    assert trained.run("encode", "Hello, world!") == (
        STARTER_IDS,
        "note: no tokenizer is active here, so this is the packaged starter; --tokenizer worked, "
        "or make it the default: tokenizer promote worked\n",
    )
    refusal = "no tokenizer is active, and 'starter' is not published; name one: --tokenizer worked"
    for named in ("TOKENIZER_ARTIFACTS_DIR", "TOKENIZER_STORE"):
        assert refusal in trained.fail("encode", "x", **{named: "artifacts"})
    assert refusal in trained.fail("encode", "x", "--artifacts-dir=artifacts")
    assert "'mine' is not published" in trained.fail("encode", "x", TOKENIZER_DEFAULT="mine")
    assert trained.run("encode", "--tokenizer", "starter", "Hello, world!") == (STARTER_IDS, "")


def test_a_named_folder_does_not_fall_back(cli):
    for name in ("TOKENIZER_ARTIFACTS_DIR", "TOKENIZER_STORE"):
        (cli.folder / "empty").mkdir(exist_ok=True)
        assert MISSING in cli.fail("encode", "x", **{name: "empty"})
        for words in (
            ("encode", "x"),
            ("encode", "x", "--tokenizer=gpt2"),
            ("list",),
            ("inspect", "news"),
            ("promote", "news"),
            ("convert", "gpt2", "--to=tiktoken", "-o=x"),
        ):
            line = cli.fail(*words, **{name: "nope"})
            assert f"the folder nope, which {name} or an option names, does not exist" in line
    for words in (("list",), ("jobs", "list")):
        line = cli.fail(*words, "--artifacts-dir=nope")
        assert "the folder nope, which TOKENIZER_ARTIFACTS_DIR or an option names" in line
    assert MISSING in cli.fail("encode", "x", "--artifacts-dir", "empty")
    _, warned = cli.run("import", "gpt2", "--name=gpt2", "--artifacts-dir=new")
    assert warned == "tokenizer: warning: new does not exist yet; this command makes it\n"
    assert b"gpt2@" in cli.run("list", "--artifacts-dir=new")[0]
    for named, reason in (("", "is empty; name a folder"), ("corpus.txt", "is no folder of")):
        assert reason in cli.fail("list", TOKENIZER_ARTIFACTS_DIR=named)


def test_an_empty_value_is_refused_and_is_not_the_default(cli):
    """As of a shell's variable that is not set: the ids would be those of another tokenizer."""
    for options in (
        ("encode", "x", "--tokenizer", ""),
        ("encode", "x", "--server", ""),
        ("encode", "x", "--files", ""),
        ("encode", "x", "--artifacts-dir="),
        ("corpus", "encode", "corpus.txt", "--output=o", "--tokenizer="),
        ("train", "corpus.txt", "--vocab-size=300", "--extend", ""),
        ("count", "--file=corpus.txt", "--format=txt", "--field="),
        ("inspect", ""),
        ("promote", ""),
        ("compare", "gpt2", ""),
    ):
        assert "is empty" in cli.fail(*options, code=2), options
