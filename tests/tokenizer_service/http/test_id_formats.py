"""Ids and texts in binary, in requests and responses, on each engine; malformed bodies."""

import io
import struct

import numpy as np
import pytest

from tests.tokenizer_service.conftest import serve
from tokenizer_client.schemas.tokens import MAX_BATCH_ITEMS
from tokenizer_core import TokenizerSpec
from tokenizer_service.http.id_formats import NPY, OCTETS, IdsForm, choose_ids_form, parse_ids_body
from tokenizer_service.http.problem import Problem

TEXT = "The quick <|a|> héllo 中文字符 👩‍👩‍👧 don't\r\n\x00"
TEXTS = [TEXT, "", "low", TEXT * 500]


@pytest.fixture(scope="module")
def served(shared_store, engine):
    with serve(shared_store, engine=engine) as client:
        yield client


def encode(client, accept, text=TEXT, **body):
    return client.post("/encode", json={"text": text, **body}, headers={"Accept": accept})


def decode(client, body, content_type, accept="*/*", **options):
    headers = {"Content-Type": content_type, "Accept": accept}
    return client.post("/decode", content=body, headers=headers, params=options)


def npy(array):
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def npy_with(header, data=b""):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def parts_of(body, item_bytes):
    (n,) = struct.unpack_from("<I", body)
    lengths = struct.unpack_from(f"<{n}Q", body, 4)
    rest, parts = body[4 + 8 * n :], []
    for length in lengths:
        parts.append(rest[: length * item_bytes])
        rest = rest[length * item_bytes :]
    assert not rest
    return parts


def test_ids_of_one_text_there_and_back(served, small_tokenizer, starter):
    for accept, repeat in (
        (f"{OCTETS}; dtype=u32", 1),
        (f"{OCTETS}; dtype=u16", 0),
        (OCTETS, 1000),
        (f"{OCTETS}; layout=batch", 1),
        (NPY, 1),
        (f"{NPY}; dtype=u16", 1),
    ):
        text = TEXT * repeat
        answer = encode(served, accept, text)
        assert answer.status_code == 200
        assert answer.headers["Tokenizer-Version"] == str(starter)
        assert answer.headers["Tokenizer-Digest"] == starter.digest
        kind, content = answer.headers["Content-Type"], answer.content
        dtype = np.dtype("<u2" if "u16" in accept else "<u4")
        if kind == NPY:
            array = np.load(io.BytesIO(content), allow_pickle=False)
            assert array.dtype == dtype
            assert len(content) - array.nbytes == 64 * 2
            assert decode(served, npy(array), NPY).json()["text"] == text
        else:
            is_batch = "batch" in accept
            layout = "; layout=batch" if is_batch else ""
            assert kind == f"{OCTETS}; dtype={'u16' if 'u16' in accept else 'u32'}{layout}"
            array = np.frombuffer(parts_of(content, 4)[0] if is_batch else content, dtype)
        assert array.tolist() == small_tokenizer.encode(text)
        back = decode(served, content, kind)
        assert back.json()["text"] == ([text] if "batch" in accept else text)
        assert back.headers["Tokenizer-Digest"] == starter.digest


@pytest.mark.parametrize(("texts", "dtype"), [([], "u32"), ([""], "u16"), (TEXTS, "u32")])
def test_ids_of_a_batch_there_and_back(served, small_tokenizer, texts, dtype):
    answer = encode(served, f"{OCTETS};dtype={dtype}", texts)
    kind = answer.headers["Content-Type"]
    assert kind == f"{OCTETS}; dtype={dtype}; layout=batch"
    width = {"u32": 4, "u16": 2}[dtype]
    ids = [np.frombuffer(part, f"<u{width}").tolist() for part in parts_of(answer.content, width)]
    assert ids == [small_tokenizer.encode(text) for text in texts]
    assert decode(served, answer.content, kind).json()["text"] == texts
    raw = decode(served, answer.content, kind, OCTETS)
    assert raw.headers["Content-Type"] == f"{OCTETS}; layout=batch"
    assert parts_of(raw.content, 1) == [text.encode() for text in texts]


def test_bytes_of_a_text_as_they_are(served, small_tokenizer):
    ids = np.array(small_tokenizer.encode(TEXT), dtype="<u4")
    for cut in (ids, ids[:-1], ids[5:], ids[:0]):
        raw = decode(served, cut.tobytes(), OCTETS, OCTETS)
        assert raw.headers["Content-Type"] == OCTETS
        assert raw.content == small_tokenizer.decode_bytes(cut)
    json_in = served.post("/decode", json={"tokens": ids.tolist()}, headers={"Accept": OCTETS})
    assert json_in.content == TEXT.encode()
    skipped = decode(served, ids.tobytes(), OCTETS, OCTETS, skip_special_tokens="true")
    assert skipped.content.decode() == TEXT.replace("<|a|>", "")


