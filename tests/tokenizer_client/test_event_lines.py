"""Server-sent events, cut anywhere."""

from tokenizer_client.event_lines import Event, EventReader

SENT = b'retry: 2000\n\nid: 1\ndata: {"a":1}\n\n:\n\nid: 2\ndata: {"b":"\xc3\xa9"}\n\n'
EVENTS = [Event("1", b'{"a":1}'), Event("2", b'{"b":"\xc3\xa9"}')]


def test_events_cut_at_every_byte():
    for cut in range(len(SENT) + 1):
        reader = EventReader()
        assert reader.feed(SENT[:cut]) + reader.feed(SENT[cut:]) == EVENTS


def test_an_event_that_did_not_end_is_none():
    assert EventReader().feed(SENT[:-1]) == EVENTS[:1]
