"""Streams: the ids of the whole for any cut, and nothing passed off as whole that is not."""

import io
import struct

import httpx
import numpy as np
import pytest

from tests.app.conftest import CORPUS
from tests.tokenizer_client.both_clients import problem
from tokenizer_client import (
    ConnectionLostError,
    EncodedFile,
    InvalidRequestError,
    ProblemError,
    StreamCutOffError,
    UnexpectedAnswerError,
)

TEXT = CORPUS * 20
DATA = TEXT.encode()


def frame(kind, payload):
    return struct.pack("<II", kind, len(payload)) + payload


def streamed(*frames):
    return httpx.Response(200, content=b"".join(frames), headers={"Tokenizer-Digest": "d"})


IDS = frame(0, struct.pack("<2I", 5, 6))
END = frame(1, b'{"done":true,"count":2,"bytes":3,"digest":"d"}')


SOURCES = {
    "bytes": lambda path: path.read_bytes(),
    "path": lambda path: path,
    "file": lambda path: io.BytesIO(path.read_bytes()),
    "cut anywhere": lambda path: (path.read_bytes()[i : i + 7] for i in range(0, len(DATA), 7)),
    "texts": lambda path: iter([TEXT[:1000], "", TEXT[1000:]]),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("source", SOURCES)
def test_ids_are_those_of_the_whole(client, small_tokenizer, path, source):
    ids = np.concatenate(list(client.encode_stream(SOURCES[source](path))))
    assert ids.dtype == np.uint32
    assert ids.tolist() == small_tokenizer.encode(TEXT)


def test_text_comes_back(client, small_tokenizer, tmp_path):
    ids = small_tokenizer.encode(TEXT)
    lists = [ids[:5], np.array(ids[5:9]), ids[9:]]
    assert "".join(client.decode_stream(lists)) == TEXT
    raw = tmp_path / "ids.u16"
    np.array(ids, "<u2").tofile(raw)
    assert "".join(client.decode_stream(raw, width="u16")) == TEXT
    assert "".join(client.decode_stream(client_stream(client))) == TEXT


def client_stream(client):
    return list(client.encode_stream(DATA))


def test_a_file_of_ids_is_there_whole_or_not_at_all(client, small_tokenizer, path, tmp_path):
    for width, dtype in (("u32", np.uint32), ("u16", np.uint16)):
        done = client.encode_file(path, tmp_path / width, width=width)
        assert np.fromfile(tmp_path / width, dtype).tolist() == small_tokenizer.encode(TEXT)
        digest = client.active_tokenizer().digest
        assert done == EncodedFile(small_tokenizer.count(TEXT), len(DATA), digest)
    with pytest.raises(InvalidRequestError):
        client.encode_file([DATA, b"\xff"], tmp_path / "none")
    for source, error in ((tmp_path / "missing", FileNotFoundError), ("text.txt", TypeError)):
        with pytest.raises(error):
            client.encode_file(source, tmp_path / "none")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["text.txt", "u16", "u32"]


def test_an_error_in_the_middle_is_told(client):
    parts = client.encode_stream([DATA] * 3 + [b"\xff"])
    with pytest.raises(ProblemError) as told:
        list(parts)
    assert told.value.code == "invalid_utf8"
    assert told.value.byte_offset == 3 * len(DATA)


def test_what_the_source_raises_is_raised(client):
    def broken():
        yield DATA
        raise OSError("the disk of the source")

    with pytest.raises(OSError, match="the disk of the source"):
        list(client.encode_stream(broken()))


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


def test_a_str_is_neither_a_path_nor_a_text(client):
    with pytest.raises(TypeError, match="Path"):
        list(client.encode_stream("corpus.txt"))


def test_a_stream_of_the_played_service(play):
    client, _ = play(streamed(IDS, IDS[:4], IDS[4:], frame(1, END[8:].replace(b"2", b"4"))))
    assert [ids.tolist() for ids in client.encode_stream(b"abc")] == [[5, 6, 5, 6]]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((IDS,), StreamCutOffError),
        ((), StreamCutOffError),
        ((IDS, END[:-1]), StreamCutOffError),
        ((IDS, END, IDS[:3]), StreamCutOffError),
        ((IDS, END.replace(b"2", b"3")), StreamCutOffError),
        ((IDS, END.replace(b'"bytes":3', b'"bytes":4')), StreamCutOffError),
        ((IDS, END.replace(b'"d"', b'"e"')), StreamCutOffError),
        ((IDS, END, IDS), UnexpectedAnswerError),
        ((frame(7, b""),), UnexpectedAnswerError),
        ((frame(1, b"[]"),), UnexpectedAnswerError),
        ((IDS, frame(2, b'{"error":{"status":503,"code":"shutting_down"}}')), ProblemError),
    ],
)
def test_what_is_not_whole_is_never_passed_off_as_whole(play, clock, answer, kind):
    client, service = play(streamed(*answer))
    parts = client.encode_stream(b"abc")
    with pytest.raises(kind):
        list(parts)
    assert len(service.requests) == 1
    assert clock.slept == []


def test_a_stream_is_begun_again_only_where_its_source_can_be(play, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    for source in (path, b"abc"):
        client, service = play(problem(503), httpx.ReadError("reset"), streamed(IDS, END))
        assert [ids.tolist() for ids in client.encode_stream(source)] == [[5, 6]]
        assert [request.content for request in service.requests] == [b"abc"] * 3
    for source in (iter([b"abc"]), io.BytesIO(b"abc")):
        client, service = play(httpx.ReadError("reset"))
        with pytest.raises(ConnectionLostError):
            list(client.encode_stream(source))
