"""The stream codecs and readers of ids: every cut, the checks of lines, the size of one part."""

import json
import struct

import pytest

from tokenizer_core.registry import ArtifactRef
from tokenizer_service.access.errors import LineTooLongError
from tokenizer_service.handlers import stream_codecs
from tokenizer_service.handlers.stream_codecs import DecodeCodec, IdLines, RawIds
from tokenizer_service.http.id_formats import OCTETS, IdsForm
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.errors import PlacedError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

TEXT = 'The quick <|a|> héllo 中文字符 👩‍👩‍👧 "\\/\x00\n\x7f\u2028 e\u0301'


@pytest.fixture
def live(small_tokenizer):
    ref = ArtifactRef("x", "20260101T000000Z-00000000", small_tokenizer.spec.fingerprint)
    return LiveTokenizer.of(ref, small_tokenizer)


def settle(codec, pieces):
    parts = [part for piece in pieces for part in codec.feed(piece)]
    return [*parts, *codec.finish()]


def text_of(codec, pieces):
    return "".join(part.text for part in settle(codec, pieces))


def raw(dtype="u32"):
    return RawIds(IdsForm(OCTETS, dtype))


def packed(ids, letter="I"):
    return struct.pack(f"<{len(ids)}{letter}", *ids)


def as_lines(live, rows, *, is_records):
    lines = list(rows)
    if is_records:
        lines = [{"seq": seq, "tokens": row, "byte_end": 0} for seq, row in enumerate(rows)]
        end = {"done": True, "count": sum(map(len, rows)), "bytes": 0}
        lines.append({**end, "digest": live.ref.digest})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def bytes_and_broken_ids(tokenizer):
    """Ids of a text, then of bytes that are not UTF-8 between whole characters."""
    by_byte = {token: id_ for id_, token in tokenizer.spec.vocab.items() if len(token) == 1}
    broken = [by_byte[bytes([byte])] for byte in b"a\xf0\x9f\x91\xff\xe4\xb8b\xc3"]
    return [*tokenizer.encode(TEXT), *broken]


@pytest.mark.row(15)
@pytest.mark.parametrize("form", ["u32", "u16", "arrays", "records"])
def test_every_single_cut(live, form):
    ids = bytes_and_broken_ids(live.tokenizer)
    expected = live.tokenizer.decode(ids)
    rows = [ids[:3], [], ids[3:20], ids[20:]]
    if form in ("u32", "u16"):
        data = packed(ids, "I" if form == "u32" else "H")
    else:
        data = as_lines(live, rows, is_records=form == "records")

    def reader():
        return raw(form) if form in ("u32", "u16") else IdLines(live.ref.digest)

    for cut in range(len(data) + 1):
        codec = DecodeCodec(live, reader())
        parts = settle(codec, [data[:cut], data[cut:]])
        assert "".join(part.text for part in parts) == expected, cut
        assert codec.totals() == {"count": len(ids), "bytes": len(expected.encode())}
    assert text_of(DecodeCodec(live, reader()), [bytes([byte]) for byte in data]) == expected


def test_text_is_settled_in_order(live):
    ids = bytes_and_broken_ids(live.tokenizer)
    codec = DecodeCodec(live, raw(), skip_special_tokens=True)
    expected = live.tokenizer.decode(ids, skip_special_tokens=True)
    data = packed(ids)
    assert text_of(codec, [data[at : at + 5] for at in range(0, len(data), 5)]) == expected
    codec = DecodeCodec(live, raw())
    text = ""
    for id_ in ids:
        for part in codec.feed(packed([id_])):
            text += part.text
            whole = live.tokenizer.decode(ids[: part.ids_end])
            assert whole.startswith(text)
            assert whole.removeprefix(text) in ("", "\ufffd")
    assert codec.n_tokens == len(ids)


@pytest.mark.row(14)
def test_one_part_holds_a_bounded_text(live, monkeypatch):
    ids = live.tokenizer.encode(TEXT * 20)
    longest = int(live.token_lengths.max())
    monkeypatch.setattr(stream_codecs, "_TEXT_BYTES", longest)
    monkeypatch.setattr(stream_codecs, "_ID_WINDOW", 7)
    parts = settle(DecodeCodec(live, raw()), [packed(ids)])
    assert max(len(part.text.encode()) for part in parts) <= longest + 3
    assert "".join(part.text for part in parts) == TEXT * 20
    monkeypatch.setattr(stream_codecs, "_TEXT_BYTES", 1)  # less than a token: one goes all the same
    assert text_of(DecodeCodec(live, raw()), [packed(ids)]) == TEXT * 20


