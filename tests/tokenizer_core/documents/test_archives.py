"""gzip and zstd: the complete content or an error, in memory bounded by the window."""

import gzip
import random
import sys
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import PACKERS, zstd
from tokenizer_core.documents import archives
from tokenizer_core.documents.archives import FREE_BYTES, unpack_gzip, unpack_zstd
from tokenizer_core.errors import CorpusError

UNPACKERS = {"gz": unpack_gzip, "zst": unpack_zstd}
TEXT = "".join(random.Random(5).choices("abcde \n", k=3_000)).encode()


@pytest.fixture(params=["gz", "zst"])
def packed(request):
    name: str = request.param
    return name


def unpack(
    data: bytes, packed: str, block_bytes: int = 1 << 20, max_expansion: float = 200
) -> bytes:
    blocks = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    return b"".join(UNPACKERS[packed](blocks, "some." + packed, max_expansion))


@given(
    st.sampled_from(["gz", "zst"]),
    st.lists(st.binary(max_size=100) | st.integers(0, 70_000).map(lambda n: b"ab" * n), min_size=1),
    st.integers(1, 50),
)
@examples(1 / 2)
def test_members_follow_each_other(packed, parts, block_bytes):
    data = b"".join(map(PACKERS[packed], parts))
    assert unpack(data, packed, block_bytes) == b"".join(parts)


def test_output_is_bounded_by_the_step_and_not_by_the_file(packed, monkeypatch):
    data = PACKERS[packed](bytes(5_000_000))
    steps = list(UNPACKERS[packed](iter([data]), "some", 1))  # small output may expand at will
    assert max(map(len, steps)) <= 1 << 18
    assert sum(map(len, steps)) == 5_000_000
    # Every step that can cut the output, around the size of the output itself.
    data = PACKERS[packed](TEXT)
    for taken in [*range(1, 20), *range(len(TEXT) - 3, len(TEXT) + 3)]:
        monkeypatch.setattr(archives, "_TAKEN_BYTES", taken)
        assert unpack(data, packed) == TEXT


def test_an_archive_cut_anywhere_is_an_error(packed):
    data = PACKERS[packed](TEXT[:300]) + PACKERS[packed](TEXT[300:500])
    first = len(PACKERS[packed](TEXT[:300]))
    for size in range(len(data)):
        if size != first:
            with pytest.raises(CorpusError, match=r"'some\.\w+' ends inside its (gzip|zstd) data"):
                unpack(data[:size], packed)


def test_a_changed_bit_is_found(packed):
    # With a checksum: gzip always has one, zstd as its command writes it.
    options = {zstd.CompressionParameter.checksum_flag: 1}
    data = gzip.compress(TEXT) if packed == "gz" else zstd.compress(TEXT, options=options)
    bits = range(0, 8 * len(data), 101)
    n_found = 0
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert unpack(bytes(changed), packed) == TEXT  # for example the time in gzip's header
        except CorpusError:
            n_found += 1
    assert n_found > 0.95 * len(bits)


def test_other_data_before_or_after_is_an_error(packed):
    with pytest.raises(CorpusError, match="something else after its end"):
        unpack(PACKERS[packed](TEXT) + b"more", packed)
    with pytest.raises(CorpusError, match=r"is no (gzip|zstd) file"):
        unpack(TEXT, packed)


def test_zeros_may_pad_gzip_and_notes_stand_between_zstd_frames():
    data = gzip.compress(b"a") + bytes(700) + gzip.compress(b"b") + bytes(100_000)
    for block_bytes in (1, 512, 1 << 20):
        assert unpack(data, "gz", block_bytes) == b"ab"
    with pytest.raises(CorpusError):
        unpack(bytes(10) + gzip.compress(b"a"), "gz")
    note = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
    assert unpack(note + zstd.compress(b"a") + note + zstd.compress(b"b"), "zst", 3) == b"ab"
    with pytest.raises(CorpusError):
        unpack(zstd.compress(b"a") + bytes(10), "zst")


@pytest.mark.row(26)
def test_an_archive_bomb_is_refused_in_little_memory(packed):
    bomb = PACKERS[packed](bytes(FREE_BYTES))
    bomb += PACKERS[packed](bytes(1 << 20))
    sizes: list[int] = []
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=r"more than 200 times as much text.*max_expansion"):
            sizes.extend(map(len, UNPACKERS[packed](iter([bomb]), "bomb", 200.0)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert FREE_BYTES - (1 << 18) <= sum(sizes) <= FREE_BYTES
    assert peak < 8 << 20
    assert len(unpack(bomb, packed, max_expansion=1e9)) == FREE_BYTES + (1 << 20)


@pytest.mark.row(26)
def test_a_large_zstd_window_is_refused():
    for log in (27, 28, 31):
        compressor = zstd.ZstdCompressor(
            options={
                zstd.CompressionParameter.window_log: log,
                zstd.CompressionParameter.hash_log: 10,
                zstd.CompressionParameter.chain_log: 10,
                zstd.CompressionParameter.strategy: 1,
            }
        )
        # In several calls: from one call it would know the size, and make the window as small.
        data = compressor.compress(b"some text") + compressor.flush()
        if log == 27:
            assert unpack(data, "zst") == b"some text"
        else:
            with pytest.raises(CorpusError, match=r"window of more than 134217728 .*--long=27"):
                unpack(data, "zst")


def test_without_its_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.delattr(sys.modules["backports"], "zstd", raising=False)
    if sys.version_info < (3, 14):
        with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[zstd\]'"):
            unpack(b"", "zst")


def test_many_empty_members_are_read():
    empty = zlib.compressobj(wbits=31)
    data = (empty.compress(b"") + empty.flush()) * 20_000
    assert unpack(data, "gz") == b""
