"""Counting in shards gives the same file as one machine, for any cuts, workers and failures."""

import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import write_corpus
from tokenizer_core.distributed import (
    SourceFile,
    count_distributed,
    count_shards,
    encode_shards,
    merge_shards,
)
from tokenizer_core.documents import FORMATS, CorpusFormat
from tokenizer_core.errors import CorpusError, RunConflictError, RunError, ShardFailedError
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.training import count_pretokens
from tokenizer_core.training.corpus_chunks import ChunkPlanner, ReadBytes
from tokenizer_core.training.count_pretokens import CountingRules

REPOSITORY = Path(__file__).resolve().parents[3]
GPT2 = PATTERNS["gpt2"]
HERE = LocalExecutor(1)
ALPHABET = "aab c\n  é漢😀<|e>'s"


@pytest.fixture(autouse=True)
def _work_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
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


def local(
    files: list[Path], specials: list[str], path: Path, pattern: SplitPattern = GPT2, **options: Any
) -> bytes:
    count_pretokens(files, pattern=pattern, special_tokens=specials, **options).save(path)
    return path.read_bytes()


def distributed(files: list[Path], specials: list[str], folder: Path, **options: object) -> bytes:
    asked = {"pattern": GPT2, "executor": HERE, "storage": folder / "run"} | options
    count_distributed(files, special_tokens=specials, output=folder / "out", **asked)  # type: ignore[arg-type]
    return (folder / "out").read_bytes()


def committed(folder: Path) -> dict[str, bytes]:
    """The manifests of the counted shards."""
    found = next((folder / "run").glob("*/count"))
    return {path.name: path.read_bytes() for path in found.iterdir()}


@examples(1 / 10, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(st.text(ALPHABET, max_size=300), min_size=1, max_size=4).filter("".join),
    specials=st.sampled_from([[], ["<|e|>"], ["a", "ab"], ["<|e|>", "<|e|><|e|>"], ["漢"], ["  "]]),
    joined=st.booleans(),
    shard_bytes=st.integers(1, 200),
    n_partitions=st.integers(1, 5),
    pattern=st.sampled_from([*PATTERNS.values(), resolve_pattern(r"\w+|\s")]),
    engine=st.sampled_from(["auto", "python"]),
)
def test_however_it_is_cut(
    texts, specials, joined, shard_bytes, n_partitions, pattern, engine, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("cut")
    files = []
    for number, text in enumerate(texts):
        files.append(folder / str(number))
        if joined and specials:
            text = specials[-1].join(text.split("b"))
        files[-1].write_text(text, encoding="utf-8", newline="")
    if not any(file.stat().st_size for file in files):
        return
    assert distributed(
        files,
        specials,
        folder,
        pattern=pattern,
        shard_bytes=shard_bytes,
        n_partitions=n_partitions,
        engine=engine,
    ) == local(files, specials, folder / "local", pattern)


@examples(1 / 20, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from([name for name in FORMATS if name != "parquet"]),
            st.lists(st.text(ALPHABET, max_size=60), max_size=8),
        ),
        min_size=1,
        max_size=4,
    ),
    specials=st.sampled_from([[], ["<|e|>"], ["a", "ab"], ["漢"]]),
    separator=st.sampled_from([None, "<|endoftext|>", "b"]),
    shard_bytes=st.integers(1, 200),
    engine=st.sampled_from(["auto", "python"]),
)
def test_documents_of_every_format_however_they_are_cut(
    files, specials, separator, shard_bytes, engine, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("formats")
    paths = [
        write_corpus(folder / f"{number}.{name}", documents, name)
        for number, (name, documents) in enumerate(files)
    ]
    how = CorpusFormat(separator=separator)
    try:
        expected = local(paths, specials, folder / "local", corpus_format=how)
    except CorpusError as error:
        with pytest.raises(CorpusError, match=re.escape(str(error))):
            distributed(paths, specials, folder, shard_bytes=shard_bytes, corpus_format=how)
        return
    found = distributed(
        paths, specials, folder, shard_bytes=shard_bytes, engine=engine, corpus_format=how
    )
    assert found == expected


@pytest.mark.parametrize("engine_name", ["auto", "python"])
def test_special_tokens_that_the_random_separator_may_hold(tmp_path, engine_name):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "one 07 two"}\n{"text": "three"}\n' * 9)
    specials = ["<", *(f"{number:x}" for number in range(16))]
    found = distributed([lines], specials, tmp_path, engine=engine_name)
    assert found == local([lines], specials, tmp_path / "local")


