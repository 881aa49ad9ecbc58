"""`tokenizer corpus`: write, check, inspect and sample token files from the command line."""

import gzip
import json
import os
import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.native_module import native_module
from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core import compiled
from tokenizer_core.corpus import (
    TokenDataset,
    TokenFiles,
    TokenManifest,
    corpus_encoding,
    encode_corpus,
    encoding_run,
)
from tokenizer_core.distributed import encode_distributed
from tokenizer_core.documents import CorpusFormat, read_documents
from tokenizer_core.errors import StorageError
from tokenizer_core.spec.stored import parse_spec
from tokenizer_service.commands import corpus, progress, uploaded_output

END = "<|endoftext|>"
STORIES = f"One day.{END}Two days, three."
ENCODE = ("corpus", "encode", "stories.txt", "--output")


@pytest.fixture
def cli(tmp_path, monkeypatch):
    made = Cli(tmp_path, monkeypatch)
    Path("stories.txt").write_text(STORIES)
    made.run("train", "stories.txt", "--vocab-size", "270", "--name", "mine", "--promote")
    return made


def test_without_a_terminal_progress_is_a_line_each_minute(cli, monkeypatch):
    assert "encoding: " not in cli.run(*ENCODE, "tokens")[1]
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0)
    assert "encoding: 100.0%\n" in cli.run(*ENCODE, "again")[1]
    assert "encoding: " not in cli.run(*ENCODE, "quiet", "--quiet")[1]


def test_token_files_can_be_verified_and_read(cli):
    out, told = cli.run(*ENCODE, "tokens")
    assert out.decode().startswith("train: 2 documents, ")
    why = "the only known document end of the vocabulary"
    assert f"the token '{END}' ends a document: {why}\n" in out.decode()
    assert "special tokens found" not in told
    assert "note: " not in told
    Path("z.txt").symlink_to("stories.txt")
    for also in ("./stories.txt", "stor*.txt", "z.txt"):
        told = cli.run("corpus", "encode", "stories.txt", also, "-o", f"of {also[0]}")[1]
        assert "txt is named more than once; each file is read once\n" in told, also
    assert "uint16 ids as raw, by the tokenizer mine@" in out.decode()
    trained, _ = cli.run("train", "stories.txt", "--vocab-size", "270", "--name", "mine")
    (measured,) = re.findall(r"[0-9.]+ bytes per token", trained.decode())
    assert f", {measured}, " in out.decode()  # neither counts special tokens
    assert b"tokens: 4 files, 2 documents, " in cli.run("corpus", "verify", "tokens")[0]
    out, _ = cli.run("corpus", "verify", "tokens", "--json")
    n_tokens = TokenFiles.open("tokens").n_tokens()
    found = {"folder": "tokens", "files": 4, "documents": 2, "tokens": n_tokens}
    assert json.loads(out) == [found]
    inspect = ("corpus", "inspect", "tokens")
    assert cli.run(*inspect, "--document", "1")[0].decode() == f"Two days, three.{END}\n"
    ids, _ = cli.run("encode", f"Two days, three.{END}")
    assert cli.run(*inspect, "--document", "1", "--ids")[0] == ids
    out, _ = cli.run(*inspect)
    assert f"train: 2 documents, {n_tokens:,} tokens" in out.decode()
    assert "train: of 270 tokens 26" in out.decode()
    assert f'most used: 46 "." (2 times), 256 "{END}" (2 times), ' in out.decode()


def test_a_file_named_again_is_neither_parsed_nor_are_its_tables_read(cli, monkeypatch):
    native_module()
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd()))
    Path.cwd().chmod(0o700)
    cli.run("convert", "mine", "--to", "tokenizer.json", "--output", "mine.json")
    for name in ("first", "second"):
        cli.run(*ENCODE, name, "--files", "mine.json")
    parse = Mock(side_effect=lambda data, _: parse_spec(data, None))  # no tables can be read
    monkeypatch.setattr(compiled, "parse_spec", parse)
    cli.run(*ENCODE, "third", "--files", "mine.json")
    parse.assert_called_once()
    assert content(Path("third")) == content(Path("first"))


