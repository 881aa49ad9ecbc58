"""A distributed encoding gives the bytes of one process, shard by shard."""

import hashlib
import os
import pickle
import random
from functools import partial

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import (
    LAYOUT_NAMES,
    NARROW,
    WIDE,
    content,
    small_batches,
)
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.corpus import CorpusFormat, can_resume, encode_corpus, plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.distributed import Attempt
from tokenizer_core.distributed.corpus_sources import Part, SourceFile, hash_sources
from tokenizer_core.distributed.encode_shards import (
    ShardEncoding,
    ShardPosition,
    encode_shard,
    read_encoded_shard,
)
from tokenizer_core.distributed.encoding import encode_distributed
from tokenizer_core.errors import (
    CorpusError,
    RunConflictError,
    RunError,
    SpecialTokenForbiddenError,
    TokenFilesError,
    TokenFilesPlanError,
)
from tokenizer_core.parallel import LocalExecutor

HERE = LocalExecutor(1)
SEPARATED = CorpusFormat(separator=SEPARATOR)

FORMATS = ("txt", "jsonl", "txt.gz", "jsonl.zst", "parquet")
texts = st.lists(
    st.text(st.sampled_from("ab \r\n<|end|>\ufeffé🙂"), max_size=30)
    | st.sampled_from(["", "word ab " * 30, "the end<|end|>", "<|begin|>", "\ufeffab\r\n"]),
    max_size=12,
)


def write_files(folder, corpora):
    return [
        write_corpus(folder / f"{number}.{format_name}", documents, format_name)
        for number, (format_name, documents) in enumerate(corpora)
    ]


def write_corpora(folder):
    """Some files of each kind, with a document longer than a batch in each."""
    draws = random.Random(3)
    corpora = []
    for format_name in FORMATS:
        documents = ["ab é " * draws.randint(0, 40) for _ in range(60)]
        corpora.append((format_name, [*documents[:30], "Ein Wort, ab. " * 400, *documents[30:]]))
    return write_files(folder, corpora)


def distribute(folder, files, plan, **how):
    """The resulting files, in `folder`/tokens."""
    options = {
        "storage": folder / "run",
        "executor": HERE,
        "corpus_format": SEPARATED,
        "shard_bytes": 2000,
    } | how
    tokenizer = WIDE if plan.dtype == "uint32" else NARROW
    encode_distributed(tokenizer, files, folder / "tokens", plan, **options)
    assert open_storage(options["storage"]).names() == []
    return content(folder / "tokens")


