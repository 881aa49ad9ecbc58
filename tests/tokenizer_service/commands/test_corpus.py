"""`tokenizer corpus`: write, check and inspect token files from the command line."""

import json
import os
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_service.test_cli import Cli
from tokenizer_core.corpus import (
    EncodingProgress,
    TokenDataset,
    TokenFiles,
    TokenManifest,
    corpus_encoding,
    encode_corpus,
    encoding_run,
)
from tokenizer_core.distributed import encode_distributed
from tokenizer_service.commands import corpus

STORIES = "One day.<|endoftext|>Two days, three."


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = Cli(tmp_path, monkeypatch)
    Path("stories.txt").write_text(STORIES)
    made.run("train", "stories.txt", "--vocab-size", "270", "--name", "mine", "--promote")
    return made


def test_token_files_can_be_verified_and_read(cli: Cli) -> None:
    out, _ = cli.run("corpus", "encode", "stories.txt", "--output", "tokens")
    assert out.decode().startswith("train: 2 documents, ")
    assert "uint16 ids as raw, by the tokenizer mine@" in out.decode()
    assert b"tokens: 4 files, 2 documents, " in cli.run("corpus", "verify", "tokens")[0]
    out, _ = cli.run("corpus", "verify", "tokens", "--json")
    n_tokens = TokenFiles.open("tokens").n_tokens()
    assert json.loads(out) == {"files": 4, "documents": 2, "tokens": n_tokens}
    out, _ = cli.run("corpus", "inspect", "tokens", "--document", "1")
    assert out.decode() == "Two days, three.<|endoftext|>\n"
    out, _ = cli.run("corpus", "inspect", "tokens", "--document", "1", "--ids")
    ids, _ = cli.run("encode", "Two days, three.<|endoftext|>")
    assert out == ids
    out, _ = cli.run("corpus", "inspect", "tokens")
    assert f"train: 2 documents, {n_tokens:,} tokens" in out.decode()
    assert "train: of 270 tokens 26" in out.decode()
    assert "special tokens found in the texts: none" in out.decode()


def test_the_options_are_those_of_the_plan(cli: Cli) -> None:
    lines = "".join(json.dumps({"story": f"story {index}"}) + "\n" for index in range(50))
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text(lines)
    out, _ = cli.run(
        "corpus", "encode", "*.jsonl", "--field", "story", "--output", "tokens", "--json",
        "--layout", "npy", "--dtype", "uint32", "--tokens-per-shard", "100", "--end-of-document",
        "", "--validation-share", "0.3", "--seed", "4", "--tokenizer", "mine", "--workers", "2",
    )  # fmt: skip
    manifest = TokenManifest.from_json(Path("tokens/manifest.json").read_bytes())
    assert TokenManifest.from_json(out) == manifest
    plan = manifest.plan
    assert (plan.layout_name, plan.dtype, plan.seed) == ("npy", "uint32", 4)
    assert (plan.end_of_document_id, plan.tokenizer.name) == (None, "mine")
    assert [source.path for source in manifest.sources] == ["a.jsonl", "b.jsonl"]
    n_documents = {split.name: split.n_documents for split in manifest.splits}
    assert sum(n_documents.values()) == 100
    assert n_documents["validation"] > 10
    assert len(manifest.split("train").shards) > 1
    assert np.load("tokens/" + next(iter(manifest.split("train").shards[0].files))).dtype == "<u4"


def test_long_documents_are_truncated_or_dropped(cli: Cli) -> None:
    cli.run("corpus", "encode", "stories.txt", "--output", "all")
    shorter, longer = (len(TokenFiles.open("all").document(index)) for index in range(2))
    assert shorter < longer - 1
    encode = ["corpus", "encode", "stories.txt", f"--max-length={longer - 1}", "--output"]
    out, _ = cli.run(*encode, "cut")
    counted = f"  over {longer - 1} tokens: 1 documents truncated, 0 dropped, 1 tokens lost"
    assert counted in out.decode()
    files = TokenFiles.open("cut")
    assert [len(files.document(index)) for index in range(2)] == [shorter, longer - 1]
    assert files.document(1)[-1] == files.document(0)[-1] == files.manifest.plan.end_of_document_id
    out, _ = cli.run(*encode, "dropped", "--over-length", "drop")
    assert f"train: 1 documents, {shorter} tokens" in out.decode()
    assert f"0 documents truncated, 1 dropped, {longer} tokens lost" in out.decode()
    error = cli.fail(*encode[:3], "--over-length", "drop", "--output", "t", code=2)
    assert "--over-length belongs to --max-length" in error