def test_the_options_are_those_of_the_plan(cli):
    lines = "".join(json.dumps({"story": f"story {index}"}) + "\n" for index in range(50))
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text(lines)
    out, _ = cli.run(
        "corpus", "encode", "*.jsonl", "--field", "story", "--output", "tokens", "--json",
        "--layout", "npy", "--dtype", "uint32", "--tokens-per-shard", "100", "--end-of-document",
        "", "--validation-share", "0.3", "--seed", "4", "--tokenizer", "mine", "--workers", "2",
        "--max-length", "4k",
    )  # fmt: skip
    manifest = TokenManifest.from_json(Path("tokens/manifest.json").read_bytes())
    assert TokenManifest.from_json(out) == manifest
    plan = manifest.plan
    assert (plan.layout_name, plan.dtype, plan.seed) == ("npy", "uint32", 4)
    assert plan.max_length == 4000
    assert b"32k = 32000" in cli.run("corpus", "encode", "--help")[0]
    assert (plan.end_of_document_id, plan.tokenizer.name) == (None, "mine")
    assert [source.path for source in manifest.sources] == ["a.jsonl", "b.jsonl"]
    n_documents = {split.name: split.n_documents for split in manifest.splits}
    assert sum(n_documents.values()) == 100
    assert n_documents["validation"] > 10
    assert len(manifest.split("train").shards) > 1
    assert np.load("tokens/" + manifest.split("train").shards[0].files[0].file).dtype == "<u4"


def test_long_documents_are_truncated_or_dropped_and_short_ones_packed(cli):
    cli.run(*ENCODE, "all")
    shorter, longer = (len(TokenFiles.open("all").document(index)) for index in range(2))
    assert shorter < longer - 1
    bound = f"--max-length={longer - 1}"
    _, told = cli.run(*ENCODE, "cut", bound)
    counted = f"over {longer - 1} tokens: 1 document truncated, 0 dropped, 1 token lost"
    assert f"tokenizer: warning: train: {counted}\n" in told
    files = TokenFiles.open("cut")
    assert [len(files.document(index)) for index in range(2)] == [shorter, longer - 1]
    assert files.document(1)[-1] == files.document(0)[-1] == files.manifest.plan.end_of_document_id
    out, told = cli.run(*ENCODE, "dropped", bound, "--over-length", "drop")
    assert f"train: 1 document, {shorter} tokens" in out.decode()
    assert f"0 documents truncated, 1 dropped, {longer} tokens lost" in told

    length = shorter + longer
    out, _ = cli.run("corpus", "pack", "all", "--length", str(length))
    assert out.decode().splitlines() == [
        f"train: 1 sequence of at most {length} tokens, 100.00% full; fewer than 1 are impossible",
        f"pack: all.packed-{length}",
    ]
    verify = ("corpus", "verify", f"all.packed-{length}")
    assert "of 1 sequence, all as the manifest says; name its" in cli.run(*verify)[0].decode()
    lines = cli.run(*verify, "all", "cut")[0].decode().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["all", "cut", f"all.packed-{length}"]
    assert "name its" not in lines[2]
    sample = TokenDataset.open("all").packed(length)[0]
    assert sample["cu_seqlens"].tolist() == [0, shorter, length]
    pack = ("corpus", "pack", "all", "--length", "4")
    assert "--split-documents" in cli.fail(*pack)
    out, _ = cli.run(*pack, "--split-documents", "-o", "p", "--json")
    assert json.loads(out)["splits"][0]["n_tokens"] == length
    damaged = Path("p/train.pieces.u64")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    told = cli.fail("corpus", "verify", "cut", "p", "all", code=3)
    assert "p: train.pieces.u64 is missing, or was changed" in told


