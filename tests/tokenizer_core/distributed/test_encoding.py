"""Distributed encoding gives the bytes of one process, for any shards, workers and failures."""

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, NARROW, WIDE, content
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tokenizer_core.blobs import open_storage
from tokenizer_core.corpus import (
    CorpusFormat,
    EncodingProgress,
    TokenFilesPlan,
    can_resume,
    corpus_encoding,
    encode_corpus,
    encoding_run,
    plan_token_files,
)
from tokenizer_core.distributed import Attempt, SourceFile, encode_shards
from tokenizer_core.distributed.encoding import encode_distributed
from tokenizer_core.errors import (
    CorpusError,
    RunConflictError,
    RunError,
    ShardFailedError,
    TokenFilesError,
    TokenFilesPlanError,
)
from tokenizer_core.parallel import LocalExecutor

REPOSITORY = Path(__file__).resolve().parents[3]
HERE = LocalExecutor(1)
SEPARATED = CorpusFormat(separator=SEPARATOR)

FORMATS = ("txt", "jsonl", "txt.gz", "jsonl.zst", "parquet")
texts = st.lists(
    st.text(st.sampled_from("ab \r\n<|end|>\ufeffé🙂"), max_size=30)
    | st.sampled_from(["", "word ab " * 30, "the end<|end|>", "<|begin|>", "\ufeffab\r\n"]),
    max_size=12,
)


class Interrupted(Exception):  # noqa: N818 - not an error of the library
    pass


def small_batches(patch: pytest.MonkeyPatch, batch_bytes: int, batch_tokens: int) -> None:
    """A document counts as long after a few bytes, and every batch ends with a checkpoint."""
    patch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    patch.setattr(encode_shards, "BATCH_BYTES", batch_bytes)
    patch.setattr(encode_shards, "BATCH_TOKENS", batch_tokens)
    patch.setattr(encoding_run, "CHECKPOINT_SECONDS", 0)
    patch.setattr(encoding_run, "_CHECKPOINT_SHARE", 1e9)
    patch.setattr(os, "fsync", lambda descriptor: None)


def write_files(folder: Path, corpora: Sequence[tuple[str, list[str]]]) -> list[Path]:
    return [
        write_corpus(folder / f"{number}.{format_name}", documents, format_name)
        for number, (format_name, documents) in enumerate(corpora)
    ]


def write_corpora(folder: Path) -> list[Path]:
    """Some files of each kind, with a document longer than a batch in each."""
    draws = random.Random(3)
    corpora = []
    for format_name in FORMATS:
        documents = ["ab é " * draws.randint(0, 40) for _ in range(60)]
        corpora.append((format_name, [*documents[:30], "Ein Wort, ab. " * 400, *documents[30:]]))
    return write_files(folder, corpora)


def distribute(
    folder: Path, files: Sequence[Path], plan: TokenFilesPlan, **how: Any
) -> dict[str, bytes]:
    """The resulting files, in `folder`/tokens."""
    options = {
        "storage": folder / "run",
        "executor": HERE,
        "corpus_format": SEPARATED,
        "shard_bytes": 2000,
    } | how
    tokenizer = WIDE if plan.dtype == "uint32" else NARROW
    encode_distributed(tokenizer, files, folder / "tokens", plan, **options)  # type: ignore[arg-type]
    assert open_storage(options["storage"]).names() == []
    return content(folder / "tokens")


