"""The command `tokenizer`: what it prints, writes and refuses."""

import argparse
import json
import re
import shlex
import signal
import sys
from importlib.metadata import version
from unittest.mock import Mock

import numpy as np
import pytest

from tests.tokenizer_core.formats.small_specs import small_tekken
from tests.tokenizer_service.run_cli import write_tiktoken
from tokenizer_core import AddedToken, TokenizerSpec
from tokenizer_core.engines import native_import
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_service import cli as cli_module
from tokenizer_service.cli import _COMMANDS, build_whole_parser, main
from tokenizer_service.commands.command_line import CommandParser
from tokenizer_service.commands.outputs import render_pieces
from tokenizer_service.commands.progress import has_colours


def test_train_publishes_and_reports(cli):
    out, error = cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked")
    assert b"published worked@" in out
    assert b"bytes per token" in out
    assert error == ""  # no progress bar where standard error is not a terminal
    again, _ = cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked")
    assert b"already there: worked@" in again
    for first_words in (b"published worked-2@", b"already there: worked-2@"):
        assert cli.run("import", "worked", "--name=worked-2")[0].startswith(first_words)
    (cli.folder / "artifacts" / "tokenizers" / "worked-2").rename(cli.folder / "away")
    listed = json.loads(cli.run("list", "--json")[0])
    assert [(row["name"], row["active"]) for row in listed] == [("worked", False)]
    assert cli.run("list")[0].startswith(b"  worked@")
    manifest = json.loads(cli.run("inspect", "worked", "--json")[0])
    assert manifest["command"] == "tokenizer train corpus.txt --vocab-size 265 --name worked"
    assert [source["name"] for source in manifest["provenance"]] == ["corpus.txt"]
    assert manifest["training"]["n_merges"] == 8
    shown = cli.run("inspect", "worked", "--longest", "1")[0].decode()
    assert "' widest'" in shown
    assert "<|endoftext|> = 256" in shown


def test_several_sizes_of_one_run_equal_runs_of_each(cli):
    options = ("--seed-token", "zz", "--reserved=2", "--pad-to-multiple=4", "--min-frequency=2")
    several = ("--vocab-size=264,262,264", "--name=a", "--html=a.html", "--json=a.json")
    out, _ = cli.run("train", "corpus.txt", *several, *options, "--save-counts=c.counts")
    published = [line for line in out.splitlines() if line.startswith(b"published")]
    names = [line.split()[1].partition(b"@")[0] for line in published]
    assert names == [b"a-262", b"a-264"]
    for size, source in ((262, "corpus.txt"), (264, "--from-counts=c.counts")):
        cli.run("train", source, f"--vocab-size={size}", f"--name=b-{size}", *options)
    error = cli.fail("train", "--from-counts=c.counts", "--pattern=cl100k", "--name=d")
    assert "split pattern" in error
    digests = {row["name"]: row["digest"] for row in json.loads(cli.run("list", "--json")[0])}
    assert digests["a-262"] == digests["b-262"] != digests["a-264"] == digests["b-264"]
    training = json.loads(cli.run("inspect", "a-262", "--json")[0])["training"]
    assert (training["vocab_size"], training["n_reserved"]) == (264, 4)
    assert training["options"]["seed_tokens"] == ["zz"]
    assert training["curve"][-1]["vocab_size"] == 262
    report = json.loads((cli.folder / "a.json").read_text())
    assert report["schema"] == "tokenizer-training/1"
    small, large = report["runs"].values()
    assert small == training
    assert large["curve"][: len(small["curve"])] == small["curve"]
    page = (cli.folder / "a.html").read_text()
    assert all(f">{name}</th>" in page for name in ("a-262", "a-264"))
    error = cli.fail("train", "corpus.txt", "--html=none/a.html")
    assert "the folder of none/a.html is not there" in error


