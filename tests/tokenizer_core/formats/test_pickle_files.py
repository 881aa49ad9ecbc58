"""The safe pickle reader: it reads the output of picklers, and nothing else."""

import collections
import io
import itertools
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer_core.errors import FormatError, UnsafePickleError
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.pickle_files import (
    load_pickles,
    parse_plain_pickle,
    render_pickle,
)
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.checks import MAX_TOKEN_ID

VOCAB = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abab"}
MERGES = [(b"a", b"b"), (b"ab", b"ab")]
SHARED = b"shared part"
VALUES = [
    {},
    [],
    VOCAB,
    MERGES,
    # Ids of one, two and four bytes, to the largest.
    {0: b"a", 255: b"b", 256: b"c", 65535: b"d", 65536: b"e", MAX_TOKEN_ID: b"z"},
    # Several batches.
    {i: b"t%d" % i for i in range(2500)},
    [(b"%d" % i, b"x") for i in range(2001)],
    # Shared objects, of many entries of the memo.
    [(SHARED, SHARED), (SHARED, b"y"), (b"z", SHARED)],
    [(b"%d" % i, SHARED) for i in range(700)],
    [(b"a" * 255, b"b" * 256), (b"c" * 70_000, b"d" * 200_000)],
    {0: b"", 1: b"a"},
]


def python_dumps(value, protocol):
    file = io.BytesIO()
    pickle._Pickler(file, protocol).dump(value)
    return file.getvalue()


PICKLERS = {
    "C": pickle.dumps,
    "Python": python_dumps,
    "optimized": lambda value, protocol: pickletools.optimize(pickle.dumps(value, protocol)),
}


def test_pickles_of_cpython_are_read():
    for value in VALUES:
        for pickler in PICKLERS.values():
            for protocol in (3, 4, 5):
                assert parse_plain_pickle(pickler(value, protocol)) == value
        assert pickle.loads(render_pickle(value)) == value


OTHERS = [
    *(None, 5, b"bytes", print, {1, 2}),
    *({b"a": 1}, {True: b"x"}, {1: "text"}, {1: bytearray(b"x")}, {1: (b"a", b"b")}),
    *({np.int64(1): b"a"}, {-1: b"a"}, {MAX_TOKEN_ID + 1: b"a"}),
    collections.OrderedDict({1: b"a"}),
    *([b"a", b"b"], [(b"a", b"b", b"c")], [("a", "b")], [(1, 2)], ((b"a", b"b"),)),
]


def test_other_values_and_old_protocols_are_refused():
    for value, protocol in itertools.product(OTHERS, (3, 4, 5)):
        with pytest.raises(FormatError):
            parse_plain_pickle(pickle.dumps(value, protocol))
    for value, protocol in itertools.product((VOCAB, MERGES), range(3)):
        with pytest.raises(UnsafePickleError, match=r"pickle\.dump\(.*protocol=4\)"):
            parse_plain_pickle(pickle.dumps(value, protocol))
    loop = []
    loop.append(loop)
    pair = (b"a", b"b")
    for value in (loop, [pair, pair]):
        with pytest.raises(UnsafePickleError):
            parse_plain_pickle(pickle.dumps(value))


FRAME = b"\x95" + (1).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04}(K\x01C\x01aK\x01C\x01bu.", "one id two tokens"),
        (b"\x80\x04}" + FRAME + FRAME + b".", "FRAME"),
        (b"\x80\x04}" + FRAME.replace(b"\x01", b"\x02") + b".", "cut short"),
        (pickle.dumps(VOCAB) + b".", "after the end"),
        (pickle.dumps(VOCAB) * 2, "after the end"),
    ],
)
def test_other_streams_are_refused(data, message):
    assert parse_plain_pickle(b"\x80\x04}" + FRAME + b".") == {}
    with pytest.raises(FormatError, match=message):
        parse_plain_pickle(data)


@pytest.mark.row(30)
@pytest.mark.parametrize(
    "data",
    [pickle.dumps(MERGES), pickle.dumps({i: VOCAB[i] for i in range(244, 258)}, 3)],
)
def test_a_pickle_cut_short_is_refused_and_a_flipped_bit_gives_no_other_types(data):
    refused = 0
    for place in range(len(data)):
        with pytest.raises(FormatError):
            parse_plain_pickle(data[:place])
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                check_plain(parse_plain_pickle(bytes(changed)))
            except FormatError:
                refused += 1
    assert refused > len(data)