@examples(1 / 10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    corpora=st.lists(st.tuples(st.sampled_from(FORMATS), texts), min_size=1, max_size=3),
    shard_bytes=st.integers(1, 9) | st.integers(10, 300),
    batches=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    layout=st.sampled_from(LAYOUT_NAMES),
    tokens_per_shard=st.sampled_from([None, 7]),
    tokenizer=st.sampled_from([NARROW, WIDE]),
    around=st.tuples(
        st.sampled_from([None, "<|begin|>"]), st.sampled_from([None, "<|end|>"])
    ),
    separator=st.sampled_from(["<|endoftext|>", "\n", "ab", None]),
    share=st.sampled_from([0.0, 0.4]),
    shuffle=st.booleans(),
)  # fmt: skip
def test_any_corpus_gives_the_same_bytes(
    tmp_path_factory, corpora, shard_bytes, batches, layout, tokens_per_shard, tokenizer, around,
    separator, share, shuffle,
):  # fmt: skip
    folder = tmp_path_factory.mktemp("corpus")
    files = write_files(folder, [*corpora, ("txt", ["so there is an id"])])
    begin, end = around
    plan = plan_token_files(
        tokenizer,
        layout=layout,
        tokens_per_shard=tokens_per_shard,
        begin_of_document=begin,
        end_of_document=end,
        seed=4,
    )
    how = {
        "corpus_format": CorpusFormat(separator=separator),
        "validation_share": share,
        "shuffle": shuffle,
    }
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch, *batches)
        try:
            encode_corpus(tokenizer, files, folder / "expected", plan, **how)  # type: ignore[arg-type]
        except TokenFilesError as error:  # a split without ids
            with pytest.raises(TokenFilesError, match=str(error)[:40]):
                distribute(folder, files, plan, shard_bytes=shard_bytes, **how)
            return
        found = distribute(folder, files, plan, shard_bytes=shard_bytes, **how)
    assert found == content(folder / "expected")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Path], TokenFilesPlan]:
    """Files and a plan; `expected` has the output of one process."""
    monkeypatch.syspath_prepend(str(REPOSITORY))  # workers find `dying_work` here
    small_batches(monkeypatch, 3000, 900)
    files = write_corpora(tmp_path)
    plan = plan_token_files(NARROW, end_of_document="<|end|>", seed=3, tokens_per_shard=5000)
    encode_corpus(
        NARROW, files, tmp_path / "expected", plan,
        corpus_format=SEPARATED, validation_share=0.3,
    )  # fmt: skip
    return files, plan


@pytest.mark.parametrize("shuffle", [False, True])
def test_interrupted_again_and_again(tmp_path, corpus, shuffle):
    files, plan = corpus
    if shuffle:
        encode_corpus(
            NARROW, files, tmp_path / "shuffled", plan,
            corpus_format=SEPARATED, validation_share=0.3, shuffle=True,
        )  # fmt: skip
    n_left = 0

    def stop_soon(progress: EncodingProgress) -> None:
        nonlocal n_left
        n_left -= 1
        if not n_left:
            raise Interrupted

    how = {"validation_share": 0.3, "shuffle": shuffle, "resume": True, "progress": stop_soon}
    n_times, found = 0, None
    while found is None and n_times < 200:
        n_left = 7
        try:
            found = distribute(tmp_path, files, plan, **how)
        except Interrupted:
            n_times += 1
    assert n_times > 4
    assert found == content(tmp_path / ("shuffled" if shuffle else "expected"))


def test_a_committed_shard_is_not_encoded_again(tmp_path, corpus, monkeypatch):
    files, plan = corpus

    def stop(progress: EncodingProgress) -> None:
        if progress.n_documents > 200:
            raise Interrupted

    with pytest.raises(Interrupted):
        distribute(tmp_path, files, plan, validation_share=0.3, progress=stop)
    n_committed = len(
        [n for n in open_storage(tmp_path / "run").names() if n.endswith(".json") and "/enc" in n]
    )
    n_encoded = 0
    encode_shard = encode_shards.encode_shard

    def counted(*what: Any) -> dict[str, Any]:
        nonlocal n_encoded
        n_encoded += 1
        return encode_shard(*what)

    monkeypatch.setattr("tokenizer_core.distributed.encoding.encode_shard", counted)
    found = distribute(tmp_path, files, plan, validation_share=0.3, resume=True)
    assert found == content(tmp_path / "expected")
    sources = [SourceFile.examine(str(file)) for file in files]
    n_shards = len(list(encode_shards.cut_corpus(sources, SEPARATED, 2000)))
    assert n_committed > 10
    assert n_encoded == n_shards - n_committed


def interrupted(tmp_path: Path, corpus: tuple[list[Path], TokenFilesPlan]) -> list[str]:
    """A run that stopped after some shards; returns the names in its storage."""

    def stop(progress: EncodingProgress) -> None:
        if progress.n_documents > 40:
            raise Interrupted

    with pytest.raises(Interrupted):
        distribute(tmp_path, *corpus, validation_share=0.3, progress=stop)
    return open_storage(tmp_path / "run").names()


@pytest.mark.parametrize("what", ["damaged", "gone"])
def test_a_damaged_shard_is_refused(tmp_path, corpus, what):
    names = interrupted(tmp_path, corpus)
    name = [name for name in names if "/attempts/encode/" in name and name.endswith("ids")][-1]
    path = tmp_path / "run" / name
    if what == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    match = "is gone; remove the run's" if what == "gone" else "is not what was written; remove"
    with pytest.raises(RunError, match=match):
        distribute(tmp_path, *corpus, validation_share=0.3, resume=True)
    assert not (tmp_path / "tokens").exists()