def test_seed_tokens_and_special_tokens_and_a_pattern_of_ones_own(cli):
    (cli.folder / "seeds").write_bytes(b"\xef\xbb\xbflowest\r\n  \n\nthe\n")
    cli.run("train", "corpus.txt", "--vocab-size=280", "--name=a", "--seed-file=seeds")
    for seed in ("lowest", "  ", "the"):
        assert cli.run("count", "--tokenizer=a", seed)[0] == b"1\n"
    (cli.folder / "seeds").write_bytes(b"ab\xff")
    error = cli.fail("train", "corpus.txt", "--seed-file=seeds", "--name=a")
    assert "seeds is not UTF-8 at byte 2" in error
    special = ("--special-token", "<|b|>", "--special-token", "<|a|>")
    own = ("--vocab-size=262", "--name=own", "--pattern", r"\w+|\W+")
    cli.run("train", "corpus.txt", *own, *special)
    out, _ = cli.run("encode", "--tokenizer=own", "<|a|><|b|>low")
    assert out.split()[:2] == [b"257", b"256"]
    many = [f"--special-token=<|{number}|>" for number in range(23)]
    cli.run("train", "corpus.txt", "--vocab-size=290", "--name=many", *many)
    assert b"<|19|> = 275, and 3 more" in cli.run("inspect", "many")[0]
    cli.run("train", "corpus.txt", "--vocab-size=260", "--name=none", "--no-special-token")
    assert b"special      none" in cli.run("inspect", "none")[0]


def test_a_text_is_cut_to_tokens(trained):
    text = "newest lower low"
    ids = json.loads(trained.run("encode", "--json", text)[0])
    part = json.loads(trained.run("truncate", "-n", "3", "--json", text)[0])
    assert part["tokens"] == ids[:3]
    assert trained.run("truncate", "-n", "3", stdin=text.encode())[0] == part["text"].encode()
    end, _ = trained.run("truncate", "-n", "3", "--side", "left", text)
    assert end == trained.run("decode", *map(str, ids[-3:]))[0]
    lines = trained.run("chunk", "-n", "3", "--file", "corpus.txt")[0].splitlines()
    chunks = [json.loads(line) for line in lines]
    assert "".join(chunk["text"] for chunk in chunks) == (trained.folder / "corpus.txt").read_text()
    assert max(len(chunk["tokens"]) for chunk in chunks) == 3
    assert "name one --file" in trained.fail("chunk", "-n1", *["--file", "corpus.txt"] * 2, code=2)
    assert "'-1' is no whole number" in trained.fail("truncate", "-n-1", "low", code=2)
    for words in (("chunk", "-n0"), ("chunk", "-n3", "--overlap-tokens=3")):
        assert "--max-tokens is " in trained.fail(*words, "low", code=2)


def test_encode_decode_count_agree(trained, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"newest lower")
    out, _ = trained.run("encode", "newest lower")
    ids = [int(word) for word in out.split()]
    as_json, _ = trained.run("encode", "--json", "newest lower")
    assert json.loads(as_json) == ids
    assert trained.run("encode", "--", "newest lower")[0] == out
    assert trained.run("encode", "--file", "text.txt")[0] == out
    for words in (("encode",), ("encode", "--file", "-")):
        assert trained.run(*words, stdin=b"newest lower")[0] == out
    assert trained.run("count", "newest lower")[0] == b"%d\n" % len(ids)
    several = trained.run("count", "--file", "text.txt", "corpus.txt")[0]
    assert several.splitlines()[0] == b"%d\ttext.txt" % len(ids)
    counts = [int(line.split(b"\t")[0]) for line in several.splitlines()]
    assert several.endswith(b"\n%d\ttotal\n" % sum(counts[:2]))
    assert len(counts) == 3
    assert trained.run("count", "--file", "text.txt", "--file", "corpus.txt")[0] == several
    assert "leave it out" in trained.run("encode", "-")[1]  # for standard input
    (trained.folder / "d.jsonl").write_text('{"text": "low"}', encoding="utf-8")
    for options, n_bytes in ((("--format=txt",), 15), (("--format=jsonl",), 3), ((), 3)):
        counted = json.loads(trained.run("count", "--file=d.jsonl", "--json", *options)[0])
        assert counted["bytes"] == n_bytes
    assert "not the documents in its lines" in trained.run("encode", "--file", "d.jsonl")[1]
    assert "not the documents" in trained.run("count", stdin=b'{"text": "low"}\n' * 2)[1]
    assert trained.run("count", stdin=b'{"text": "low"}\n')[1] == ""
    twice = ("encode", "--file", "text.txt", "text.txt")
    for option, each in (("--format=ids", out), ("--json", as_json)):
        assert trained.run(*twice, option)[0] == each * 2  # a line for each file
        assert trained.run("decode", stdin=each * 2)[0] == b"newest lower" * 2
    (tmp_path / "end.txt").write_text("<|endoftext|>", encoding="utf-8")
    refused = ("encode", "--disallowed-special=all", "--file=end.txt")
    assert "encode: end.txt holds the special token '<|endoftext|>'" in trained.fail(*refused)
    assert trained.run("decode", *map(str, ids))[0] == b"newest lower"
    for stdin in (out, as_json):
        assert trained.run("decode", stdin=stdin)[0] == b"newest lower"
    for width, dtype in (("u16", "<u2"), ("u32", "<u4")):
        raw, _ = trained.run("encode", "--format", width, "newest lower")
        assert np.frombuffer(raw, dtype).tolist() == ids
        assert trained.run("decode", "--format", width, stdin=raw)[0] == b"newest lower"


