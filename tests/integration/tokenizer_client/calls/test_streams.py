"""Streams: both clients with a real server."""

import io

import numpy as np
import pytest

from tests.tokenizer_service.conftest import CORPUS
from tokenizer_client import EncodedFile, InvalidRequestError, ProblemError

TEXT = CORPUS * 20
DATA = TEXT.encode()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(DATA)
    return path


SOURCES = {
    "bytes": lambda path: path.read_bytes(),
    "path": lambda path: path,
    "file": lambda path: io.BytesIO(path.read_bytes()),
    "cut anywhere": lambda path: (path.read_bytes()[i : i + 7] for i in range(0, len(DATA), 7)),
    "texts": lambda path: iter([TEXT[:1000], "", TEXT[1000:]]),
}


def test_ids_are_those_of_the_whole_text(client, small_tokenizer, path):
    for name, source in SOURCES.items():
        ids = np.concatenate(list(client.encode_stream(source(path))))
        assert ids.dtype == np.uint32
        assert ids.tolist() == small_tokenizer.encode(TEXT), name


def test_streamed_ids_decode_to_the_text(client, small_tokenizer, tmp_path):
    ids = small_tokenizer.encode(TEXT)
    lists = [ids[:5], np.array(ids[5:9]), ids[9:]]
    assert "".join(client.decode_stream(lists)) == TEXT
    raw = tmp_path / "ids.u16"
    np.array(ids, "<u2").tofile(raw)
    assert "".join(client.decode_stream(raw, width="u16")) == TEXT
    assert "".join(client.decode_stream(list(client.encode_stream(DATA)))) == TEXT


def test_a_file_of_ids_is_whole_or_absent(client, small_tokenizer, path, tmp_path):
    for width, dtype in (("u32", np.uint32), ("u16", np.uint16)):
        done = client.encode_file(path, tmp_path / width, width=width)
        assert np.fromfile(tmp_path / width, dtype).tolist() == small_tokenizer.encode(TEXT)
        digest = client.tokenizers.active().digest
        assert done == EncodedFile(small_tokenizer.count(TEXT), len(DATA), digest)
    with pytest.raises(InvalidRequestError):
        client.encode_file([DATA, b"\xff"], tmp_path / "none")
    for source, error in ((tmp_path / "missing", FileNotFoundError), ("text.txt", TypeError)):
        with pytest.raises(error):
            client.encode_file(source, tmp_path / "none")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["text.txt", "u16", "u32"]


def test_an_error_in_the_middle_is_raised(client):
    parts = client.encode_stream([DATA] * 3 + [b"\xff"])
    with pytest.raises(ProblemError) as told:
        list(parts)
    assert told.value.code == "invalid_utf8"
    assert told.value.byte_offset == 3 * len(DATA)


def test_a_stream_that_is_left_early_is_closed(client, small_tokenizer):
    left = []

    class Endless:
        def __iter__(self):
            try:
                while True:
                    yield DATA
            finally:
                left.append(True)

    parts = client.encode_stream(Endless())
    first = next(parts)
    assert first[:1000].tolist() == small_tokenizer.encode(TEXT)[:1000]
    parts.close()
    assert client.count("a") == 1
    assert left == [True]