@pytest.mark.row(14)
def test_strict_names_the_byte_wherever_it_is_cut(live):
    by_byte = {token: id_ for id_, token in live.tokenizer.spec.vocab.items() if len(token) == 1}

    def settle_cut(data, cut):
        body = packed([by_byte[bytes([byte])] for byte in data])
        return text_of(DecodeCodec(live, raw(), errors="strict"), [body[:cut], body[cut:]])

    for cut in range(0, 36, 4):
        for data, offset in ((b"ab\xc3\xa9\xe4\xb8c", 4), (b"abcd\xf0\x9f", 4), (b"\xffabcde", 0)):
            with pytest.raises(Problem) as caught:
                settle_cut(data, cut)
            assert (caught.value.code, caught.value.byte_offset) == ("not_utf8", offset)
        assert settle_cut("aé中".encode(), cut) == "aé中"


@pytest.mark.row(14)
def test_unknown_ids_are_named_among_all(live):
    largest = live.tokenizer.spec.largest_id
    for at in (0, 1, 40_000):
        codec = DecodeCodec(live, raw())
        with pytest.raises(PlacedError) as unknown:
            settle(codec, [packed([97] * at), packed([97, largest + 1])])
        assert unknown.value.pointer == f"/{at + 1}"
    for dtype in ("u32", "u16"):
        with pytest.raises(Problem) as caught:
            settle(DecodeCodec(live, raw(dtype)), [b"a\0\0\0b"])
        assert (caught.value.status, caught.value.code) == (400, "malformed_ids")


DONE = '{"done":true,"count":1}'


@pytest.mark.row(1, 2, 3, 4)
@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        (['{"seq":0,"tokens":[97]}'], 422, "source_cut_off"),
        (['{"seq":0,"tokens":[97]}', '{"error":{"code":"x"}}'], 422, "source_failed"),
        (['{"tokens":[97,97]}', DONE], 422, "invalid_record"),
        (['{"seq":1,"tokens":[97]}', DONE], 422, "invalid_record"),
        (['{"seq":0,"tokens":[]}', '{"seq":0,"tokens":[97]}', DONE], 422, "invalid_record"),
        (['{"tokens":[97]}', DONE, "[1]"], 422, "invalid_record"),
        (['{"tokens":[97]}', '{"done":true,"count":1,"digest":"other"}'], 412, "digest_mismatch"),
        (['{"tokens":97}'], 422, "invalid_record"),
        (['{"tokens":[97],"done":true}'], 422, "invalid_record"),
        (['{"done":false}'], 422, "invalid_record"),
        (["97"], 422, "invalid_record"),
        (["[97,true]"], 422, "invalid_token_id"),
        (["[4294967296]"], 422, "invalid_token_id"),
        (["[97"], 400, "malformed_json"),
    ],
)
def test_wrong_lines_are_refused(live, lines, status, code):
    for end in ("", "\n"):
        body = "\n".join(lines).encode() + end.encode()
        with pytest.raises(Problem) as caught:
            settle(DecodeCodec(live, IdLines(live.ref.digest)), [body])
        assert (caught.value.status, caught.value.code) == (status, code)


def test_lines_that_are_read(live):
    first, second = '{"seq":0,"tokens":[97]}', '{"seq":1,"tokens":[98],"byte_end":2}'
    for body in (
        "[97]\n\n  \n[98]\r",
        '{"tokens":[97]}\n[98]\n{"done":true}',
        f'{first}\n{second}\n{{"done":true,"count":2}}',
    ):
        for end in (b"", b"\n", b"\n\n"):
            codec = DecodeCodec(live, IdLines(live.ref.digest))
            assert text_of(codec, [body.encode() + end]) == "ab"


@pytest.mark.row(15)
def test_a_line_has_a_longest_length(live, monkeypatch):
    monkeypatch.setattr(stream_codecs, "MAX_LINE_BYTES", 40)
    codec = DecodeCodec(live, IdLines(live.ref.digest))
    line = b"[97," + b" " * 35 + b"97]"
    fitting = line.replace(b" ", b"", 2)
    assert len(fitting) == 40
    assert [part.text for part in codec.feed(b"[97]\n" + fitting + b"\n")] == ["a", "aa"]
    with pytest.raises(LineTooLongError) as caught:
        settle(codec, [line[:10], line[10:]])
    assert (caught.value.limit, caught.value.number) == (40, 3)