def test_any_bytes_of_utf8_come_back_exactly(trained):
    text = ("\r\n\t e\u0301 世界 👩‍👩‍👧 \u0000\ufeff" * 3_000).encode()  # across several reads
    ids, _ = trained.run("encode", "--allowed-special", "none", stdin=text)
    assert trained.run("decode", stdin=ids)[0] == text
    assert trained.run("count", stdin=text)[0] == b"%d\n" % len(ids.split())
    token = b"<|endoftext|>"
    for allowed, n_ids in (("all", 1), ("none", 13), (token.decode(), 1)):
        ids, _ = trained.run("encode", "--allowed-special", allowed, stdin=token)
        assert len(ids.split()) == n_ids
    assert ids == b"256\n"
    assert trained.run("decode", "--skip-special-tokens", "256", "97")[0] == b"a"
    assert "<|endoftext|>" in trained.fail("encode", "--allowed-special=<|x|>", "a", code=2)


def test_import_of_a_rank_file_requires_pattern_and_special_tokens(cli):
    file = "cl100k_base.tiktoken"
    write_tiktoken(cli.folder / file)
    error = cli.fail("import", file, "--name", "mine", code=2)
    assert "--pattern" in error
    assert "--special '<|endofprompt|>=100276'" in error  # what this file expects as published
    error = cli.fail("import", file, "--name=mine", "--pattern=cl100k", code=2)
    assert "--no-special" in error
    special = ("--special", "<|e=d|>=300", "--promote")
    cli.run("import", file, "--name=mine", "--pattern=cl100k", *special)
    assert cli.run("encode", "low<|e=d|>")[0] == b"257 300\n"
    assert b"258-299" in cli.run("inspect", "mine")[0]
    # An expression is read as tiktoken reads it.
    options = ("--no-special", "--promote")
    cli.run("import", file, "--name=own", "--pattern", "[a-m[n-z]&&[^x]]+", *options)
    assert cli.run("encode", "low1x")[0] == b"257\n"  # `1` and `x` are dropped
    shown = cli.run("inspect", "own")[0].decode()
    assert "fancy-regex" in shown
    assert "text without a match is dropped" in shown
    error = cli.fail("import", file, "--name=y", "--pattern", r"(a)\1", *options, code=1)
    assert "cannot be translated exactly from fancy-regex: the escape" in error


def test_a_file_that_says_everything_needs_no_option(cli):
    table = small_tekken(["<unk>", "<s>"], n_special=3)
    (cli.folder / "tekken.json").write_text(json.dumps(table))
    cli.run("import", "tekken.json", "--name=mistral", "--promote")
    text = "<s>1<SPECIAL_2>"
    want = f"1 {3 + ord('1')} 2\n".encode()
    assert cli.run("encode", text)[0] == want
    assert cli.run("encode", text, "--files", "tekken.json")[0] == want
    for option in ("--pattern=gpt2", "--special=<s>=1"):
        error = cli.fail("import", "tekken.json", "--name=m", option, code=1)
        assert "tekken.json says itself" in error
    tokens = [AddedToken("<s>", 256), AddedToken("<m>", 257, lstrip=True, single_word=True)]
    spec = TokenizerSpec.from_merges({byte: bytes([byte]) for byte in range(256)}, [], tokens)
    (cli.folder / "tokenizer.json").write_bytes(render_tokenizer_json(spec))
    shown = cli.run("inspect", "tokenizer.json")[0].decode()
    assert "<s> = 256, <m> = 257 (single_word, lstrip)\n" in shown