def test_conversations_are_encoded_with_their_mask(cli):
    Path("chat.jinja").write_text(
        "{% for m in messages %}{{ m.role + ': ' + m.content + '<|endoftext|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    good = {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2"}]}
    Path("chats.jsonl").write_text(json.dumps(good) + "\n" + json.dumps({"messages": []}) + "\n")
    encode = ["corpus", "encode", "chats.jsonl", "--format", "chat", "--output", "t"]
    assert "no chat template 'default'" in cli.fail(*encode)
    encode += ["--chat-template", "chat.jinja"]
    error = cli.fail(*encode)
    assert "'chats.jsonl', line 2: the conversation has no messages" in error
    assert "or leave bad documents out (--skip-bad)" in error
    assert "no {% generation %} tags" in cli.fail(*encode, "--loss", "template")
    for option in ("--field", "--separator", "--allowed-special"):
        assert "leave it out" in cli.fail(*encode, option, "story", code=2)
    assert "neither a file" in cli.fail(*encode[:-1], "other.jinja")
    out, told = cli.run(*encode, "--skip-bad", "--max-bad", "0.5")
    assert "  the loss counts at 2 tokens (" in out.decode()
    left_out = "documents left out: 1 bad (no_conversation 1: chats.jsonl line 2)"
    assert f"warning: {left_out}\n" in told
    assert "  turns with end: 1\n" in out.decode()
    Path("own.jinja").write_text(Path("chat.jinja").read_text().replace("endoftext", "end"))
    own = [*encode[:5], "--chat-template", "own.jinja", "--skip-bad", "--max-bad=0.5", "--output"]
    _, told = cli.run(*own, "whole")
    assert "writes <|end|>, no token of this tokenizer" in told
    files = TokenFiles.open("t")
    ids = files.document(0)
    assert files.document_mask(0).tolist() == [0] * (len(ids) - 2) + [1, 1]
    assert "special tokens found" not in cli.run("corpus", "inspect", "t")[1]
    show = ("corpus", "inspect", "t", "--document=0", "--mask")
    assert cli.run(*show)[0].decode() == f"user: 1?{END}assistant: [[2{END}]]\n"
    shown = " ".join(map(str, ids[:-2])) + f" [[{ids[-2]} {ids[-1]}]]\n"
    assert cli.run(*show, "--ids")[0].decode() == shown
    # The token of the next message ends a turn.
    Path("chat.jinja").write_text(
        "{% for m in messages %}<|endoftext|>{{ m.role + ':' + m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|endoftext|>assistant:{% endif %}"
    )
    encode[encode.index("t")] = "by-roles"
    assert "Declare it (--turn-end '<|endoftext|>'" in cli.fail(*encode, "--skip-bad")
    out, told = cli.run(*encode, "--skip-bad", "--max-bad", "0.5", "--turn-end", END)
    assert "warning: turns learned without an end, because nothing follows them: 1\n" in told
    assert "declared to end turns: <|endoftext|>\n" in out.decode()


@pytest.fixture
def many(cli):
    Path("many.txt").write_text(END.join(f"story {index}" for index in range(500)))
    return cli


def test_an_interrupted_encoding_resumes(many, monkeypatch):
    command = ("corpus", "encode", "many.txt", "--validation-share", "0.2", "--output")
    many.run(*command, "expected")
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 100)
    seen = []

    def interrupted(*arguments, progress, **options):
        def count(now):
            seen.append(now)
            if len(seen) == 5:
                raise KeyboardInterrupt
            progress(now)

        return encode_corpus(*arguments, progress=count, **options)

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_corpus", interrupted)
        assert many.fail(*command, "tokens", code=130).endswith("interrupted\n")
        seen.clear()
        patch.setattr(encoding_run, "CHECKPOINT_SECONDS", 0)
        patch.setattr(encoding_run, "_CHECKPOINT_SHARE", 1e9)
        told = many.fail(*command, "tokens", code=130)
        assert "the same command with --resume to continue" in told
        n_before = seen[-1].n_documents
        assert n_before > 0
        told = many.fail(*command, "tokens")
        assert "continue it (--resume, in Python resume=True), or remove .tokens.partial" in told
    resume = (*command, "tokens", "--resume", "--workers", "2")
    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_corpus", interrupted)
        many.fail(*resume, code=130)
    assert seen[0].n_documents >= n_before
    many.run(*resume)
    assert content(Path("tokens")) == content(Path("expected"))
    Path(".tokens.partial").mkdir()  # of a writer that died before it cleaned up
    told = many.run(*resume, "--skip-bad")[1]
    assert not Path(".tokens.partial").exists()
    assert "tokens is complete already, of the same files" in told
    out, _ = many.run(*command, "int32", "--layout=parquet")
    assert "uint16 ids as parquet (int32 in the Parquet files), by" in out.decode()
    for option, by in (
        ("--separator=x", "other settings (separator)"),
        ("--layout=npy", "another plan (layout)"),
    ):
        assert f"is there already, and complete, by {by};" in many.fail(*resume, option)
    text = Path("many.txt").read_text()
    for changed in ("less", text[:-1] + "."):  # the second of the same size
        Path("many.txt").write_text(changed)
        assert "is there already, and complete, by other files;" in many.fail(*resume)