def test_options_and_limits_hold_in_binary(client):
    half = np.array([255], dtype="<u4").tobytes()  # the byte 0xff
    assert decode(client, half, OCTETS).json()["text"] == "\ufffd"
    for accept in ("*/*", OCTETS):
        strict = decode(client, half, OCTETS, accept, errors="strict")
        assert (strict.status_code, strict.json()["code"]) == (422, "not_utf8")
    assert decode(client, half, OCTETS, tokenizer="nope").status_code == 404
    twice = {"errors": ["strict", "replace"]}
    wrong = [{"errors": "x"}, {"skip_special_tokens": "1"}, {"eror": "x"}, {"tokens": "1"}, twice]
    for options in wrong:
        refused = decode(client, half, OCTETS, **options)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    unknown = decode(client, np.array([1, 1 << 31], dtype="<u4").tobytes(), OCTETS)
    assert unknown.json()["errors"][0]["pointer"] == "/tokens/1"
    for text, pointer in ((TEXT, "/text"), (["low", TEXT], "/text/1")):
        over = encode(client, OCTETS, text, max_tokens=3)
        assert (over.status_code, over.json()["limit"]) == (413, 3)
        assert over.json()["errors"][0]["pointer"] == pointer
    for returned in (["pieces"], ["ids", "offsets"], []):
        refused = encode(client, OCTETS, **{"return": returned})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/return")
    for accept, text in ((f"{OCTETS}; layout=rows", "x"), (NPY, ["x"])):
        assert encode(client, accept, text).status_code == 406


def test_u16_only_where_the_largest_id_fits(served, shared_store):
    for largest, status in ((65_535, 200), (65_536, 406)):
        vocab = {largest - 255 + byte: bytes([byte]) for byte in range(256)}
        spec = TokenizerSpec.from_merges(vocab, [])
        named = str(shared_store.publish(spec, name=f"up-to-{largest}"))
        answer = encode(served, f"{OCTETS}; dtype=u16", "\xff", tokenizer=named)
        assert answer.status_code == status, answer.text
        assert encode(served, OCTETS, "a", tokenizer=named).status_code == 200
    assert "dtype=u32" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", None),
        ("*/*", None),
        ("application/*;q=0.5, text/html", None),
        ("application/json, application/octet-stream", None),
        ("application/json;q=0.5, application/octet-stream", IdsForm(OCTETS)),
        ("application/octet-stream;q=0, application/x-npy", IdsForm(NPY)),
        ('Application/Octet-Stream ; dtype="U16"', IdsForm(OCTETS, "u16")),
        *((refused, 406) for refused in ("text/html", "application/json;q=0", f"{OCTETS};q=0.0")),
        *((refused, 406) for refused in (f"{OCTETS};dtype=u8", f"{NPY}; layout=batch")),
    ],
)
def test_the_form_with_the_highest_quality_is_chosen(accept, form):
    if form != 406:
        assert choose_ids_form(accept) == form
        return
    with pytest.raises(Problem) as caught:
        choose_ids_form(accept)
    assert caught.value.status == 406


HEADER = b"{'descr': '<u4', 'fortran_order': False, 'shape': (1,), }"
BATCH = IdsForm(OCTETS, is_batch=True)


@pytest.mark.parametrize(
    ("body", "form", "status"),
    [
        (b"\0" * 5, IdsForm(OCTETS), 400),
        (b"", BATCH, 400),
        (struct.pack("<IQ", 1, 2) + b"\0" * 4, BATCH, 400),
        (struct.pack("<IQ", 1, 1) + b"\0" * 5, BATCH, 400),
        (struct.pack("<I2Q", 2, 2**64 - 1, 2) + b"\0" * 4, BATCH, 400),  # the sum wraps to 1
        (b"", IdsForm(NPY), 400),
        (b"\x93NUMPY\x09\x00\x01\x00{", IdsForm(NPY), 400),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", IdsForm(NPY), 400),
        (npy_with(HEADER.replace(b"1", b"True"), b"\0" * 4), IdsForm(NPY), 400),
        (npy_with(HEADER.replace(b"(1,)", b"__import__('os')"), b"\0" * 4), IdsForm(NPY), 400),
        (npy_with(HEADER.replace(b"False", b"0"), b"\0" * 4), IdsForm(NPY), 400),
        (npy_with(HEADER + b"\xa0", b"\0" * 4), IdsForm(NPY), 400),
        (npy_with(HEADER, b"\0" * 4).replace(b"\1\0", b"\1\1", 1), IdsForm(NPY), 400),
        (npy_with(b"{[]: 1}"), IdsForm(NPY), 400),
        (npy_with(HEADER[:-1] + b" " * 2000 + b"}", b"\0" * 4), IdsForm(NPY), 400),
        (npy_with(b"[" * 90 + b"]" * 90), IdsForm(NPY), 400),
        (npy(np.zeros((1, 1), "<u4")), IdsForm(NPY), 422),
        (npy(np.array([1], ">u4")), IdsForm(NPY), 422),
        (npy_with(HEADER.replace(b"<u4", b"|O"), b"cos\nsystem\n."), IdsForm(NPY), 422),
        (npy_with(HEADER.replace(b"'<u4'", b"[('a', '<u4')]"), b"\0" * 4), IdsForm(NPY), 422),
    ],
)  # fmt: skip
def test_malformed_bodies_are_refused(body, form, status):
    with pytest.raises(Problem) as caught:
        parse_ids_body(body, form)
    assert caught.value.status == status


def test_a_malformed_body_is_refused_by_the_route(client):
    for body, kind, status, code in (
        (struct.pack("<I", MAX_BATCH_ITEMS + 1), BATCH.media_type, 413, "batch_too_large"),
        (b"\0" * 5, OCTETS, 400, "malformed_ids"),
        (npy([True]), NPY, 422, "unsupported_dtype"),
        (b"", f"{OCTETS};dtype=f4", 415, "ids_form_unsupported"),
        (b"", f"{OCTETS};layout=rows", 415, "ids_form_unsupported"),
        (b"", f"{NPY};layout=batch", 415, "ids_form_unsupported"),
    ):
        answer = decode(client, body, kind)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