ERRORS = [
    (("frobnicate",), 2, "there is no command"),
    (("enocde", "a"), 2, "did you mean encode?"),
    (("extend", "a"), 2, "see train --extend"),
    (("encode", "a", "--formt=u16"), 2, "did you mean --format?"),
    (("train", "a", "--no-promote"), 2, "no option --no-promote (see"),
    (("train", "a", "--seed=1"), 2, "did you mean --seed-token?"),
    (("train", "a", "--server=u"), 2, "encode, decode, count, truncate, chunk and jobs"),
    (("corpus", "encode", "a", "-oo", "--server=u"), 2, "--server=u; encode, decode, count,"),
    (("corpus", "encode", "a", "-oo", "--disallowed-special=all"), 2, "; see --allowed-special ("),
    (("corpus", "encode", "a", "-oo", "--add-special-tokens"), 2, "; see --begin-of-document and"),
    (("corpus", "enocde", "a"), 2, "command 'enocde'; did you mean encode? (see tokenizer corpus"),
    (("jobs", "frobnicate"), 2, "command 'frobnicate'; there are list, show, watch, cancel ("),
    (("--verison",), 2, "there is no option --verison; did you mean --version?"),
    (("--artifacts-dir", "a", "list"), 2, "after the command: tokenizer COMMAND --artifacts-dir"),
    (("jobs", "--server=u", "list"), 2, "after the command: tokenizer jobs COMMAND --server"),
    (("encode", "<|endoftext|>", "--disallowed-special=all"), 1, "forbids; leave it out"),
    (("count", "a", "--disallowed-special=<|a|>"), 2, "'<|a|>' is no special token"),
    (("count", "a", "--field=text"), 2, "--format and --field are of files"),
    (("count", "--file=corpus.txt", "--field=a"), 2, "--field is of JSON lines"),
    (("encode", "a", "b"), 2, "quotes"),
    (("count", "a", "corpus.txt"), 2, "it is a file here, and files come after --file"),
    (("compare", "a", "b", "corpus.txt"), 2, "a file here, and files come after --corpus"),
    (("list", "mine"), 2, "list: takes no name; leave out 'mine' ("),
    (("count", "a", "--tokenizer=GPT2"), 1, "; did you mean gpt2?"),
    (("count", "--tokenizer=gpt2", "--", "--foo", "--quiet"), 2, "is an option; put --quiet"),
    (("encode", "-hello"), 2, "that begins with - is joined (--option=-hello), a text comes"),
    (("encode", "--", "-a", "-b"), 2, "one argument too many: '-b'"),
    (("train", "a", "--separator", "---"), 2, "begins with - is joined (--option=---), a text"),
    (("encode", "--foo"), 2, "no option --foo (see"),
    (("corpus", "sample", "--documents", "5"), 2, "there is no option --documents"),
    (("count", "a", "--server=localhost:1"), 1, "connect"),
    (("decode", "--file=nope"), 1, "nope is not there; check the path"),
    (("encode", "--pieces", "--json", "x"), 2, "not allowed with argument"),
    (("encode", "--files", "corpus.txt", "a"), 1, "put a text before --files"),
    (("train",), 2, "no input"),
    (("train", "corpus.txt", "--vocab-size", "300,"), 2, "no whole number from 0 up, such as 512"),
    (("train", "corpus.txt", "--vocab-size=300,301", "--promote"), 2, "only one size"),
    (("train", "corpus.txt", "--vocab-size", "10,000"), 2, "not between thousands: 10000 ("),
    (("train", "corpus.txt", "--vocab-size", "32,768"), 2, "32 is too small for one; commas"),
    (("train", "corpus.txt", "--seed-token", "a b"), 1, "'a b' cannot be one token"),
    (("train", "none.txt"), 1, "'none.txt' does not exist"),
    (("train", "corpus.txt", "--workers", "0"), 2, "--workers"),
    (("train", "corpus.txt", "--pattern", "gpt5"), 1, "Known names"),
    (("train", "corpus.txt", "--from-counts", "corpus.txt"), 2, "leave them out"),
    (("encode", "a", "--artifacts-dir", "nope"), 1, "an option names, does not exist"),
    (("encode", "a", "--tokenizer", "s3://b/t.json"), 2, "s3://b/t.json is an address"),
    (("convert", "s3://b/t.json", "--to", "tiktoken", "-o", "x"), 2, "s3://b/t.json is an address"),
    (("promote", "worked@../x"), 1, "'worked' has no version '../x'; it has"),
    (("encode", "a", "--tokenizer=Qwen/Qwen9"), 1, "download it (tokenizer pull Qwen/Qwen9)\n"),
    (("corpus", "encode", "corpus.txt", "-o=no/tokens"), 1, "the folder of no/tokens is not there"),
    (("encode", "a", "-o=no/ids"), 1, "the folder of no/ids is not there; make it first"),
    (("doctor", "empty"), 1, "doctor: the folder empty has no tokenizer.json"),
    (("import", "corpus.txt", "--name", "x"), 1, "corpus.txt"),
    (("import", "a", "--name=x", "--special", "nothing"), 2, "TOKEN=ID"),
    (("serve", "--port", "70000"), 2, "--port: must be less than or equal to 65535"),
    (("decode", "97", "98", "99999"), 1, "ids[2] = 99999"),
    (("decode", "ninety"), 1, "list of ids"),
    (("decode", "[97, 98"), 1, "is the input cut off?"),
    (("decode", "--file=a", "--file=b"), 2, "is given twice; leave one out"),
    (("decode", "97", "--file", "corpus.txt"), 2, "not both"),
]