def test_parquet_and_a_field_and_progress(tmp_path):
    parquet = write_corpus(tmp_path / "some.parquet", ["low lower", "", "lowest" * 40], "parquet")
    lines = tmp_path / "some"
    lines.write_text('{"text": "newer"}\n{"text": "widest"}\n' * 50)
    for files, how in (
        ([parquet], CorpusFormat()),
        ([lines], CorpusFormat("jsonl")),
    ):
        folder = tmp_path / f"of-{how.format}"
        folder.mkdir()
        seen: list[tuple[str, int, int]] = []
        found = distributed(
            files, [], folder, shard_bytes=300,
            corpus_format=how, progress=lambda *now, seen=seen: seen.append(now),
        )  # fmt: skip
        assert found == local(files, [], tmp_path / "local", corpus_format=how)
        counted = [now for now in seen if now[0] == "count"]
        assert counted[-1][1:] == (files[0].stat().st_size,) * 2


def test_a_wrong_line_names_the_file_as_the_caller_did(tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "one"}\n{"other": "two"}\n')
    source = SourceFile.examine(lines, shown="the news")
    with pytest.raises(CorpusError, match="the news") as raised:
        distributed([source], [], tmp_path)  # type: ignore[list-item]
    assert str(lines) not in str(raised.value)


def test_a_file_of_lines_that_changes_is_an_error(tmp_path, monkeypatch):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "one"}\n' * 9)
    sources = [SourceFile.examine(lines)]
    lines.write_text('{"text": "two"}\n' * 9 + "\n")
    with pytest.raises(CorpusError, match="changed"):
        distributed(sources, [], tmp_path)  # type: ignore[arg-type]


def test_a_table_that_comes_to_its_ceiling(corpus, tmp_path):
    found = distributed(corpus, ["<|e|>"], tmp_path, engine="python", max_memory_bytes=20_000)
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")


def test_more_runs_than_may_be_open(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merge_shards, "MAX_RUNS", 3)
    found = distributed(corpus, ["<|e|>"], tmp_path, shard_bytes=9_000, n_partitions=1)
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")
    assert len(committed(tmp_path)) > 9


def test_a_file_without_cuts_is_looked_through_once(tmp_path, monkeypatch):
    (tmp_path / "some.txt").write_text("a" * 5_000)
    find_cut, looks = ChunkPlanner.find_cut, []

    def noted(self: ChunkPlanner, read: ReadBytes, size_bytes: int, position: int) -> int:
        looks.append(position)
        return find_cut(self, read, size_bytes, position)

    monkeypatch.setattr(ChunkPlanner, "find_cut", noted)
    source = SourceFile.examine(tmp_path / "some.txt")
    rules = count_shards.ShardRules(CountingRules(GPT2, ()), "auto", 1, 1)
    found = count_shards.find_cuts(rules, (source, range(100, 5_000, 100)), None)  # type: ignore[arg-type]
    assert found["cuts"][-1] == 5_000
    assert looks == [100]


def test_what_is_done_is_there_and_needs_no_corpus(corpus, tmp_path):
    found = distributed(corpus, ["<|e|>"], tmp_path)
    left = sorted(p.name for p in (tmp_path / "run").glob("*/attempts/*/*/*"))
    assert left == ["pretokens.counts"]
    (tmp_path / "out").unlink()
    assert distributed(corpus, ["<|e|>"], tmp_path) == found