@examples(1 / 10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    corpora=st.lists(st.tuples(st.sampled_from(FORMATS), texts), min_size=1, max_size=3),
    tokenizer=st.sampled_from([NARROW, WIDE]),
    planned=st.fixed_dictionaries(
        {
            "layout": st.sampled_from(LAYOUT_NAMES),
            "tokens_per_shard": st.sampled_from([None, 7]),
            "begin_of_document": st.sampled_from(["", "<|begin|>"]),
            "end_of_document": st.sampled_from(["", "<|end|>"]),
            "allowed_special": st.sampled_from([None, "all"]),
        }
    ),
    how=st.fixed_dictionaries(
        {
            "corpus_format": st.sampled_from(["<|endoftext|>", "\n", "ab", None]).map(
                lambda separator: CorpusFormat(separator=separator)
            ),
            "validation_share": st.sampled_from([0.0, 0.4]),
            "shuffle": st.booleans(),
        }
    ),
    shard_bytes=st.integers(1, 9) | st.integers(10, 300),
    batches=st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_any_corpus_gives_the_same_bytes(
    tmp_path_factory, corpora, tokenizer, planned, how, shard_bytes, batches
):
    folder = tmp_path_factory.mktemp("corpus")
    files = write_files(folder, [*corpora, ("txt", ["so there is an id"])])
    plan = plan_token_files(tokenizer, seed=4, **planned)
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch, *batches)
        try:
            encode_corpus(tokenizer, files, folder / "expected", plan, **how)
        except TokenFilesError as error:  # a split without ids
            with pytest.raises(TokenFilesError, match=str(error)[:40]):
                distribute(folder, files, plan, shard_bytes=shard_bytes, **how)
            return
        except SpecialTokenForbiddenError:  # in JSON lines or Parquet, by default
            with pytest.raises(CorpusError, match="nothing allows it"):
                distribute(folder, files, plan, shard_bytes=shard_bytes, **how)
            return
        found = distribute(folder, files, plan, shard_bytes=shard_bytes, **how)
    assert found == content(folder / "expected")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Files and a plan; `expected` has the output of one process."""
    small_batches(monkeypatch, 3000, 900)
    files = write_corpora(tmp_path)
    plan = plan_token_files(NARROW, end_of_document="<|end|>", seed=3, tokens_per_shard=5000)
    options = {"corpus_format": SEPARATED, "validation_share": 0.3}
    encode_corpus(NARROW, files, tmp_path / "expected", plan, **options)
    return files, plan


def test_an_interrupted_run_resumes(tmp_path, corpus):
    files, plan = corpus
    options = {"validation_share": 0.3, "shuffle": True}
    encode_corpus(NARROW, files, tmp_path / "shuffled", plan, corpus_format=SEPARATED, **options)
    n_times, found = 0, None
    while found is None and n_times < 200:
        options["progress"] = lambda _, left=[None] * 10: left.pop()
        try:
            found = distribute(tmp_path, files, plan, resume=True, **options)
        except IndexError:
            n_times += 1
    assert n_times > 2
    assert found == content(tmp_path / "shuffled")


def interrupted(tmp_path, corpus):
    """A run that stopped after some shards; returns the names in its storage."""

    def stop(progress):
        if progress.n_documents > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distribute(tmp_path, *corpus, validation_share=0.3, progress=stop)
    return open_storage(tmp_path / "run").names()


def test_a_damaged_or_missing_shard_is_refused(tmp_path, corpus):
    names = interrupted(tmp_path, corpus)
    name = [name for name in names if "/attempts/encode/" in name and name.endswith("ids")][-1]
    path = tmp_path / "run" / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(RunError, match="is not what was written"):
        distribute(tmp_path, *corpus, validation_share=0.3, resume=True)
    path.unlink()
    with pytest.raises(RunError, match="is gone"):
        distribute(tmp_path, *corpus, validation_share=0.3, resume=True)
    assert not (tmp_path / "tokens").exists()


def test_a_run_is_resumed_only_with_its_own_inputs_and_settings(tmp_path, corpus):
    files, plan = corpus
    interrupted(tmp_path, corpus)

    def refused(error, match, files=files, **how):
        with pytest.raises(error, match=match):
            distribute(tmp_path, files, plan, resume=True, **{"validation_share": 0.3} | how)

    refused(TokenFilesPlanError, "other settings: validation share", validation_share=0.2)
    other = {"shard_bytes": 999, "storage": tmp_path / "other"}
    refused(TokenFilesPlanError, "begun with other settings: run", **other)
    how = {"corpus_format": SEPARATED, "validation_share": 0.3, "resume": True}
    with pytest.raises(TokenFilesPlanError, match="begun with other settings: run"):
        encode_corpus(NARROW, files, tmp_path / "tokens", plan, **how)
    assert can_resume(tmp_path / "tokens")
    refused(RunConflictError, r"another run \(inputs differ \(missing: '", files[:2])
    refused(RunConflictError, r"another run \(shard_bytes differ\)", shard_bytes=999)
    os.utime(files[0], ns=(1, 1))
    changed = rf"another run \(its file '.*{files[0].name}' has changed\); name another place"
    refused(RunConflictError, changed)


def test_invalid_input_ends_the_run_at_once(tmp_path, corpus):
    files, plan = corpus
    n_lines = files[1].read_bytes().count(b"\n") + 1
    with files[1].open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(CorpusError, match=rf"1.jsonl', line {n_lines}: it holds no JSON"):
        distribute(tmp_path, files, plan)
    hidden = tmp_path / "readme.md"
    hidden.write_text('{"text": "some text"}')
    with pytest.raises(CorpusError, match="is JSON lines, and its name does not say so"):
        distribute(tmp_path, [hidden], plan, storage=tmp_path / "other")
    for name, value in (("shard_bytes", 0), ("validation_share", 1.0)):
        with pytest.raises(TokenFilesPlanError, match=f"{name} must be"):
            distribute(tmp_path, files, plan, storage=tmp_path / "other", **{name: value})
    assert not (tmp_path / "other").exists()


LINES = CorpusFormat(separator="\n")


def encoding(plan=None):
    plan = plan or plan_token_files(NARROW, end_of_document="")
    return ShardEncoding(BatchEncoder(NARROW, plan), plan, LINES)


@pytest.fixture
def attempt(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Attempt(open_storage(tmp_path / "run"), "some-run", "encode", 0, scratch)


def shard_of(path, start=0, stop=None):
    source = SourceFile.examine(str(path))
    return Part(source, start, source.size_bytes if stop is None else stop)


def test_an_encoder_is_made_once_in_a_process():
    data = pickle.dumps(encoding())
    assert pickle.loads(data) is pickle.loads(data)


FORBIDDEN = r"the document holds .*<\|end\|>"


@pytest.mark.parametrize(
    ("data", "start", "message"),
    [
        (b"one\ntw\xff\n", 0, r"a.txt' is .* byte 6, line 2;"),
        (b"one\ntw\xff\n", 1, r"a.txt from byte 4' is not UTF-8: .* byte 2, line 1;"),
        (b"one\ntwo\nthree <|end|>", 0, rf"a.txt', document 3 .from 1.: {FORBIDDEN}"),
        (b"one\ntwo\nthree <|end|>", 2, rf"a.txt', document 2 .* from byte 4 on: {FORBIDDEN}"),
    ],
)
def test_a_bad_document_is_reported_with_its_place(tmp_path, attempt, data, start, message):
    (tmp_path / "a.txt").write_bytes(data)
    plan = plan_token_files(
        NARROW, end_of_document="", allowed_special="none", disallowed_special="all"
    )
    with pytest.raises(CorpusError, match=message):
        encode_shard(encoding(plan), shard_of(tmp_path / "a.txt", start), attempt)


def test_a_file_that_has_changed_or_is_away_is_refused(tmp_path, attempt):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    shard = shard_of(path)
    os.utime(path, ns=(1, 1))
    for work, task in ((encode_shard, shard), (hash_sources, [shard.source])):
        with pytest.raises(CorpusError, match=r"a.txt' changed while it was read"):
            work(encoding(), task, attempt)
    store = fsspec.filesystem("memory")
    store.pipe("/some/a.txt", b"one")
    shard = Part(SourceFile.examine("memory://some/a.txt"), 0, 3)
    store.rm("/some", recursive=True)
    with pytest.raises(RunError, match="cannot be opened"):
        encode_shard(encoding(), shard, attempt)


def test_files_of_a_shard_that_do_not_match_are_refused(tmp_path, attempt):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    shard = shard_of(tmp_path / "a.txt")
    # The file is hashed in its only shard, or separately.
    expected = hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert encode_shard(encoding(), shard, attempt)["sha256"] == expected
    assert hash_sources(None, [shard.source], attempt) == {"sha256": [expected]}
    read = partial(read_encoded_shard, attempt.scratch, np.dtype("<u2"), ShardPosition())
    (batch,) = read()
    assert batch.documents.ids.tolist() == list(b"onetwo")
    for name, change in (("ids", b"\0\0"), ("documents", b"\1" + bytes(15))):
        path = attempt.scratch / name
        whole = path.read_bytes()
        for data in (whole + change, whole[: -len(change)]):
            path.write_bytes(data)
            with pytest.raises(RunError, match="do not belong together; remove the run's storage"):
                list(read())
        path.write_bytes(whole)