def test_a_distributed_run_makes_the_same_token_files_and_resumes(many, monkeypatch):
    Path("more.txt").write_text(f"more{END}still more")
    command = ("corpus", "encode", "*.txt", "--validation-share", "0.2", "--shuffle", "--output")
    many.run(*command, "expected")
    run = (*command, "tokens", "--checkpoint-dir", "run", "--temp-dir", "scratch", "--workers", "1")

    def interrupted(*what, progress, **how):
        def stop(now):
            progress(now)
            raise KeyboardInterrupt

        return encode_distributed(*what, progress=stop, **how)

    with monkeypatch.context() as patch:
        patch.setattr("tokenizer_core.distributed.encode_distributed", interrupted)
        told = many.fail(*run, code=130)
        assert "the same command to continue after the finished shards" in told
    assert len(list(Path("run").glob("*/encode/*.json"))) == 2  # one ahead
    many.run(*run)
    assert content(Path("tokens")) == content(Path("expected"))
    assert "tokens is complete already" in many.run(*run)[1]
    assert "tokens is complete already" in many.run(*command, "tokens", "--resume")[1]
    assert not Path("run/run.json").exists()


def test_without_a_separator_a_file_is_one_document(cli):
    command = ("corpus", "encode", "stories.txt", "--separator", "", "--output")
    out, _ = cli.run(*command, "plain", "--allowed-special", "none")
    assert out.decode().startswith("train: 1 document")
    _, told = cli.run(*command, "recognised")
    assert "separator" not in told
    _, told = cli.run(*command[:-2], "\\n", "--output", "nowhere")
    unused = "the separator '\\\\n' occurs nowhere"
    assert unused in told
    for words in (("train", "--vocab-size=258", "--name=x"), ("counts", "make", "--output=c")):
        counting = (*words, "stories.txt", "--no-special-token", "--separator")
        assert unused in cli.run(*counting, r"\n")[1]
        assert cli.run(*counting, "e")[1] == ""
    for n_lines, name in ((50_000, "long.txt"), (30_000, "short.txt"), (50_000, "long.jsonl")):
        text = "one document in a line\n" * n_lines
        Path(name).write_text(json.dumps({"text": text}) if name == "long.jsonl" else text)
        _, told = cli.run("corpus", "encode", name, "--output", f"{name} tokens")
        said = f"'{END}' occurs nowhere: each file is one document; name what ends a document"
        assert (said in told) == (name == "long.txt"), told
        assert (said in cli.run("corpus", "inspect", f"{name} tokens")[1]) == (said in told)
    assert 256 not in TokenFiles.open("plain").document(0)[:-1]
    assert 256 in TokenFiles.open("recognised").document(0)[:-1]
    _, told = cli.run("corpus", "inspect", "recognised")
    assert "found in the texts: '<|endoftext|>' (1 time)" in told


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_special_token_in_a_record_is_an_error_until_the_option_says_what_it_is(cli, suffix):
    write_corpus(cli.folder / f"rows.{suffix}", ["one", "two <|endoftext|>"], suffix)
    command = ("corpus", "encode", f"rows.{suffix}", "--output")
    line = cli.fail(*command, "tokens")
    place = "line 2" if suffix == "jsonl" else "row 2 (from 1)"
    assert f"rows.{suffix}', {place}: the document holds the special token" in line
    assert "(--allowed-special all) takes it as the token, none as text" in line
    assert not Path("tokens").exists()
    for name, count in (("all", 1), ("none", 0)):
        _, told = cli.run(*command, name, "--allowed-special", name)
        assert ("special tokens found in the texts" in told) == bool(count)
        assert list(TokenFiles.open(name).document(1)[:-1]).count(256) == count


