"""Ids that arrive in parts: text that is never taken back, for one stream and for many."""

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.formats.small_specs import BYTES
from tests.tokenizer_core.text import test_drift as drift
from tokenizer_core import DecodeStreams, StreamingDecoder, Tokenizer, TokenizerSpec
from tokenizer_core.errors import UnknownTokenIdError
from tokenizer_core.text import decode_streams as module
from tokenizer_core.text.decode_streams import MAX_STOP_BYTES

# Parts of characters within tokens, an empty token and a gap before it.
TORN = {256: b"a\xf0\x9f", 257: b"\x99\x82b", 258: b"\xe4\xb8", 259: b"", 262: b" END"}
SHAPES = {
    **{name: spec for name, spec in drift.SHAPES.items() if name not in ("flags", "nfc", "steps")},
    "torn": TokenizerSpec.from_merges(BYTES | TORN, [], ["<|end|>"]),
}
every_shape = pytest.mark.parametrize("shape", SHAPES)


@functools.cache
def tokenizer_of(shape, engine):
    return Tokenizer.from_spec(SHAPES[shape], engine=engine)


def letter_of(spec):
    """An id whose text is `a`, and which is not one of the bytes of a run."""
    found = (id_ for id_, token in spec.vocab.items() if token == b"a")
    return next(id_ for id_ in found if id_ not in spec.alphabet.byte_ids)


def id_lists(shape):
    """Ids of texts, ids of single bytes of characters and of any byte, special tokens, any ids."""
    spec = SHAPES[shape]
    by_byte = [id_ for id_ in spec.alphabet.byte_ids or range(256) if id_ in spec.vocab]
    parts = [[by_byte[byte]] for byte in "é中🙂".encode() if byte < len(by_byte)]
    tokenizer = tokenizer_of(shape, "python")
    parts += [tokenizer.encode(text) for text in (" END", "a b", "</s>", "中文", " ", "<|end|>")]
    parts += [[id_] for id_ in spec.special_tokens.values()]
    drawn = st.sampled_from(parts) | st.sampled_from(sorted(spec.vocab)).map(lambda id_: [id_])
    return st.lists(drawn, max_size=6).map(lambda lists: [id_ for ids in lists for id_ in ids])


STOPS = [" END", "END", "E", "a b", "b a", "aa", "aab", "中文", "é", "\ufffd", " "]
stop_sets = st.lists(st.sampled_from(STOPS) | st.text("ab E", min_size=1, max_size=4), max_size=3)


def slow_parts(tokenizer, parts, stops, *, includes, skips):
    """The texts of `append` for each part and of `finish`, by definition; and the stop string."""
    special = set(tokenizer.special_tokens.values()) if skips else set()
    decoder = StreamingDecoder(tokenizer)
    texts = [decoder.feed([id_ for id_ in ids if id_ not in special]) for ids in parts]
    texts.append(decoder.flush())
    given_out, n_given, stopped, settled = [], 0, None, ""
    for index, text in enumerate(texts):
        for character in text if stopped is None else "":
            settled += character
            ending = [stop for stop in stops if settled.endswith(stop)]
            if ending:
                stopped = max(ending, key=len)
                break
        n_may = len(settled)
        if stopped is not None and not includes:
            n_may -= len(stopped)
        elif stopped is None and not includes and index < len(parts):
            ends = (settled[start:] for start in range(len(settled)))
            held = (end for end in ends if any(stop.startswith(end) for stop in stops))
            n_may -= len(next(held, ""))
        given_out.append(settled[n_given:n_may])
        n_given = n_may
    return given_out, stopped