def test_documents_are_packed_into_sequences(cli: Cli) -> None:
    cli.run("corpus", "encode", "stories.txt", "--output", "tokens")
    lengths = [len(TokenFiles.open("tokens").document(index)) for index in range(2)]
    length = sum(lengths)
    out, _ = cli.run("corpus", "pack", "tokens", "--length", str(length))
    assert out.decode().splitlines() == [
        f"train: 1 sequences of at most {length} tokens, 100.00% full; fewer than 1 are impossible",
        f"pack: tokens.packed-{length}",
    ]
    sample = TokenDataset.open("tokens").packed(length)[0]
    assert sample["cu_seqlens"].tolist() == [0, lengths[0], length]
    assert "--split-documents" in cli.fail("corpus", "pack", "tokens", "--length", "4")
    command = ["corpus", "pack", "tokens", "--length", "4", "--split-documents", "-o", "p"]
    out, _ = cli.run(*command, "--json")
    assert json.loads(out)["splits"][0]["n_tokens"] == length


def test_conversations_are_encoded_with_their_mask(cli: Cli) -> None:
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
    assert "no {% generation %} tags" in cli.fail(*encode, "--loss", "template")
    for option in ("--field", "--separator", "--allowed-special"):
        assert "leave it out" in cli.fail(*encode, option, "story", code=2)
    assert "neither a file" in cli.fail(*encode[:-1], "other.jinja")
    out, _ = cli.run(*encode, "--skip-bad")
    assert "  the loss counts at 2 tokens (" in out.decode()
    assert "  1 conversations left out: they could not be encoded (--skip-bad)" in out.decode()
    files = TokenFiles.open("t")
    ids = files.document(0)
    assert files.document_mask(0).tolist() == [0] * (len(ids) - 2) + [1, 1]
    assert b"special tokens found" not in cli.run("corpus", "inspect", "t")[0]
    error = cli.fail("corpus", "encode", "stories.txt", "--loss", "role", "--output", "u", code=2)
    assert "belong to --format chat" in error


def test_an_interrupted_encoding_resumes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("many.txt").write_text("<|endoftext|>".join(f"story {index}" for index in range(500)))
    command = ("corpus", "encode", "many.txt", "--validation-share", "0.2", "--output")
    cli.run(*command, "expected")
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", 100)
    seen: list[EncodingProgress] = []

    def interrupted(*arguments: Any, progress: Any, **options: Any) -> TokenManifest:
        def count(now: EncodingProgress) -> None:
            seen.append(now)
            if len(seen) == 5:
                raise KeyboardInterrupt
            progress(now)

        return encode_corpus(*arguments, progress=count, **options)

    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_corpus", interrupted)
        assert "interrupted" in cli.fail(*command, "tokens", code=130)
        assert not list(Path().glob(".*")), "nothing to go on from"
        seen.clear()
        patch.setattr(encoding_run, "CHECKPOINT_SECONDS", 0)
        patch.setattr(encoding_run, "_CHECKPOINT_SHARE", 1e9)
        told = cli.fail(*command, "tokens", code=130)
        assert "the same command with --resume to continue" in told
    n_before = seen[-1].n_documents
    assert n_before > 0
    seen.clear()
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_corpus", interrupted)
        cli.fail(*command, "tokens", "--resume", "--workers", "2", code=130)
    assert seen[0].n_documents >= n_before
    cli.run(*command, "tokens", "--resume", "--workers", "2")
    assert content(Path("tokens")) == content(Path("expected"))
    assert "another validation share" not in cli.fail(*command, "tokens", "--resume")


def test_a_distributed_run_makes_the_same_token_files_and_resumes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("many.txt").write_text("<|endoftext|>".join(f"story {index}" for index in range(500)))
    Path("more.txt").write_text("more<|endoftext|>still more")
    command = ("corpus", "encode", "*.txt", "--validation-share", "0.2", "--shuffle", "--output")
    cli.run(*command, "expected")
    run = ("--checkpoint-dir", "run", "--temp-dir", "scratch", "--workers", "1")

    def interrupted(*what: Any, progress: Any, **how: Any) -> TokenManifest:
        def stop(now: EncodingProgress) -> None:
            progress(now)
            raise KeyboardInterrupt

        return encode_distributed(*what, progress=stop, **how)

    with monkeypatch.context() as patch:
        patch.setattr("tokenizer_core.distributed.encode_distributed", interrupted)
        told = cli.fail(*command, "tokens", *run, code=130)
        assert "the same command to continue after the finished shards" in told
    assert len(list(Path("run").glob("*/encode/*.json"))) == 2  # one ahead
    cli.run(*command, "tokens", *run)
    assert content(Path("tokens")) == content(Path("expected"))
    assert "is there already" in cli.fail(*command, "tokens", *run)