def test_errors_are_one_line_with_the_remedy(cli):
    cli.run("train", "stories.txt", "--vocab-size=260", "--name=bare", "--special-token=<|x|>")
    for options, code, said in (
        (["--executor=ray"], 2, "--executor ray needs --checkpoint-dir"),
        (["--ray-address=auto"], 2, "--ray-address needs --executor ray"),
        (["--executor=ray", "--checkpoint-dir=run", "--workers=2"], 2, "--workers counts local"),
        (["--workers=0"], 2, "--workers must be at least 1"),
        (["--temp-dir=big"], 2, "--temp-dir belongs to an output at an address"),
        (["--over-length=drop"], 2, "--over-length belongs to --max-length"),
        (["--loss=role"], 2, "belong to --format chat"),
        (["--tokenizer=bare"], 1, "with --end-of-document"),
        (["--validation-share=2"], 2, "--validation-share"),
        (["--separator=\udcff"], 2, "--separator: it is not UTF-8"),
        (["--allowed-special=<|x|>"], 2, "it has: <|endoftext|>"),
    ):
        assert said in cli.fail(*ENCODE, "tokens", *options, code=code)
    assert "write it to a file first" in cli.fail("corpus", "encode", "-", "-o", "tokens", code=2)
    assert "check the path" in cli.fail("corpus", "encode", "nope.txt", "--output", "tokens")
    assert not Path("tokens").exists()
    _, told = cli.run(*ENCODE, "one", "--validation-share", "1e-9")
    assert "all documents are in the split train: with a validation share of 1e-09" in told
    cli.run(*ENCODE, "tokens")
    assert "is there already" in cli.fail(*ENCODE, "tokens")
    cli.run("train", "stories.txt", "--vocab-size", "265", "--name", "other")
    cli.run("promote", "other")
    out, _ = cli.run(*ENCODE, "by a preset", "--tokenizer=gpt2")
    assert "by the tokenizer gpt2, " in out.decode()
    out, _ = cli.run("corpus", "inspect", "by a preset", "--document=0")  # by the preset
    assert out.decode().startswith("One day.")
    cli.run("corpus", "inspect", "tokens", "--document=0")  # with the tokenizer that wrote it
    for options, code, said in (
        (["--document=2"], 1, "no document 2"),
        (["--ids"], 2, "--document"),
        (["--mask"], 2, "--document"),
        (["--document=0", "--mask"], 1, "these token files have no loss mask"),
        (["--document=0", "--tokenizer=other"], 1, "tokenizer"),
    ):
        assert said in cli.fail("corpus", "inspect", "tokens", *options, code=code)
    cli.run("corpus", "verify", "tokens", "--tokenizer=mine")
    out, _ = cli.run("corpus", "inspect", "tokens", "--artifacts-dir", ".")  # where it is not
    assert re.search(r"most used: \d+ \(", out.decode())
    told = cli.fail("corpus", "verify", "tokens", "--tokenizer=other")
    assert "are of another tokenizer" in told
    shard = Path("tokens/train.bin")
    shard.write_bytes(shard.read_bytes()[:-2] + b"\1\1")
    assert "train.bin" in cli.fail("corpus", "verify", "tokens", code=3)


