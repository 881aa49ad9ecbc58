"""Batches, frames and events: read at any cut; malformed ones are refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_client import ClientError, ProblemError, StreamCutOffError, UnexpectedResponseError
from tokenizer_client.calls.wire_formats import (
    Event,
    EventReader,
    FrameReader,
    parse_batch,
    parse_id_bytes,
    render_batch,
    render_ids,
)

END = b'{"done":true}'


def frames(*records):
    return b"".join(struct.pack("<II", kind, len(data)) + data for kind, data in records)


def test_a_batch_is_read_as_it_was_written():
    packed, offsets = parse_batch(bytearray(render_batch([[1, 2], [], np.array([3])])), 4, 3)
    assert parse_id_bytes(packed).tolist() == [1, 2, 3]
    assert offsets.tolist() == [0, 2, 2, 3]
    assert parse_batch(bytearray(render_batch([])), 4, 0)[1].tolist() == [0]


def test_a_batch_of_another_size_or_cut_off_anywhere_is_refused():
    whole = render_batch([[1, 2], [3]])
    for n_texts in (0, 1, 3):
        with pytest.raises(UnexpectedResponseError, match=f"no batch of {n_texts}: it has 2"):
            parse_batch(bytearray(whole), 4, n_texts)
    for n_bytes in range(len(whole)):
        with pytest.raises(UnexpectedResponseError):
            parse_batch(bytearray(whole[:n_bytes]), 4, 2)


def test_lengths_whose_sum_wraps_around_are_refused():
    body = struct.pack("<I2Q", 2, (1 << 64) - 1, 2) + b"\0" * 4
    with pytest.raises(UnexpectedResponseError, match="add up"):
        parse_batch(bytearray(body), 4, 2)


def test_ids_of_two_bytes_reach_65535():
    assert render_ids([1, 65535], "u16") == struct.pack("<2H", 1, 65535)
    with pytest.raises(ValueError, match="0 to 65535"):
        render_ids([65536], "u16")
    with pytest.raises(UnexpectedResponseError):
        parse_id_bytes(bytearray(5))


def test_frames_are_read_at_any_cut():
    sent = frames((0, b"abc"), (0, b""), (0, b"de"), (1, END))
    for cut in range(len(sent) + 1):
        reader = FrameReader()
        assert reader.feed(sent[:cut]) + reader.feed(sent[cut:]) == b"abcde"
        assert reader.finish() == {"done": True}
        reader = FrameReader()
        reader.feed(sent[:cut])
        if cut < len(sent):
            with pytest.raises(StreamCutOffError):
                reader.finish()


def test_an_error_frame_is_the_problem_in_it():
    document = b'{"error":{"status":422,"code":"c","detail":"d","byte_offset":7}}'
    with pytest.raises(ProblemError) as told:
        FrameReader().feed(frames((2, document)))
    assert (told.value.status, told.value.code, told.value.byte_offset) == (422, "c", 7)


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=20))), st.binary(max_size=30))
def test_any_bytes_are_read_or_refused_with_an_error_of_the_client(records, rest):
    reader = FrameReader()
    try:
        reader.feed(frames(*records) + rest)
        reader.finish()
    except ClientError:
        return
    assert not rest
    assert [kind for kind, _ in records].count(1) == 1


EVENTS_SENT = b'retry: 2000\n\nid: 1\ndata: {"a":1}\n\n:\n\nid: 2\ndata: {"b":"\xc3\xa9"}\n\n'
EVENTS = [Event("1", b'{"a":1}'), Event("2", b'{"b":"\xc3\xa9"}')]


def test_events_are_read_at_any_cut():
    for cut in range(len(EVENTS_SENT) + 1):
        reader = EventReader()
        assert reader.feed(EVENTS_SENT[:cut]) + reader.feed(EVENTS_SENT[cut:]) == EVENTS
    assert EventReader().feed(EVENTS_SENT[:-1]) == EVENTS[:1]