def test_wrong_combinations_of_options_are_refused(cli: Cli) -> None:
    for options, said in (
        (["--executor=ray"], "--executor ray needs --checkpoint-dir"),
        (["--ray-address=auto"], "--ray-address needs --executor ray"),
        (["--executor=ray", "--checkpoint-dir=run", "--workers=2"], "--workers counts local"),
        (["--checkpoint-dir=run", "--workers=0"], "--workers must be at least 1"),
        (["--temp-dir=big"], "--temp-dir belongs to an output at an address"),
    ):
        told = cli.fail("corpus", "encode", "stories.txt", "--output=tokens", *options, code=2)
        assert said in told
    assert not Path("tokens").exists()


def test_without_a_separator_a_file_is_one_document(cli: Cli) -> None:
    command = ("corpus", "encode", "stories.txt", "--separator", "")
    out, _ = cli.run(*command, "--allowed-special", "none", "--output", "plain")
    assert out.decode().startswith("train: 1 documents")
    cli.run(*command, "--output", "recognised")
    special = 256
    assert special not in TokenFiles.open("plain").document(0)[:-1]
    assert special in TokenFiles.open("recognised").document(0)[:-1]
    out, _ = cli.run("corpus", "inspect", "recognised")
    assert "found in the texts: '<|endoftext|>' (1 times)" in out.decode()


def test_errors_are_one_line_with_the_remedy(cli: Cli) -> None:
    command = ("corpus", "encode", "stories.txt", "--output", "tokens")
    assert "check the path" in cli.fail("corpus", "encode", "nope.txt", "--output", "tokens")
    assert "no file matches" in cli.fail("corpus", "encode", "*.nope", "--output", "tokens")
    assert "special token" in cli.fail(*command, "--begin-of-document", "<|none|>")
    assert not Path("tokens").exists()
    _, told = cli.run(*command[:-1], "one", "--validation-share", "1e-9")
    assert "all documents are in the split train: with --validation-share 1e-09" in told
    assert "validation" in cli.fail(*command, "--validation-share", "2")
    assert "seed" in cli.fail(*command, "--validation-share", "0.5", "--seed", "-1")
    assert "--separator: it is not UTF-8" in cli.fail(*command, "--separator", "\udcff", code=2)
    assert "it has: <|endoftext|>" in cli.fail(*command, "--allowed-special", "<|x|>", code=2)
    cli.run(*command)
    assert "is there already" in cli.fail(*command)
    assert "no document 2" in cli.fail("corpus", "inspect", "tokens", "--document", "2")
    assert "--document" in cli.fail("corpus", "inspect", "tokens", "--ids", code=2)
    cli.run("train", "stories.txt", "--vocab-size", "265", "--name", "other")
    other = ("--document", "0", "--tokenizer", "other")
    assert "tokenizer" in cli.fail("corpus", "inspect", "tokens", *other)
    shard = Path("tokens/train.bin")
    shard.write_bytes(shard.read_bytes()[:-2] + b"\1\1")
    assert "train.bin" in cli.fail("corpus", "verify", "tokens", code=3)


def test_a_file_name_may_not_be_utf8(cli: Cli) -> None:
    name = os.fsdecode(b"named-\xff.txt")
    Path(name).write_bytes(Path("stories.txt").read_bytes())
    cli.run("train", name, "--vocab-size", "265", "--name", "other")
    manifest = json.loads(cli.run("inspect", "other", "--json")[0])
    assert manifest["provenance"][0]["name"] == r"named-\udcff.txt"
    assert manifest["command"].startswith(r"tokenizer train named-\udcff.txt")
    cli.run("corpus", "encode", name, "--output", "tokens", "--tokenizer", "other")
    sources = json.loads(Path("tokens/manifest.json").read_bytes())["sources"]
    assert sources[0]["path"] == r"named-\udcff.txt"


def test_an_address_is_encoded_as_the_file_and_an_error_shows_nothing_secret(cli: Cli) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/command/stories.txt", STORIES.encode())
    try:
        cli.run("corpus", "encode", "memory://command/*.txt", "--output", "remote")
    finally:
        store.rm("/command", recursive=True)
    cli.run("corpus", "encode", "stories.txt", "--output", "local")
    for name in ("manifest.json", "train.bin"):
        assert Path("remote", name).read_bytes() == Path("local", name).read_bytes()
    assert [source.path for source in TokenFiles.open("remote").manifest.sources] == ["stories.txt"]
    secret = "http://me:SECRET@127.0.0.1:1/x.txt?s=SECRET"
    _, told = cli.run("corpus", "encode", secret, "--output", "other", code=1)
    assert "'http://127.0.0.1:1/x.txt' cannot be opened" in told
    assert "SECRET" not in told