@every_shape
@given(data=st.data())
def test_every_stream_equals_the_definition(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    shared = data.draw(stop_sets)
    streams = DecodeStreams(tokenizer, stop=shared)
    options = []
    for own in data.draw(st.lists(st.none() | stop_sets, min_size=1, max_size=3)):
        includes, skips = data.draw(st.booleans()), data.draw(st.booleans())
        number = streams.open(stop=own, include_stop=includes, skip_special_tokens=skips)
        assert number == len(options)
        options.append((shared if own is None else own, includes, skips))
    one_call = st.lists(st.tuples(st.integers(0, len(options) - 1), id_lists(shape)), max_size=3)
    calls = data.draw(st.lists(one_call, max_size=5))
    parts = [[] for _ in options]
    texts = [[] for _ in options]
    for call in calls:
        given_out = streams.append([number for number, _ in call], [ids for _, ids in call])
        for (number, ids), text in zip(call, given_out, strict=True):
            parts[number].append(ids)
            texts[number].append(text)
    for number, rest in enumerate(streams.finish(range(len(options)))):
        texts[number].append(rest)
    for number, (stops, includes, skips) in enumerate(options):
        rules = {"includes": includes, "skips": skips}
        expected, stopped = slow_parts(tokenizer, parts[number], stops, **rules)
        assert texts[number] == expected
        assert streams.stopped.get(number) == stopped
        ids = [id_ for part in parts[number] for id_ in part]
        whole = tokenizer.decode(ids, skip_special_tokens=skips)
        joined = "".join(texts[number])
        assert whole.startswith(joined) if stopped else whole == joined


@every_shape
@given(data=st.data())
def test_a_stream_after_ids_continues_their_text(shape, engine, data):
    tokenizer = tokenizer_of(shape, engine)
    before, ids = data.draw(id_lists(shape)), data.draw(id_lists(shape))
    streams = DecodeStreams(tokenizer)
    number = streams.open(after=np.array(before, dtype=np.int64))
    text = streams.append([number], [ids])[0] + streams.finish([number])[0]
    decoder = StreamingDecoder(tokenizer)
    shown = decoder.feed(before)
    n_held = decoder.pending_bytes if tokenizer.spec.alphabet.byte_ids else 0
    held = before[len(before) - n_held :]
    letter = letter_of(tokenizer.spec)  # without one before it, a space is left out
    known = tokenizer.decode_bytes([letter, *held])[1:].decode(errors="ignore").encode()
    if not known:
        assert shown + text == tokenizer.decode(before + ids)
        return
    # The run ends with whole characters, or with the beginning of one, which `ids` may complete.
    assert "a" + text == tokenizer.decode([letter, *held[len(known) :], *ids])


def test_the_end_of_a_prompt_is_not_given_out_and_is_no_stop_string(engine):
    tokenizer = tokenizer_of("metaspace-prepend", engine)
    newline = tokenizer.spec.alphabet.byte_ids[ord("\n")]
    streams = DecodeStreams(tokenizer, stop=["\n"])
    number = streams.open(after=[newline])
    letter = letter_of(tokenizer.spec)
    assert streams.append([number], [letter]) == ["a"]
    assert streams.stopped == {}


def test_one_id_for_each_stream_in_an_array(engine):
    streams = DecodeStreams(tokenizer_of("bytes", engine))
    numbers = np.array([streams.open() for _ in range(256)])
    assert len(streams) == 256
    texts = streams.append(numbers, np.arange(256, dtype=np.uint32))
    assert texts[:128] == [chr(byte) for byte in range(128)]
    assert streams.append(numbers[:2], np.array([[97, 98], [99, 100]])) == ["ab", "cd"]
    assert streams.append(numbers[:2], iter([(97,), 98])) == ["a", "b"]
    assert streams.append([], []) == [] == streams.append(np.array([]), np.array([]))
    # A stream may occur twice: its ids are appended in order.
    assert streams.append([7, 7], [[0xC3], [0xA9]]) == ["", "é"]


@pytest.mark.parametrize(
    ("stops", "text", "before", "stopped"),
    [
        (["abcd", "bc"], "xabcd", "xa", "bc"),  # the one that ends first
        (["c", "bc"], "xabcd", "xa", "bc"),  # of those that end there, the longest
        (["aab"], "aaaab", "aa", "aab"),
        (["abac", "ba!"], "abab!aba!", "abab!a", "ba!"),
        (["é!", "!"], "éé!", "é", "é!"),
    ],
)
def test_which_stop_string_ends_a_text(engine, stops, text, before, stopped):
    for parts in ([text], list(text)):
        streams = DecodeStreams(tokenizer_of("bytes", engine), stop=stops)
        one, whole = streams.open(), streams.open(include_stop=True)
        given_out = [streams.append([one, whole], [list(part.encode())] * 2) for part in parts]
        joined = ["".join(texts) for texts in zip(*given_out, strict=True)]
        assert joined == [before, before + stopped]
        assert streams.stopped == {one: stopped, whole: stopped}


def test_a_run_of_byte_ids_has_a_bound(engine):
    tokenizer = tokenizer_of("metaspace-first", engine)
    streams = DecodeStreams(tokenizer)
    one, other = streams.open(), streams.open()
    space = tokenizer.spec.alphabet.byte_ids[0x20]
    streams.append([one], [[space] * (module.MAX_RUN_BYTES - 1)])
    with pytest.raises(ValueError, match=r"stream 0 would hold more than 1048576 bytes"):
        streams.append([other, one], [[space], [space] * 2])
    texts = streams.append([one, other], [[space, *tokenizer.encode("a"), space], []])
    assert [len(text) for text in texts] == [module.MAX_RUN_BYTES + 1, 0]
    assert streams.finish([other]) == [""]


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([[97], [98, 999_999]], UnknownTokenIdError, r"ids\[1\] = 999999 of stream 1 is not"),
        ([97, -1], UnknownTokenIdError, r"ids\[0\] = -1 of stream 1 "),
        (np.array([97, 400_000]), UnknownTokenIdError, r"ids\[0\] = 400000 of stream 1"),
        ([[97], ["b"]], TypeError, r"stream 1: ids\[0\] = 'b' is a str"),
        ([97, True], TypeError, r"stream 1: ids\[0\] = True is a bool"),
        ([[97], np.array([1.5])], TypeError, r"stream 1: .*array of float64"),
        (np.array([1.5, 2.5]), TypeError, r"array of float64 of shape \(2,\)"),
        (np.array(97), TypeError, r"shape \(\)"),
        (97, TypeError, "the ids of streams must be a list or an array"),
        ([[97]], ValueError, r"2 streams and the ids of 1"),
    ],
)
def test_an_error_names_the_stream_and_changes_nothing(engine, ids, error, words):
    streams = DecodeStreams(tokenizer_of("bytes", engine), stop="aZ")
    one, other = streams.open(), streams.open()
    streams.append([one, other], [list(b"xa"), list(b"x\xc3")])
    with pytest.raises(error, match=words):
        streams.append([one, other], ids)
    assert streams.append([other, one], [[0xA9], list(b"b")]) == ["é", "ab"]