def test_an_upload_that_failed_costs_no_encoding_unless_the_corpus_changed(cli, monkeypatch):
    command = (*ENCODE, "s3://bucket/t", "--temp-dir=waiting")
    uploaded = []

    def fail(folder, address, progress):
        raise StorageError("the bucket is away")

    def upload(folder, address, progress):
        uploaded.append(address)
        return TokenManifest.from_json((folder / "manifest.json").read_bytes())

    monkeypatch.setattr(uploaded_output, "require_free", lambda address: None)
    monkeypatch.setattr(uploaded_output, "upload_token_files", fail)
    error = cli.fail(*command)
    assert "the bucket is away. the token files are complete in waiting/" in error
    assert "with --resume uploads them" in error
    assert "give --resume to do that, or remove the folder" in cli.fail(*command)
    monkeypatch.setattr(uploaded_output, "upload_token_files", upload)
    before = Path("stories.txt").stat()
    Path("stories.txt").write_text("new text")
    assert "the corpus has changed since an earlier run" in cli.fail(*command, "--resume")
    assert uploaded == []
    Path("stories.txt").write_text(STORIES)
    os.utime("stories.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setattr(corpus, "encode_corpus", None)
    cli.run(*command, "--resume")
    assert uploaded == ["s3://bucket/t"]
    assert list(Path("waiting").iterdir()) == []


TEXTS = [f'story {i}\nof é and 漢 "{i}"\t' for i in range(400)]


def lines_of(texts, field="text"):
    return "".join(json.dumps({field: text}) + "\n" for text in texts)


@pytest.fixture
def samples(tmp_path, monkeypatch):
    made = Cli(tmp_path, monkeypatch)
    Path("a.txt").write_text(END.join(TEXTS[:200]), encoding="utf-8")
    Path("b.jsonl.gz").write_bytes(gzip.compress(lines_of(TEXTS[200:], "story").encode()))
    return made


def test_a_sample_as_text_and_as_json_lines_holds_the_same_documents(samples):
    command = ("corpus", "sample", "a.txt", "*.gz", "--field=story", "--fraction=0.1", "--seed=7")
    out, error = samples.run(*command, "-o", "s.txt")
    samples.run(*command, "-o", "s.jsonl")
    drawn = list(read_documents("s.txt", CorpusFormat(separator=END)))
    assert drawn == list(read_documents("s.jsonl"))
    assert [text for text in TEXTS if text in drawn] == drawn
    assert 20 < len(drawn) < 65
    assert min(TEXTS.index(text) for text in drawn) < 200 <= max(map(TEXTS.index, drawn))
    size = Path("s.txt").stat().st_size
    said = f"s.txt: {len(drawn)} of 400 documents, {size:,} bytes, drawn with seed 7\n"
    assert (out.decode(), error) == (said, "")
    out, _ = samples.run(*command, "-o", "t.txt", "--json")
    assert json.loads(out) == {
        "documents": len(drawn), "documents_read": 400, "bytes": size, "share": 0.1, "seed": 7,
    }  # fmt: skip
    assert Path("t.txt").read_bytes() == Path("s.txt").read_bytes()


def test_a_sample_of_conversations_has_whole_records(samples):
    rows = [
        f'{{"messages": [{{"role": "user", "content": "{i} é"}}],  "id":{i}}}\n' for i in range(99)
    ]
    Path("c.jsonl").write_text("".join(rows), encoding="utf-8")
    chats = ("corpus", "sample", "c.jsonl", "--format=chat", "--fraction=0.5")
    samples.run(*chats, "-o", "s.jsonl")
    drawn = Path("s.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    assert [row for row in rows if row in drawn] == drawn
    assert 20 < len(drawn) < 80
    assert "as JSON lines; s.txt ends in .txt" in samples.fail(*chats, "-o", "s.txt", code=2)
    for command in (("train", "c.jsonl"), ("count", "--file=c.jsonl", "--tokenizer=gpt2")):
        said = samples.fail(*command)
        assert "corpus encode and corpus sample read conversations with --format chat" in said
        assert "commands and training read texts, which tokenizer chat FILE --text writes" in said


SAMPLE_ERRORS = [
    (("a.txt", "-o", "s.txt"), 2, "--fraction"),
    (("a.txt", "--fraction=0", "-o", "s.txt"), 2, "0.01 is a hundredth), not 0"),
    (("a.txt", "--fraction=5%", "-o", "s.txt"), 2, "'5%' is no fraction from 0 to 1"),
    (("a.txt", "--fraction=0.5", "-o", "s.csv"), 2, "s.csv must end in .txt or .jsonl"),
    (("a.txt", "--fraction=0.5", "-o", "no/s.txt"), 1, "the folder of no/s.txt is not there"),
    (("a.txt", "--fraction=0.5", "-o", "a.txt"), 2, "a.txt is also an input"),
    (("a.txt", "--fraction=0.5", "--separator=", "-o", "s.txt"), 2, "name one"),
    (("a.txt", "--fraction=1e-9", "-o", "s.txt"), 1, "no document of 200 was drawn"),
    (("empty.txt", "--fraction=1", "-o", "s.txt"), 1, "the files have no document"),
    (("b.jsonl.gz", "--fraction=0.5", "-o", "s.txt"), 1, "'text'"),
    (("e.jsonl", "--fraction=0.5", "-o", "s.txt"), 1, "a document holds '<|endoftext|>'"),
    (("f.jsonl", "--fraction=0.5", "--separator=aa", "-o", "s.txt"), 1, "holds 'aa'"),
]


def test_an_error_of_a_sample_writes_nothing(samples):
    for name, text in (("e", f"{END} "), ("f", "xa")):
        Path(f"{name}.jsonl").write_text(lines_of([text] * 20))
    Path("empty.txt").touch()
    Path("s.txt").write_text("what was there")
    before = sorted(Path().iterdir())
    for arguments, code, words in SAMPLE_ERRORS:
        assert words in samples.fail("corpus", "sample", *arguments, code=code)
        assert sorted(Path().iterdir()) == before
    assert Path("s.txt").read_text() == "what was there"


def test_two_documents_of_a_sample_do_not_make_a_separator_between_them(samples):
    halves = ["x<|endof", "text|>y"]
    Path("e.jsonl").write_text(lines_of(halves * 20))
    samples.run("corpus", "sample", "e.jsonl", "--fraction=0.9", "-o", "s.txt")
    assert set(read_documents("s.txt", CorpusFormat(separator=END))) == set(halves)