def test_an_error_is_one_line_with_the_remedy(trained):
    (trained.folder / "empty").mkdir()
    for arguments, code, words in ERRORS:
        assert words in trained.fail(*arguments, code=code), arguments
    (trained.folder / "latin.txt").write_bytes(b"abc caf\xe9" + b" x" * 50_000)
    assert "latin.txt is not UTF-8 at byte 7" in trained.fail("encode", "--file", "latin.txt")
    late = b"a" * 65_535 + "é".encode() + b"\xff"
    assert "byte 65537" in trained.fail("count", stdin=late)
    many = b"97 " * 100_000 + b"99999"
    assert "ids[100000] = 99999" in trained.fail("decode", stdin=many)
    assert "tokenizer count --file latin.txt" in trained.run("count", "latin.txt")[1]
    assert "cut off" in trained.fail("decode", "--format", "u32", stdin=b"abc")
    assert "longer than any" in trained.fail("decode", stdin=b"9" * 200_000)
    assert "TOKENIZER_ENGINE" in trained.fail("encode", "a", TOKENIZER_ENGINE="steam")


STORED = {"TOKENIZER_STORE": "s3://a-bucket/prefix"}
RUN = ("--executor=ray", "--checkpoint-dir=run", "--output=x.counts")
EXTRAS = [
    ("hub", "huggingface_hub", ("pull", "Qwen/Qwen3-8B"), {}),
    ("parquet", "pyarrow", ("train", "a.parquet", "--vocab-size=300"), {}),
    ("parquet", "pyarrow", ("corpus", "encode", "corpus.txt", "-oo", "--layout=parquet"), {}),
    ("zstd", "backports", ("counts", "make", "a.txt.zst", "--output=x.counts"), {}),
    ("remote", "fsspec", ("report", "worked", "--corpus", "https://host/a.txt"), {}),
    ("s3", "fsspec", ("corpus", "encode", "s3://a-bucket/a.txt", "--output=o"), {}),
    ("s3", "s3fs", ("corpus", "encode", "s3://a-bucket/a.txt", "--output=o"), {}),
    ("s3", "botocore", ("corpus", "encode", "corpus.txt", "--output=s3://a-bucket/o"), {}),
    ("s3", "botocore", ("encode", "a"), STORED),
    ("s3", "botocore", ("import", "gpt2", "--name=a"), STORED),
    ("s3", "botocore", ("serve",), STORED),
    ("tokenizers", "tokenizers", ("count", "a", "--tokenizer=words.json"), {}),
    ("ray", "ray", ("counts", "make", "corpus.txt", *RUN), {}),
    ("postgres", "psycopg", ("jobs", "list"), {"TOKENIZER_JOBS_DATABASE": "postgresql://u@h/d"}),
]