def test_a_stream_that_is_not_open_is_an_error(engine):
    streams = DecodeStreams(tokenizer_of("bytes", engine))
    one, other = streams.open(), streams.open()
    streams.append([one], [[0xC3]])
    for wrong in (2, -1, 2**80, "0", 0.0, False, [0], None):
        with pytest.raises(LookupError, match=r"no stream .* is open"):
            streams.append([one, wrong], [[0xA9], [97]])
        with pytest.raises(LookupError, match=r"no stream .* is open"):
            streams.finish([one, wrong])
        with pytest.raises(LookupError, match=r"no stream .* is open"):
            streams.close(wrong)
    assert streams.append([one], [[0xA9]]) == ["é"]
    streams.finish([one])
    with pytest.raises(ValueError, match="stream 0 is finished"):
        streams.append([other, one], [[97], [97]])
    streams.close(np.int64(other))
    assert streams.open(stop="b") == 2  # a number is not given twice
    assert streams.append([np.int64(2), 2], [[97], [98]]) == ["a", ""]
    assert streams.finish([np.int64(2), 2]) == ["", ""]
    with pytest.raises(ValueError, match="stream 2 is finished"):
        streams.append([2], [[97]])  # also one that a stop string ended
    assert streams.stopped == {2: "b"}


def test_wrong_options_are_errors(engine):
    tokenizer = tokenizer_of("bytes", engine)
    with pytest.raises(ValueError, match="a stop string is empty"):
        DecodeStreams(tokenizer, stop=["a", ""])
    streams = DecodeStreams(tokenizer, stop="END")
    with pytest.raises(ValueError, match=f"have {MAX_STOP_BYTES + 1} bytes, more than"):
        streams.open(stop=["é" * (MAX_STOP_BYTES // 2), "a"])
    with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 999999 of `after`") as caught:
        streams.open(after=[97, 999_999])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert len(streams) == 0
    streams.open(stop="é" * (MAX_STOP_BYTES // 2))
    assert streams.append([0], [list("é".encode()) * (MAX_STOP_BYTES // 2 - 1)]) == [""]


def test_decoding_marks_bytes_that_stay_incomplete(engine):
    tokenizer = tokenizer_of("bytes", engine)
    stream = StreamingDecoder(tokenizer)
    assert stream.feed([0xE4, 0xB8]) == ""
    assert stream.flush() == "\ufffd"
    strict = StreamingDecoder(tokenizer, errors="strict")
    strict.feed([0xE4])
    with pytest.raises(UnicodeDecodeError):
        strict.flush()