def test_a_late_worker_changes_nothing(tmp_path, corpus):
    """An attempt at the first shard that was suspended, and ends after another attempt was
    committed."""
    files, plan = corpus
    names = interrupted(tmp_path, corpus)
    storage = open_storage(tmp_path / "run")
    run_id = names[0].partition("/")[0]
    (tmp_path / "late").mkdir()
    late = Attempt(storage, run_id, "encode", 0, tmp_path / "late")
    late.put("ids", b"\1\0")
    late.put("documents", bytes(16))
    late.commit({"n_documents": 1, "n_tokens": 1, "n_bytes": 1, "sha256": None})
    found = distribute(tmp_path, files, plan, validation_share=0.3, resume=True)
    assert found == content(tmp_path / "expected")


def test_other_corpora_and_settings_are_refused(tmp_path, corpus):
    files, plan = corpus
    interrupted(tmp_path, corpus)
    with pytest.raises(RunConflictError, match=r"another run \(inputs differ\)"):
        distribute(tmp_path, files[:2], plan, resume=True)
    with pytest.raises(RunConflictError, match=r"another run \(shard_bytes differ\)"):
        distribute(tmp_path, files, plan, resume=True, shard_bytes=999)
    os.utime(files[0], ns=(1, 1))
    with pytest.raises(RunConflictError, match=r"another run \(inputs differ\)"):
        distribute(tmp_path, files, plan, resume=True)


def test_the_token_files_that_were_begun_belong_to_one_run(tmp_path, corpus):
    files, plan = corpus
    interrupted(tmp_path, corpus)
    how = {"resume": True, "corpus_format": SEPARATED}
    with pytest.raises(TokenFilesPlanError, match="another validation share"):
        distribute(tmp_path, files, plan, validation_share=0.2, resume=True)
    with pytest.raises(TokenFilesPlanError, match="begun with another run"):
        distribute(tmp_path, files, plan, validation_share=0.3, resume=True, shard_bytes=999,
                   storage=tmp_path / "other")  # fmt: skip
    with pytest.raises(TokenFilesPlanError, match="begun with another run"):
        encode_corpus(NARROW, files, tmp_path / "tokens", plan, validation_share=0.3, **how)  # type: ignore[arg-type]
    assert can_resume(tmp_path / "tokens")


def test_a_fault_of_a_file_ends_the_run_at_once(tmp_path, corpus):
    files, plan = corpus
    n_lines = files[1].read_bytes().count(b"\n") + 1
    with files[1].open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(CorpusError, match=rf"1.jsonl', line {n_lines}: it holds no JSON"):
        distribute(tmp_path, files, plan)


def test_a_name_that_hides_a_format_claims_no_storage(tmp_path):
    (tmp_path / "readme.md").write_text('{"text": "some text"}')
    plan, run = plan_token_files(NARROW), {"storage": tmp_path / "run", "executor": HERE}
    with pytest.raises(CorpusError, match="is JSON lines, and its name does not say so"):
        encode_distributed(NARROW, [tmp_path / "readme.md"], tmp_path / "tokens", plan, **run)
    form = CorpusFormat(format="txt")
    encode_distributed(
        NARROW, [tmp_path / "readme.md"], tmp_path / "tokens", plan, corpus_format=form, **run
    )


def test_a_shard_that_keeps_failing_is_named(tmp_path, corpus, monkeypatch):
    files, plan = corpus

    def full(*_: object) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tokenizer_core.distributed.encoding.encode_shard", full)
    with pytest.raises(ShardFailedError, match=r"shard 0 of the stage 'encode' failed 3 times"):
        distribute(tmp_path, files, plan)


def test_settings_that_cannot_work_are_refused_before_anything_is_done(tmp_path):
    plan = plan_token_files(NARROW)
    with pytest.raises(TokenFilesPlanError, match="shard_bytes must be at least 1"):
        distribute(tmp_path, [], plan, shard_bytes=0)
    with pytest.raises(TokenFilesPlanError, match="validation_share must be"):
        distribute(tmp_path, [], plan, validation_share=1.0)
    assert list(tmp_path.iterdir()) == []
