"""Samples of files: pieces at safe cuts, and parallel lines."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.property.trap_texts import fragments
from tokenizer_core.documents import CorpusFormat
from tokenizer_core.errors import CorpusError
from tokenizer_core.evaluation import TextFiles, parallel_files
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.splitting.pretokenize import split

SEPARATOR = "<|endoftext|>"
LINES = "".join(f"Line {i} of words, naïve 世界.\n" for i in range(800))


def write(folder, text):
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def texts(file):
    return [text for piece in file.pieces() for text in piece.texts]


def test_pieces_of_a_whole_file_have_every_byte_once(tmp_path):
    path = write(tmp_path, LINES)
    for sample_bytes, piece_bytes in ((None, 50), (0, 1000), (None, 1 << 20)):
        file = TextFiles(path, sample_bytes, piece_bytes=piece_bytes)
        pieces = list(file.pieces())
        assert "".join(texts(file)) == LINES
        assert [p.start for p in pieces] == [0, *(p.end for p in pieces[:-1])]
        assert all(piece.is_safe for piece in pieces)


def test_a_sample_is_spread_evenly_and_is_the_same_for_the_same_seed(tmp_path):
    path = write(tmp_path, LINES)
    size = path.stat().st_size
    file = TextFiles(path, sample_bytes=size // 8, piece_bytes=size // 80)
    pieces = list(file.pieces())
    assert len(pieces) == 10
    data = path.read_bytes()
    for place, piece in enumerate(pieces):
        assert data[piece.start : piece.end].decode() == "".join(piece.texts)
        # one in each tenth of the file, and about as long as requested
        assert size * place / 10 - 1 <= piece.start <= size * (place + 1) / 10 + 100
        assert abs(piece.end - piece.start - size // 80) < 100
    assert list(file.pieces()) == pieces
    halves = [tmp_path / "a.txt", tmp_path / "b.txt"]
    half = data.index(b"\n", size // 2) + 1
    halves[0].write_bytes(data[:half])
    halves[1].write_bytes(data[half:])
    # Files are sampled as if they were one, but where a piece would go over the end of a file.
    in_halves = list(TextFiles(halves, sample_bytes=size // 8, piece_bytes=size // 80).pieces())
    assert set(pieces) - set(in_halves) <= {p for p in pieces if p.start < half < p.end}
    assert "".join(texts(TextFiles(halves, piece_bytes=100))) == LINES
    other = TextFiles(path, sample_bytes=size // 8, piece_bytes=size // 80, seed=1)
    assert [p.start for p in other.pieces()] != [p.start for p in pieces]


@examples(1 / 5)
@given(
    st.lists(fragments | st.sampled_from([SEPARATOR, "a b", "\n", "x\n", "/", "。\n", "<|end"]),
             max_size=60).map("".join),
    st.integers(1, 40),
)  # fmt: skip
@example("。\n/x。\n//x\n/" * 5, 4)
@example("x\r\ny\r\n\r\nz a b  c\u3000d" * 5, 3)
@example("a\n'll a\n's 。\n。\n\u0301.\n1" * 5, 2)
def test_cuts_change_no_pre_token_of_any_named_pattern(tmp_path_factory, text, piece_bytes):
    text = text.replace("\r\r", "\r")
    path = write(tmp_path_factory.mktemp("sample"), text or "x")
    text = path.read_bytes().decode()
    pieces = list(TextFiles(path, piece_bytes=piece_bytes).pieces())
    texts = [part for piece in pieces for part in piece.texts]
    assert "".join(texts) == text.replace(SEPARATOR, "")
    if not all(piece.is_safe for piece in pieces):
        return
    documents = text.split(SEPARATOR)
    for pattern in PATTERNS.values():
        whole = [token for document in documents if document for token in split(document, pattern)]
        assert [token for part in texts for token in split(part, pattern)] == whole


def test_a_text_without_a_safe_cut_is_marked(tmp_path):
    path = write(tmp_path, "世" * 800_000)  # 2.4 MB, and the search reads one
    pieces = list(TextFiles(path, sample_bytes=300_000, piece_bytes=100_000).pieces())
    assert len(pieces) in (2, 3)
    assert not any(piece.is_safe for piece in pieces)
    assert all(piece.end - piece.start < 100_000 + (2 << 20) for piece in pieces)
    assert all(set(text) == {"世"} for piece in pieces for text in piece.texts)
    whole = list(TextFiles(path, piece_bytes=500_000).pieces())
    assert not whole[0].is_safe  # it begins with the file, and may end anywhere
    assert "".join(text for piece in whole for text in piece.texts) == "世" * 800_000


def write_lines(path, lines, end="\n"):
    path.write_bytes(end.join(lines).encode())
    return path


def test_parallel_files_are_sampled_at_the_same_lines(tmp_path):
    one = write_lines(tmp_path / "a", [f"line {i}" for i in range(100)])
    other = write_lines(tmp_path / "b", [f"строка {i}" for i in range(100)], end="\r\n")
    sampled = parallel_files([one, other], sample_bytes=other.stat().st_size // 4)
    numbers = [[int(text.split()[1]) for text in texts(file)] for file in sampled]
    assert numbers[0] == numbers[1]
    assert not any("\r" in text for text in texts(sampled[1]))
    assert len(numbers[0]) in (20, 25)
    assert len({b - a for a, b in zip(numbers[0], numbers[0][1:], strict=False)}) == 1
    assert texts(parallel_files([one])[0]) == [f"line {i}" for i in range(100)]
    seeds = {tuple(texts(parallel_files([one], 200, seed)[0])) for seed in range(8)}
    assert len(seeds) > 1
    short = write_lines(tmp_path / "c", ["a long line"])
    assert texts(parallel_files([short], 1)[0]) == ["a long line"]


def test_files_that_cannot_be_sampled_are_refused(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"naive words " * 20 + b"caf\xe9 au lait" * 3)
    for piece_bytes in (7, 1 << 20):
        with pytest.raises(CorpusError, match=r"latin\.txt is not UTF-8 at byte 243"):
            texts(TextFiles(path, piece_bytes=piece_bytes))
    with pytest.raises(CorpusError, match="byte 243"):
        texts(parallel_files([path])[0])
    empty = write_lines(tmp_path / "empty.txt", [])
    for path, words in ((empty, "empty"), (tmp_path, "no regular file")):
        with pytest.raises(CorpusError, match=words):
            texts(TextFiles(path))
    one = write_lines(tmp_path / "a", ["1", "2"])
    with pytest.raises(CorpusError, match="number of lines"):
        parallel_files([one, write_lines(tmp_path / "b", ["1", "2", "3"])])


def test_documents_of_json_lines_are_drawn_whole(tmp_path):
    path, other, empty = (tmp_path / f"{name}.jsonl" for name in ("one", "other", "empty"))
    path.write_text("".join(json.dumps({"text": f"story {i}\n"}) + "\n" for i in range(50)))
    other.write_text("".join(json.dumps({"text": f"история {i}"}) + "\n" for i in range(50)))
    empty.write_text('{"text": ""}\n')
    stories = [f"story {i}\n" for i in range(50)]
    in_pieces = TextFiles(path, piece_bytes=100)
    assert texts(TextFiles(path)) == texts(in_pieces) == stories
    assert len([piece for piece in in_pieces.pieces() if piece.is_safe]) > 3
    some = texts(TextFiles(path, sample_bytes=path.stat().st_size // 2))
    assert 10 < len(some) < 40
    assert set(some) < set(stories)
    assert texts(TextFiles(path, sample_bytes=1)) == stories[:1]  # of few documents none is drawn
    assert sorted(texts(TextFiles([empty, path]))) == sorted(stories)
    assert texts(TextFiles([empty, path], sample_bytes=1)) == stories[:1]
    with pytest.raises(CorpusError, match="no text"):
        texts(TextFiles([empty, empty]))
    lines = [texts(file) for file in parallel_files([path, other], 200)]
    assert [line.split()[1] for line in lines[0]] == [line.split()[1] for line in lines[1]]
    assert 2 < len(lines[0]) < 20


def test_a_separator_across_a_cut_is_left_out(tmp_path):
    path = write(tmp_path, f"ab{SEPARATOR}{SEPARATOR}cd " * 50)
    for piece_bytes in (1, 7, 13, 14, 31):
        assert "".join(texts(TextFiles(path, piece_bytes=piece_bytes))) == "abcd " * 50
    spaced = write(tmp_path, "one END OF two")
    assert texts(TextFiles(spaced, None, 0, CorpusFormat(separator=" END OF "), 4)) == [
        "one",
        "two",
    ]


def test_separators_of_parallel_files_are_at_the_same_lines(tmp_path):
    one = write_lines(tmp_path / "a", ["1", SEPARATOR, "2", "", "3", SEPARATOR])
    assert texts(parallel_files([one])[0]) == ["1", "2", "3"]
    assert texts(parallel_files([one], corpus_format=CorpusFormat())[0]) == [
        "1",
        SEPARATOR,
        "2",
        "3",
        SEPARATOR,
    ]
    moved = write_lines(tmp_path / "b", ["1", "2", SEPARATOR, "", "3", SEPARATOR])
    with pytest.raises(CorpusError, match=r"line 2 is the separator .*a, and not in .*b; "):
        parallel_files([one, moved])
    with pytest.raises(CorpusError, match="has no text"):
        parallel_files([write_lines(tmp_path / "c", [SEPARATOR, SEPARATOR])])