def check_plain(value):
    if isinstance(value, dict):
        assert all(type(k) is int and 0 <= k <= MAX_TOKEN_ID for k in value)
        assert all(type(v) is bytes for v in value.values())
    else:
        assert type(value) is list
        assert all(type(t) is tuple and [*map(type, t)] == [bytes, bytes] for t in value)


# Opcodes in random order, half of them from plain pickles: random bytes fail at the first one.
PLAIN = [
    *(b"(", b"u", b"e", b"s", b"a", b"\x86", b"\x94", b"K\x01", b"M\x01\x01", b"J\xff\xff\xff\xff"),
    *(b"C\x01a", b"B\x02\x00\x00\x00ab", b"h\x00", b"j\x01\x00\x00\x00", b"q\x00", b"."),
    *(b"r\x00\x00\x00\x40", b"\x95" + bytes(8), b"\x95\x02" + bytes(7), b"\x8e" + b"\xff" * 8),
]
EVERY = [op.code.encode("latin-1") for op in pickletools.opcodes]
opcodes = st.sampled_from(PLAIN) | st.sampled_from(EVERY)
heads = st.sampled_from([b"\x80\x04}", b"\x80\x04]", b"\x80\x05}\x94", b"\x80\x03]q\x00", b""])
tails = st.sampled_from([b".", b"", b"u.", b"e."])
streams = st.tuples(heads, st.lists(opcodes, max_size=30).map(b"".join), tails).map(b"".join)


@pytest.mark.promise(19)
@given(st.one_of(st.binary(max_size=200), streams))
@example(b"\x80\x04}(K\x01C\x01au.")
def test_any_bytes_give_a_plain_value_or_a_format_error(data):
    try:
        value = parse_plain_pickle(data)
    except FormatError:
        return
    check_plain(value)
    assert value == pickle.loads(data)
    *_, (last, _, position) = pickletools.genops(data)
    assert (last.name, position) == ("STOP", len(data) - 1)


def test_save_and_load(tmp_path):
    paths = tmp_path / "vocab.pkl", tmp_path / "merges.pkl"
    write_files("pickle", TokenizerSpec.from_merges(VOCAB, MERGES), *paths)
    vocab, merges = load_pickles(*paths)
    assert (vocab, merges) == (VOCAB, MERGES)
    assert merges[1][0] is vocab[256]  # one object, to save memory
    one, other = b"ab", b"".join([b"a", b"b"])  # two objects of equal value
    assert pickle.dumps([(one, one)]) != pickle.dumps([(one, other)])
    assert render_pickle([(one, one)]) == render_pickle([(one, other)])
    assert render_pickle({1: b"b", 0: b"a"}) == render_pickle({0: b"a", 1: b"b"})
    with pytest.raises(FormatError, match="this is a list"):
        load_pickles(paths[1], paths[0])


def test_only_what_can_be_read_again_is_saved_and_gaps_are_declared(tmp_path):
    paths = tmp_path / "vocab.pkl", tmp_path / "merges.pkl"
    vocab = {**VOCAB, 260: b"zz"}
    large = VOCAB | {n: bytes([n % 256]) * (1 << 20) for n in range(258, 292)}
    for wrong, told in (
        (vocab, "bare pickles cannot declare"),
        (large, "more than the 33554432 that can be read"),
    ):
        with pytest.raises(FormatError, match=told):
            write_files("pickle", TokenizerSpec.from_merges(wrong, MERGES), *paths)
        assert list(tmp_path.iterdir()) == []
    paths[0].write_bytes(render_pickle(vocab))
    paths[1].write_bytes(render_pickle(MERGES))
    with pytest.raises(FormatError, match="ids 258 to 259 have no token"):
        load_pickles(*paths)
    assert load_pickles(*paths, declared_gaps=[(258, 259)])[0] == vocab
    for wrong in ([(258, 258)], [(258, 259), (300, 301)], [(258, 260)]):
        with pytest.raises(FormatError):
            load_pickles(*paths, declared_gaps=wrong)
