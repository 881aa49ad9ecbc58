"""Counting in shards gives the same file as one machine, for any cuts, workers and failures."""

import random
import re
from functools import partial

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core.distributed import (
    count_distributed,
    count_shards,
    encode_shards,
    merge_shards,
)
from tokenizer_core.documents import FORMATS, CorpusFormat
from tokenizer_core.errors import (
    CorpusError,
    RunConflictError,
    RunError,
    ShardFailedError,
    TooManyBadDocumentsError,
)
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.training import count_pretokens

GPT2 = PATTERNS["gpt2"]
HERE = LocalExecutor(1)


@pytest.fixture
def corpus(tmp_path):
    """Three files, one of them empty; special tokens, and enough words for many shards."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdé漢", k=rng.randint(1, 6))) for _ in range(400)]
    texts = [
        "<|e|>".join(" ".join(rng.choices(words, k=30)) for _ in range(300)),
        "",
        " ".join(rng.choices(words, k=9_000)) + "\n",
    ]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8", newline="")
    return [tmp_path / f"{number}.txt" for number in range(3)]


def local(files, specials, path, pattern=GPT2, **options):
    count_pretokens(files, pattern=pattern, special_tokens=specials, **options).save(path)
    return path.read_bytes()


def distributed(files, specials, folder, **options):
    asked = {"pattern": GPT2, "executor": HERE, "storage": folder / "run"} | options
    count_distributed(files, special_tokens=specials, output=folder / "out", **asked)
    return (folder / "out").read_bytes()


def committed(folder):
    """The manifests of the counted shards."""
    found = next((folder / "run").glob("*/count"))
    return {path.name: path.read_bytes() for path in found.iterdir()}


PIECES = ["<|e|>", "a", "ab", "b", "漢", "  ", " c\n", "é😀's", "<"]
RULES = [
    *PATTERNS.values(),
    resolve_pattern(r"\w+|\s"),
    SplitPattern("custom", "[a-z]+", unmatched="drop"),
    SplitPattern("custom", "[a-z]+", behavior="removed"),
]


@examples(1 / 5, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from(["txt", *(name for name in FORMATS if name != "parquet")]),
            st.lists(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), max_size=8),
        ),
        min_size=1,
        max_size=4,
    ),
    specials=st.sampled_from([[], ["<|e|>"], ["a", "ab"], ["<|e|>", "<|e|><|e|>"], ["漢"], ["  "]]),
    pattern=st.sampled_from(RULES),
    separator=st.sampled_from([None, "<|endoftext|>", "b"]),
    how=st.fixed_dictionaries(
        {
            "shard_bytes": st.integers(1, 200),
            "n_partitions": st.integers(1, 5),
            "engine": st.sampled_from(["auto", "python"]),
        }
    ),
)
def test_counts_do_not_depend_on_cuts(files, specials, pattern, separator, how, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut")
    paths = [
        write_corpus(folder / f"{number}.{name}", documents, name)
        for number, (name, documents) in enumerate(files)
    ]
    how = {"pattern": pattern, "corpus_format": CorpusFormat(separator=separator), **how}
    try:
        expected = local(
            paths, specials, folder / "local", pattern, corpus_format=how["corpus_format"]
        )
    except CorpusError as error:
        with pytest.raises(CorpusError, match=re.escape(str(error))):
            distributed(paths, specials, folder, **how)
        return
    assert distributed(paths, specials, folder, **how) == expected


def test_parquet_is_counted_and_progress_is_reported(tmp_path):
    seen = []
    how = {"shard_bytes": 300, "progress": lambda *now: seen.append(now)}
    files = [
        write_corpus(tmp_path / "some.parquet", ["low lower", "", "lowest" * 40], "parquet"),
        write_corpus(tmp_path / "one shard.txt", ["a" * 5_000], "txt"),
    ]
    assert distributed(files, [], tmp_path, **how) == local(files, [], tmp_path / "local")
    total = sum(file.stat().st_size for file in files)
    assert [now for now in seen if now[0] == "count"][-1][1:] == (total, total)


def test_bad_documents_are_left_out_as_by_one_machine(tmp_path):
    texts = [b"low lower", b"wrong \xff", b"two\nlines", b"newest"] * 20
    for name, end in (("a.txt", b"<|e|>"), ("b.txt", b"%"), ("c.txt", b"\n%")):
        (tmp_path / name).write_bytes(end.join(texts))
    lines = [b'{"text": "low"}', b"[]", b'{"text": "lower"}'] * 20
    (tmp_path / "d.jsonl").write_bytes(b"\n".join(lines))
    files, specials = sorted(tmp_path.glob("*.*")), ["<|e|>"]
    how = {"corpus_format": CorpusFormat(separator="%"), "max_bad": 0.3}
    expected = count_pretokens(files, pattern=GPT2, special_tokens=specials, **how)
    asked = {"pattern": GPT2, "executor": HERE, "shard_bytes": 100, "special_tokens": specials}
    asked |= {"storage": tmp_path / "run", "output": tmp_path / "out"}
    found = count_distributed(files, **asked, **how)
    assert found == expected.bad_documents
    assert found.reasons == {"invalid_utf8": 60, "no_object": 20}
    assert (tmp_path / "out").read_bytes() == local(files, specials, tmp_path / "local", **how)
    assert count_distributed(files, **asked, **how) == found  # of the finished run
    asked["storage"] = tmp_path / "another run"
    with pytest.raises(TooManyBadDocumentsError, match=r"80 bad .* of 300 documents, more than 26"):
        count_distributed(files, **asked, **how | {"max_bad": 0.26})


def test_a_wrong_line_names_the_file_as_the_caller_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "one"}\n{"other": "two"}\n')
    with pytest.raises(CorpusError, match=lines.name) as raised:
        distributed([lines.name], [], tmp_path)
    assert str(lines) not in str(raised.value)


def test_tables_over_the_ceiling_and_many_runs_are_merged(corpus, tmp_path, monkeypatch):
    expected = local(corpus, ["<|e|>"], tmp_path / "local")
    for name, options in (
        ("ceiling", {"engine": "python", "max_memory_bytes": 20_000}),
        ("runs", {"shard_bytes": 9_000, "n_partitions": 1}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        assert distributed(corpus, ["<|e|>"], folder, **options) == expected
        monkeypatch.setattr(merge_shards, "MAX_RUNS", 3)
    assert len(committed(folder)) > 9


def test_a_committed_run_is_read_or_refused(corpus, tmp_path):
    found = distributed(corpus, ["<|e|>"], tmp_path)
    left = sorted(p.name for p in (tmp_path / "run").glob("*/attempts/*/*/*"))
    assert left == ["pretokens.counts"]
    (tmp_path / "out").unlink()
    assert distributed(corpus, ["<|e|>"], tmp_path) == found
    with pytest.raises(RunConflictError, match=r"\(special_tokens differ\)"):
        distributed(corpus, [], tmp_path)
    corpus[0].write_text("other words")
    with pytest.raises(RunConflictError, match=rf"\(its file '.*{corpus[0].name}' has changed\)"):
        distributed(corpus, ["<|e|>"], tmp_path)


@pytest.mark.parametrize("engine_name", ["auto", "python"])
def test_invalid_utf8_is_named_with_its_byte(corpus, tmp_path, engine_name):
    data = bytearray(corpus[2].read_bytes())
    data[20_000:20_000] = b"\xff"
    corpus[2].write_bytes(data)
    with pytest.raises(CorpusError, match=r"2\.txt is not UTF-8 at byte 20000 \(0xff"):
        distributed(corpus, ["<|e|>"], tmp_path, shard_bytes=9_000, engine=engine_name)


@pytest.mark.parametrize("n_bytes", [11, None], ids=["shorter", "as long"])
def test_a_file_that_changes_ends_the_run(corpus, tmp_path, n_bytes):
    n_bytes = n_bytes or corpus[2].stat().st_size

    def change(phase, done, total):
        corpus[2].write_bytes(b"x" * n_bytes)

    with pytest.raises(CorpusError, match=r"2\.txt' changed while it was read"):
        distributed(corpus, ["<|e|>"], tmp_path, shard_bytes=9_000, progress=change)


def test_an_empty_corpus_is_refused(tmp_path):
    for name in ("empty.txt", "empty.jsonl.gz", "empty.parquet"):
        (tmp_path / name).touch()
        with pytest.raises(CorpusError) as of_one_machine:
            local([tmp_path / name], [], tmp_path / "local")
        with pytest.raises(CorpusError, match=re.escape(str(of_one_machine.value))):
            distributed([tmp_path / name], [], tmp_path)
    with pytest.raises(CorpusError, match="no corpus file"):
        distributed([], [], tmp_path)


def test_a_defect_in_a_shard_is_found(corpus, tmp_path, monkeypatch):
    write = count_shards.write_entry
    with monkeypatch.context() as patch:
        patch.setattr(count_shards, "write_entry", lambda run, entry: write(run, (entry[0], 1)))
        with pytest.raises(ShardFailedError, match=r"shard 0 of the stage 'merge' .* defect"):
            distributed(corpus, ["<|e|>"], tmp_path)
    monkeypatch.setattr(count_shards, "_special_bytes", lambda *_: 0)
    with pytest.raises(ShardFailedError, match=r"stage 'count' .* defect"):
        distributed(corpus, ["<|e|>"], tmp_path, storage=tmp_path / "other")


def test_a_worker_with_other_unicode_tables_is_refused():
    nothing = None
    rules = count_shards.ShardRules(nothing, "auto", 1, 1, "regex 1999.1.1")
    encoding = encode_shards.ShardEncoding(nothing, nothing, nothing, "regex 1999.1.1")
    for work in (
        partial(count_shards.find_cuts, rules),
        partial(count_shards.count_shard, rules),
        partial(encode_shards.encode_shard, encoding),
    ):
        with pytest.raises(RunError, match="install the same version everywhere"):
            work(nothing, nothing)