def test_another_corpus_is_another_run(corpus, tmp_path):
    distributed(corpus, ["<|e|>"], tmp_path)
    with pytest.raises(RunConflictError, match=r"\(special_tokens differ\)"):
        distributed(corpus, [], tmp_path)
    corpus[0].write_text("other words")
    with pytest.raises(RunConflictError, match=r"\(inputs differ\)"):
        distributed(corpus, ["<|e|>"], tmp_path)


@pytest.mark.parametrize("engine_name", ["auto", "python"])
def test_what_is_not_utf_8_is_named_with_its_byte(corpus, tmp_path, engine_name):
    data = bytearray(corpus[2].read_bytes())
    data[20_000:20_000] = b"\xff"
    corpus[2].write_bytes(data)
    with pytest.raises(CorpusError, match=r"2\.txt is not UTF-8 at byte 20000 \(0xff"):
        distributed(corpus, ["<|e|>"], tmp_path, shard_bytes=9_000, engine=engine_name)


@pytest.mark.parametrize("n_bytes", [11, None], ids=["shorter", "as long"])
def test_a_file_that_changes_ends_the_run(corpus, tmp_path, n_bytes):
    n_bytes = n_bytes or corpus[2].stat().st_size

    def change(phase: str, done: int, total: int) -> None:
        corpus[2].write_bytes(b"x" * n_bytes)

    with pytest.raises(CorpusError, match=r"2\.txt' changed while it was read"):
        distributed(corpus, ["<|e|>"], tmp_path, shard_bytes=9_000, progress=change)


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.txt.zst", "b.parquet", "b.jsonl", "b.txt"])
def test_an_empty_file_is_what_it_is_on_one_machine(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("low lower")
    Path(name).touch()
    files, outcomes = [Path("a.txt"), Path(name)], []
    for count in (
        lambda: local(files, [], Path("local")),
        lambda: distributed(files, [], Path("run")),
    ):
        try:
            outcomes.append(count())
        except CorpusError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[0], str) == (name not in ("b.jsonl", "b.txt"))


def test_nothing_to_count(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(CorpusError, match="the corpus is empty"):
        distributed([tmp_path / "empty"], [], tmp_path)
    with pytest.raises(CorpusError, match="no corpus file"):
        distributed([], [], tmp_path)


@pytest.mark.parametrize("options", [{"unmatched": "drop"}, {"behavior": "removed"}])
def test_a_pattern_may_drop_text(options, tmp_path):
    pattern = SplitPattern("custom", "[a-z]+", **options)
    (tmp_path / "text").write_text("ab1ab1ab<|e|>12cd")
    files = [tmp_path / "text"]
    counted = distributed(files, ["<|e|>"], tmp_path, pattern=pattern)
    assert counted == local(files, ["<|e|>"], tmp_path / "local", pattern)


def test_counts_that_do_not_add_up_are_never_written(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(count_shards._SpecialBytes, "__call__", lambda self, chunk: 0)
    with pytest.raises(ShardFailedError, match=r"stage 'count' .* which is a defect"):
        distributed(corpus, ["<|e|>"], tmp_path)


def test_a_partition_that_lost_a_count_is_found(corpus, tmp_path, monkeypatch):
    write_entry = count_shards.write_entry

    def lose_some(run: object, entry: tuple[bytes, int]) -> None:
        write_entry(run, (entry[0], 1))  # type: ignore[arg-type]

    monkeypatch.setattr(count_shards, "write_entry", lose_some)
    with pytest.raises(ShardFailedError, match=r"shard 0 of the stage 'merge' .* defect"):
        distributed(corpus, ["<|e|>"], tmp_path)


def test_other_unicode_tables_split_elsewhere():
    nothing: Any = None
    rules = count_shards.ShardRules(nothing, "auto", 1, 1, "regex 1999.1.1")
    encoding = encode_shards.ShardEncoding(nothing, nothing, nothing, "regex 1999.1.1")
    for work in (
        partial(count_shards.find_cuts, rules),
        partial(count_shards.count_shard, rules),
        partial(encode_shards.encode_shard, encoding),
    ):
        with pytest.raises(RunError, match="install the same version everywhere"):
            work(nothing, nothing)