def test_a_command_without_its_extra_exits_with_2_and_the_line_to_install_it(trained, monkeypatch):
    (trained.folder / "a.parquet").write_bytes(b"PAR1")
    (trained.folder / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    stages = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    words = dict.fromkeys(stages) | {"model": {"type": "WordPiece", "vocab": {"a": 0}}}
    (trained.folder / "words.json").write_text(json.dumps(words))
    for extra, module, arguments, environment in EXTRAS:
        if module == "backports" and sys.version_info >= (3, 14):
            continue
        with monkeypatch.context() as patch:
            for name in (module, *(name for name in sys.modules if name.startswith(f"{module}."))):
                patch.setitem(sys.modules, name, None)
            line = trained.fail(*arguments, code=2, **environment)
        assert f"pip install 'tokenizer-service[{extra}]'" in line, arguments
        assert "Errno" not in line
        assert "no file" not in line


def test_an_error_of_the_store_names_its_folder(trained):
    lock = trained.folder / "artifacts" / ".publish.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    line = trained.fail("import", "gpt2", "--name=gpt2")
    assert line.startswith("tokenizer import: artifacts: cannot publish: '.publish.lock': ")


def test_the_version_names_the_engine_and_why(cli, monkeypatch):
    shown, _ = cli.run("-V", TOKENIZER_ENGINE="python")
    assert b"engine: python (it was asked for by name)" in shown
    assert version("tokenizer-service").encode() in shown
    monkeypatch.setattr(native_import, "_import_error", ImportError("an undefined symbol"))
    shown, _ = cli.run("--version")
    assert b"engine: python (the compiled module" in shown
    assert b"an undefined symbol)" in shown
    shown, _ = cli.run("--version", TOKENIZER_ENGINE="python")
    assert b"engine: python (it was asked for by name)" in shown
    assert b"cannot run here" in shown
    for command in ("--version", "serve"):
        assert "an undefined symbol" in cli.fail(command, TOKENIZER_ENGINE="native")
    assert "TOKENIZER_COMPILED is 'maybe'" in cli.fail("serve", TOKENIZER_COMPILED="maybe")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_sigterm_and_ctrl_c_differ(monkeypatch, capsys, is_replaced):
    """Also when a library, as Ray does, raises another interrupt in place of its handler's."""

    def run(arguments):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as terminated:
            interrupt = KeyboardInterrupt() if is_replaced else terminated
            interrupt.add_note("it goes on")
            raise interrupt from None

    parser = Mock(parse_args=lambda words: argparse.Namespace(prog="tokenizer x", run=run))
    monkeypatch.setattr(cli_module, "build_parser", lambda command: parser)
    assert main(["x"]) == 143
    assert capsys.readouterr().err == "tokenizer x: interrupted; it goes on\n"


def test_the_examples_in_the_help_parse():
    """Every command has an example, and the parser accepts every example line."""
    parser = build_whole_parser()
    shown_commands = set()
    for shown in parsers_below(parser):
        for line in (shown.epilog or "").replace("\\\n", " ").splitlines():
            if not line.startswith("  ") or "tokenizer" not in line:
                continue
            if shown is parser:  # the purpose of an example follows it
                line = line.strip().partition("   ")[0]
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&")
            lexer.whitespace_split = True
            words = list(lexer)
            if "tokenizer" not in words:
                continue
            words = words[words.index("tokenizer") + 1 :]
            ends = [words.index(mark) for mark in ("|", ">", "&&") if mark in words]
            parser.parse_args(words[: min(ends, default=None)])
            if shown is not parser:
                shown_commands.add(words[0])
    assert shown_commands == set(_COMMANDS)


@pytest.mark.parametrize("words", [(), ("corpus",), ("jobs",)])
def test_without_a_command_the_help_is_printed(cli, words):
    out, error = cli.run(*words, code=2)
    assert (out, error) == (b"", cli.run(*words, "--help")[0].decode())


def test_the_error_names_every_command_that_asks_a_service():
    parsers = parsers_below(build_whole_parser())
    asks = {p.prog.split()[1] for p in parsers if "--server" in p._option_string_actions}
    said, _, _ = CommandParser.instead["--server"].partition(" take")
    assert set(said.replace(" and", ",").split(", ")) == asks


def test_the_help_and_the_error_name_the_same_patterns(cli):
    refused = cli.fail("train", "corpus.txt", "--pattern", "gpt5")
    names = refused.partition("Known names: ")[2].partition(";")[0]
    for command in ("train", "import"):
        assert names in " ".join(cli.run(command, "--help")[0].decode().split())


def parsers_below(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_below(below)


def test_a_warning_of_the_library_is_one_line(cli):
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"<|endoftext|>"}
    write_files("gpt2", TokenizerSpec.from_merges(vocab, []), "v.json", "m.txt")
    out, error = cli.run("encode", "<|endoftext|>", "--files", "v.json", "m.txt")
    assert len(out.split()) == 13
    assert error.startswith("tokenizer: warning: the vocabulary has tokens that look special")
    assert error.endswith("--special '<|endoftext|>=256'\n")
    assert error.count("\n") == 1
    special = ("--special", "<|endoftext|>=256")
    assert cli.run("encode", "<|endoftext|>", *special, "--files", "v.json", "m.txt")[1] == ""


@pytest.fixture
def published(trained):
    """The name and version of the only published tokenizer, `worked`."""
    [row] = json.loads(trained.run("list", "--json")[0])
    return f"{row['name']}@{row['version']}"


def test_an_unknown_name_is_refused_with_the_published_names(cli, published):
    for command in (
        ("encode", "a", "--tokenizer", "wroked"),
        ("inspect", "wroked"),
        ("report", "wroked", "--corpus", "corpus.txt"),
        ("compare", "wroked", "worked"),
        ("convert", "wroked", "--to", "tokenizer.json", "--output", "x.json"),
    ):
        found = cli.fail(*command)
        assert "'wroked'; did you mean worked?; published: worked; presets: gpt2" in found
    wrong = published[:-1] + ("0" if published[-1] != "0" else "1")
    told = cli.fail("encode", "a", "--tokenizer", wrong)
    version_ = published.partition("@")[2]
    assert f"did you mean {version_}?; it has {version_}" in told
    assert "did you mean gpt2?" in cli.fail("encode", "a", "--tokenizer", "gtp2")


def test_pieces_are_a_line_each_in_a_pipe(cli, published):
    text = "low \u2122\t\x1b[31m\nlow"
    out = cli.run("encode", "--tokenizer", "worked", "--pieces", text)[0].decode()
    rows = [line.split("\t", 1) for line in out.splitlines()]
    ids = cli.run("encode", "--tokenizer", "worked", text)[0].decode().split()
    assert [row[0] for row in rows] == ids
    assert rows[0][1] == '"low"'
    assert [shown for _, shown in rows if shown.startswith("<")] == ["<e2>", "<84>", "<a2>"]
    assert "\x1b" not in out


def test_pieces_are_coloured_on_a_terminal_and_hide_control_characters(monkeypatch):
    vocab = {1: b"lo\nw", 2: b"\xe2\x84", 3: b"\x1b[31m", 4: b"\t"}
    [shown, end] = render_pieces([[1, 2, 3, 4]], vocab, is_coloured=True)
    plain = re.sub(r"\x1b\[(30;48;5;\d+|0)m", "", shown.decode())
    assert plain == "lo⏎\nw<e2 84>\\x1b[31m⇥"
    assert "\x1b[31m" not in shown.decode()
    assert end == b"\n"
    assert len(set(re.findall(r"48;5;(\d+)m", shown.decode()))) == 4
    for is_terminal, no_color, term, expected in (
        (True, "", "xterm-256color", True),
        (False, "", "xterm-256color", False),
        (True, "1", "xterm-256color", False),
        (True, "", "dumb", False),
    ):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setenv("TERM", term)
        assert has_colours(Mock(**{"isatty.return_value": is_terminal})) is expected
