"""What the library, the client and the command line promise on Windows, in a process that looks
like one there. `test_windows.py` runs it: URL of a service, an empty folder."""

import gzip
import json
import sys
import warnings
from pathlib import Path

from tests.integration.end_to_end.windows_machine import become_windows

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
TEXT = "low lower lowest, 東京 naïve café\nnewer newest\r\n" * 40
END = "<|endoftext|>"


def main():
    become_windows()
    warnings.filterwarnings("error", category=EncodingWarning, module="tokenizer_.*")
    tokenizer = train()
    save_and_load(tokenizer)
    publish(tokenizer)
    write_token_files(tokenizer)
    ask_service()
    run_commands()
    print("done")


def train():
    import tokenizer_core.training.count_pretokens as counting
    from tokenizer_core import Tokenizer, train_bpe
    from tokenizer_core.splitting.patterns import PATTERNS
    from tokenizer_core.training import PretokenCounts, TrainingOptions, count_pretokens, train

    corpus = FOLDER / "corpus.txt"
    corpus.write_bytes((TEXT + END).encode() * 100)
    with gzip.open(FOLDER / "corpus.jsonl.gz", "wb") as file:
        file.write(b"".join(json.dumps({"text": TEXT}).encode() + b"\n" for _ in range(100)))
    vocabulary, merges = train_bpe(str(corpus), 300, [END])
    options = TrainingOptions(300, [END], num_workers=1)
    result = train([corpus], options)
    assert (result.spec.vocab, result.merges) == (vocabulary, merges)
    assert result.report.peak_own_memory_bytes > 0
    assert train([FOLDER / "corpus.jsonl.gz"], options).merges == merges

    # In small chunks, with tables on the disk, and the usual number of workers.
    counting.SMALL_CORPUS_BYTES = 0
    counts = count_pretokens(
        [corpus], pattern=PATTERNS["gpt2"], special_tokens=[END], chunk_bytes=4096,
        max_memory_bytes=16 << 20, scratch_folder=FOLDER,
    )  # fmt: skip
    counts.save(FOLDER / "counts")
    loaded = PretokenCounts.load(FOLDER / "counts", on_disk=True)
    assert dict(loaded.counts) == dict(counts.counts)
    return Tokenizer(vocabulary, merges, [END])


def save_and_load(tokenizer):
    from tokenizer_core import Tokenizer

    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    tokenizer.save_gpt2_files(FOLDER / "vocab.json", FOLDER / "merges.txt")
    tokenizer.save(FOLDER / "tokenizer.json")
    tokenizer.save_files(FOLDER / "vocab.pkl", FOLDER / "merges.pkl")
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        assert b"\r" not in (FOLDER / name).read_bytes(), name
    assert Tokenizer.load(FOLDER / "tokenizer.json") == tokenizer
    loaded = Tokenizer.from_files(FOLDER / "vocab.pkl", FOLDER / "merges.pkl", [END])
    assert loaded == tokenizer
    template = "{% for m in messages %}{{ m.content + '<|endoftext|>' }}{% endfor %}"
    chats = tokenizer.with_chat_templates({"default": template})
    chat = chats.encode_chat([{"role": "user", "content": "low"}]).ids.tolist()
    assert chat == tokenizer.encode("low" + END)
    assert Tokenizer.from_preset("gpt2").decode([15496, 11]) == "Hello,"


def publish(tokenizer):
    from tokenizer_core.blobs.addresses import open_storage
    from tokenizer_core.registry import ArtifactStore

    store = ArtifactStore(FOLDER / "artifacts")
    first = store.publish(tokenizer.spec, name="own")
    store.promote(first)
    assert store.active() == first
    assert store.open(store.resolve("own")).fingerprint == tokenizer.spec.fingerprint
    store.remove("other", store.publish(tokenizer.spec, name="other").version)
    assert store.names() == ["own"]
    storage = open_storage(FOLDER / "storage")
    storage.put("a/b", b"1\n2")
    assert storage.swap("a/c", b"4", expected=None)
    assert storage.read("a/b", max_bytes=9) == b"1\n2"


def write_token_files(tokenizer):
    import pytest

    from tokenizer_core.corpus import (
        TokenDataset,
        TokenFiles,
        TokenFilesWriter,
        encode_corpus,
        plan_token_files,
        verify_token_files,
    )
    from tokenizer_core.errors import TokenFilesError

    corpora = [FOLDER / "corpus.jsonl.gz"]
    for name, options in {
        "raw": {}, "shuffled": {"seed": 7}, "cut": {"tokens_per_shard": 5_000},
        "megatron": {"layout": "megatron"},
    }.items():  # fmt: skip
        plan = plan_token_files(tokenizer, **options)
        encode_corpus(
            tokenizer, corpora, FOLDER / name, plan, validation_share=0.2, shuffle="seed" in options
        )
        assert [path.name for path in FOLDER.iterdir() if ".partial" in path.name] == []
        verify_token_files(FOLDER / name, tokenizer=tokenizer)
        dataset = TokenDataset.open(FOLDER / name, tokenizer)
        assert len(dataset.samples(32)) > 10
    ids = tokenizer.encode(TEXT)
    files = TokenFiles.open(FOLDER / "raw", tokenizer)
    assert files.document(3)[: len(ids)].tolist() == ids
    plan = plan_token_files(tokenizer, end_of_document="")
    writer = TokenFilesWriter(FOLDER / "resumed", plan)
    writer.append(ids)
    with pytest.raises(TokenFilesError, match="another process is writing"):
        TokenFilesWriter(FOLDER / "resumed", plan)
    writer.checkpoint({})
    writer.append(ids[:5])
    writer._leave()
    writer = TokenFilesWriter(FOLDER / "resumed", plan, resume=True)
    writer.append(ids[5:])
    writer.finish()
    assert verify_token_files(FOLDER / "resumed").n_tokens == 2 * len(ids) - 5


def ask_service():
    from tokenizer_client import Client

    with Client(URL) as client:
        assert client.decode(client.encode("low lower")) == "low lower"
        source = FOLDER / "source.txt"
        source.write_bytes(TEXT.encode())
        assert sum(map(len, client.encode_stream(source)))


def run_commands():
    import pytest

    from tests.tokenizer_service.run_cli import Cli

    with pytest.MonkeyPatch.context() as patch:
        cli = Cli(FOLDER, patch)
        options = ("--artifacts-dir=store", "--vocab-size=300", "--name=trained")
        cli.run("train", "corpus.txt", *options, "--promote")
        options = ("--artifacts-dir=store", "--tokenizer=trained", "--workers=1")
        cli.run("corpus", "encode", "corpus.jsonl.gz", "--output=by-command", *options)
        assert cli.run("encode", "--tokenizer", "gpt2", "Hello,")[0] == b"15496 11\n"
        assert "Windows" in cli.fail("serve")


main()
