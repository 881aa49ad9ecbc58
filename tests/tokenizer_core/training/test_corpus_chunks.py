"""Cuts: at every permitted position and nowhere else; files that are not a corpus."""

import os
from pathlib import Path

import pytest

from tokenizer_core.errors import CorpusError
from tokenizer_core.patterns import PATTERNS, resolve_pattern
from tokenizer_core.reference import count_words
from tokenizer_core.training import count_pretokens
from tokenizer_core.training.corpus_chunks import Chunk, ChunkPlanner, CorpusFile

GPT2 = PATTERNS["gpt2"]


def plan(path: Path, specials: list[str], chunk_bytes: int, **options: object) -> list[Chunk]:
    pattern = options.pop("pattern", GPT2)
    planner = ChunkPlanner(pattern, specials, chunk_bytes=chunk_bytes, **options)
    return list(planner.plan(CorpusFile.examine(path)))


def pieces(path: Path, specials: list[str], chunk_bytes: int, **options: object) -> list[bytes]:
    return [chunk.read() for chunk in plan(path, specials, chunk_bytes, **options)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.txt"


def test_text_is_cut_where_pre_tokens_end(corpus):
    corpus.write_text("one two<|e|>three<|e|>four")
    assert pieces(corpus, ["<|e|>"], 9) == [b"one two<|e|>three", b"<|e|>four"]
    corpus.write_text("one two three four")
    assert pieces(corpus, [], 2) == [b"one", b" two", b" three", b" four"]


def test_text_is_not_cut_where_special_tokens_may_overlap(corpus):
    for text, specials in (("a" * 5_000, ["aa"]), ("ab" * 2_000, ["ab", "ba"])):
        corpus.write_text(text)
        assert pieces(corpus, specials, 50) == [text.encode()]


def test_a_custom_pattern_is_cut_in_plain_text_if_it_has_an_automaton(corpus):
    corpus.write_text("one two<|e|>three four")
    pattern = resolve_pattern(r"\w+|\W+")
    assert pieces(corpus, ["<|e|>"], 1, pattern=pattern) == [b"one two", b"<|e|>three", b" four"]
    pattern = resolve_pattern(r"(?<!x)\w+|\W+|x")
    assert pieces(corpus, ["<|e|>"], 1, pattern=pattern) == [b"one two", b"<|e|>three four"]
    assert len(pieces(corpus, [], 1, pattern=pattern)) == 1


# Each slides over the end of the window, so that each of its characters is once the last and once
# the first one in view.
SLID = [
    (["a  b a"], b"a  b a x"),
    (["bc", "aabc"], b"aabc x"),
    (["bc", "bca"], b"bca x"),
    (["<|a|>", "<|a|><|a|>"], b"<|a|><|a|><|a|> x"),
    (["aa"], b"aaaaa x"),
    (["\u6f22 \u5b57"], "\u6f22 \u5b57 x".encode()),
    ([], "e\u0301 \u6f22 \u00a0\U0001f600  x".encode()),
    (["b \ufffd"], b"b \xff x"),
    (["\ufffd a"], b"\xe6\xbc a x"),
    ([], b"\xf0\x9f\x98 \xf0\x9f\x98\x80 \x80\x80\x80\x80\x80 x"),
]


@pytest.mark.parametrize(("specials", "slid"), SLID)
def test_cuts_at_every_position_of_the_window_keep_the_counts(corpus, specials, slid):
    for lead in range(260):
        data = b"x" * lead + slid + b"x" * 150 + slid
        corpus.write_bytes(data)
        counted = count_pretokens(
            [corpus], pattern=GPT2, special_tokens=specials, errors="replace", chunk_bytes=1
        )
        assert counted.counts == count_words(data.decode("utf-8", "replace"), specials), lead


def test_an_invalid_byte_ends_the_search_when_it_is_an_error_anyway(corpus):
    corpus.write_bytes(b"x" * 100 + b"\xff" * 500_000)
    assert len(pieces(corpus, [], 10)[0]) == 100
    with pytest.raises(CorpusError, match=r"not UTF-8 at byte 100 \(0xff"):
        count_pretokens([corpus], pattern=GPT2, chunk_bytes=10)


def test_refused_files(tmp_path):
    with pytest.raises(CorpusError, match="does not exist"):
        CorpusFile.examine(tmp_path / "none")
    with pytest.raises(CorpusError, match="is a folder"):
        CorpusFile.examine(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(CorpusError, match="not a regular file"):
        CorpusFile.examine(tmp_path / "fifo")
    with pytest.raises(CorpusError, match="not a regular file"):
        CorpusFile.examine(os.devnull)
    with pytest.raises(CorpusError, match="cannot be read"):
        CorpusFile.examine("a\0b")


@pytest.mark.row(26)
def test_a_changed_or_replaced_file_is_an_error(tmp_path, corpus):
    corpus.write_text("one two three four")
    file = CorpusFile.examine(corpus)
    file.check_unchanged()
    chunk = Chunk(file, 0, 7)
    assert chunk.read() == b"one two"
    corpus.write_text("one two")
    for look in (chunk.read, file.check_unchanged):
        with pytest.raises(CorpusError, match="changed while it was read"):
            look()
    file = CorpusFile.examine(corpus)
    other = tmp_path / "other"
    other.write_text("two one")
    os.utime(other, ns=(file.version.modified_ns, file.version.modified_ns))
    other.replace(corpus)
    with pytest.raises(CorpusError, match="changed"):
        file.check_unchanged()
    corpus.unlink()
    with pytest.raises(CorpusError, match="changed while it was read"):
        chunk.read()
