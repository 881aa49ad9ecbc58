"""A corpus is read in chunks: cut at each permitted position, in each format."""

import hashlib
import json
from collections import Counter

import pytest

from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tokenizer_core.documents import FORMATS, CorpusFormat, make_separator
from tokenizer_core.errors import CorpusError
from tokenizer_core.reference import count_words
from tokenizer_core.splitting.patterns import PATTERNS, resolve_pattern
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.training import TrainingOptions, count_pretokens, train, train_from_iterator
from tokenizer_core.training.corpus_chunks import ChunkPlanner

GPT2 = PATTERNS["gpt2"]


def pieces(path, specials, chunk_bytes, pattern=GPT2):
    planner = ChunkPlanner(pattern, specials, chunk_bytes=chunk_bytes)
    return [chunk.read() for chunk in planner.plan(str(path))]


@pytest.fixture
def corpus(tmp_path):
    return tmp_path / "corpus.txt"


def test_text_is_cut_where_pre_tokens_end_and_no_special_tokens_overlap(corpus):
    own = resolve_pattern(r"\w+|\W+")
    without_automaton = resolve_pattern(r"(?<!x)\w+|\W+|x")
    for text, specials, chunk_bytes, pattern, expected in (
        ("one two<|e|>three<|e|>four", ["<|e|>"], 9, GPT2, ["one two<|e|>three", "<|e|>four"]),
        ("one two three four", [], 2, GPT2, ["one", " two", " three", " four"]),
        ("a" * 5_000, ["aa"], 50, GPT2, ["a" * 5_000]),
        ("ab" * 2_000, ["ab", "ba"], 50, GPT2, ["ab" * 2_000]),
        ("one two<|e|>three four", ["<|e|>"], 1, own, ["one two", "<|e|>three", " four"]),
        ("one two<|e|>b a", ["<|e|>"], 1, without_automaton, ["one two", "<|e|>b a"]),
        ("one two<|e|>b a", [], 1, without_automaton, ["one two<|e|>b a"]),
    ):
        corpus.write_text(text)
        found = pieces(corpus, specials, chunk_bytes, pattern=pattern)
        assert found == [piece.encode() for piece in expected]


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


DOCUMENTS = ['the "lower" lowest', "", " newer<|a|>newest\n", "{braces} é 中\r\n", "low"] * 3


def counts_of(documents, special_token="<|a|>"):
    """What counting is to give, from each document by itself."""
    texts = [text for document in documents for text in document.split(special_token)]
    return Counter(token for text in texts for token in split(text, GPT2))


def count(file, engine, **options):
    options = {"special_tokens": ["<|a|>"], "pattern": GPT2, **options}
    return count_pretokens([file], engine=engine, **options)


@pytest.mark.parametrize("format_name", FORMATS)
def test_each_format_gives_the_counts_of_its_documents(tmp_path, engine, format_name):
    file = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    how = CorpusFormat(separator=SEPARATOR if format_name.startswith("txt") else None)
    seen = []
    found = count(
        file,
        engine,
        corpus_format=how,
        scratch_folder=scratch,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert found.counts == counts_of(DOCUMENTS)
    assert found.special_tokens == ("<|a|>",)
    assert found.n_bytes == len("".join(DOCUMENTS).encode())
    (source,) = found.sources
    assert (source.path, source.size_bytes) == (str(file), file.stat().st_size)
    assert source.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert list(scratch.iterdir()) == []
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == 2 * file.stat().st_size
    if format_name == "jsonl.gz":
        options = TrainingOptions(270, ["<|a|>"], corpus_format=how, engine=engine)
        merges = train([file], options).merges
        assert merges == train_from_iterator(DOCUMENTS, TrainingOptions(270, ["<|a|>"])).merges


def test_the_field_and_the_format_are_chosen(tmp_path, engine):
    stories = tmp_path / "stories"
    stories.write_text("".join(json.dumps({"story": text}) + "\n" for text in DOCUMENTS))
    as_lines = CorpusFormat("jsonl", "story")
    assert count(stories, engine, corpus_format=as_lines).counts == counts_of(DOCUMENTS)
    as_text = count(stories, engine, corpus_format=CorpusFormat("txt")).counts
    assert as_text == counts_of([stories.read_text()])
    with pytest.raises(CorpusError, match=r"line 1.*'text'"):
        count(stories, engine, corpus_format=CorpusFormat("jsonl"))
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"text": ""}\n')
    with pytest.raises(CorpusError, match="the corpus is empty"):
        count(empty, engine)


def test_no_special_token_reaches_over_the_end_of_a_document(tmp_path, engine):
    file = tmp_path / "corpus.jsonl"
    documents = ["a<|", "|>b", "\0c", "<||>"]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    counted = count(file, engine, special_tokens=["<||>", "\0\1"]).counts
    assert counted == counts_of(documents, "<||>")
    for special_tokens in ([], ["\0\1", "ab"], [chr(code) * 2 for code in range(40)]):
        separator = make_separator(special_tokens)
        assert not any(separator[0] in token for token in special_tokens)
