"""Targets that read request bodies and respond to them: each takes any bytes, see `targets`."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from typing import Any

import numpy as np

from tests.fuzz.promises import taken
from tests.fuzz.small_tokenizer import live, slow_tokenizer
from tokenizer_client.schemas.dialects import IdsRequest
from tokenizer_client.schemas.text import ChunkRequest, CountRequest, TruncateRequest, VerifyRequest
from tokenizer_client.schemas.token_files import EncodeCorpusRequest
from tokenizer_client.schemas.tokens import EncodeRequest, PromoteRequest
from tokenizer_core import strict_json as strict_files
from tokenizer_core.chat.renderer import RenderLimits
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.engines import choose_engine
from tokenizer_core.errors import FormatError
from tokenizer_core.streaming import StreamingEncoder
from tokenizer_service.access.limits import ByteBudget, WorkQueue
from tokenizer_service.http.bodies import read_model, validate
from tokenizer_service.http.duplex import (
    DATA_FRAME,
    END_FRAME,
    FRAMES,
    NDJSON,
    DuplexStream,
    StreamCodec,
)
from tokenizer_service.http.id_formats import NPY, OCTETS, IdsForm, parse_ids_body, render_ids_form
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs.inputs import corpus_format, plan_encoding
from tokenizer_service.jobs.train_request import CheckedTrainRequest
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.rendering.decode import render_decoding
from tokenizer_service.rendering.dialects import (
    render_detokenize,
    render_inference_texts,
    render_tokenize,
)
from tokenizer_service.rendering.encode import render_encoding
from tokenizer_service.rendering.preconditions import require_known_specials
from tokenizer_service.rendering.problems import problem_of
from tokenizer_service.rendering.stream_codecs import DecodeCodec, EncodeCodec, IdLines, RawIds
from tokenizer_service.rendering.text import (
    render_chunks,
    render_count,
    render_truncation,
    render_verification,
)
from tokenizer_service.routes import decode, dialects

FORMS = [
    IdsForm(NPY, "u32"),
    *(IdsForm(OCTETS, dtype, batch) for dtype in ("u16", "u32") for batch in (False, True)),
]
_MOST_BYTES = 1 << 20
_ONLY_IN_WINDOWS = {"invalid_request", "number_too_long"}
_MOST_BRACKETS = 500
"""The stack limits the nesting of what a reader accepts, and the limit differs between readers."""

_METRICS = ServiceMetrics()


def request_json(data: bytes) -> None:
    """The strict reader agrees with the standard library's, in windows or in one call."""
    value, code = _value_or_code(data)
    again, code_of_windows = _value_or_code(data, window_chars=16)
    if data.count(b"[") + data.count(b"{") > _MOST_BRACKETS:
        return
    assert again == value or code_of_windows in _ONLY_IN_WINDOWS
    assert bool(code) == bool(code_of_windows) or code_of_windows in _ONLY_IN_WINDOWS
    try:
        in_file = repr(strict_files.parse_strict_json(data, "the file"))
    except FormatError:
        assert code
    else:
        assert in_file == value
    if not code:
        assert value == repr(json.loads(data.decode()))
    elif code == "malformed_json":
        try:
            json.loads(data.decode())
        except ValueError:
            return
        raise AssertionError("the standard library reads it")


def _value_or_code(data: bytes, **options: int) -> tuple[str, str]:
    try:
        return repr(parse_strict_json(data, **options)), ""
    except Problem as problem:
        return "", problem.code


def ids_body(data: bytes) -> None:
    """numpy reads what the target accepts, and it can be written again."""
    form = FORMS[data[0] % len(FORMS)] if data else FORMS[0]
    ids = parse_ids_body(data[1:], form)
    if form.kind == NPY:
        assert isinstance(ids, np.ndarray)
        assert np.array_equal(np.load(io.BytesIO(data[1:]), allow_pickle=False), ids)
        return
    rows = ids if isinstance(ids, list) else [ids]
    joined = np.concatenate([np.empty(0, np.uint32), *rows])
    lengths = np.array([len(row) for row in rows], np.uint64)
    assert b"".join(render_ids_form(joined, lengths, form)) == data[1:]


def encode_body(data: bytes) -> None:
    """Ids decode to the text, and are those of the Python engine; the request is the same for every
    way to read it."""
    wanted = read_model(EncodeRequest, data, engine=choose_engine())
    assert wanted == validate(parse_strict_json(data), EncodeRequest)
    require_known_specials(live(), wanted.disallowed_special)
    answer = json.loads(b"".join(render_encoding(wanted, live(), None).chunks))
    texts, ids = wanted.text, answer.get("tokens")
    if ids is None:
        return
    rows = zip(texts, ids, strict=True) if isinstance(texts, list) else [(texts, ids)]
    with taken():
        for text, row in rows:
            assert live().tokenizer.decode(row) == text
            allowed = wanted.allowed_special
            assert slow_tokenizer().encode(text, allowed_special=allowed) == row


def decode_body(data: bytes) -> None:
    """The text is the decoding of all bytes joined."""
    wanted = decode.parse(data)
    if isinstance(wanted, IdsRequest):
        json.loads(
            b"".join(render_inference_texts(wanted, live(), max_decoded_bytes=_MOST_BYTES).chunks)
        )
        return
    made = render_decoding(wanted, live(), max_decoded_bytes=_MOST_BYTES)
    text = json.loads(b"".join(made.chunks))["text"]
    if wanted.skip_special_tokens:
        return
    rows = wanted.tokens if isinstance(text, list) else [wanted.tokens]
    texts = text if isinstance(text, list) else [text]
    vocab = live().tokenizer.spec.vocab
    for row, one in zip(rows, texts, strict=True):
        assert b"".join(vocab[id_] for id_ in row.tolist()).decode(errors="replace") == one


def text_body(data: bytes) -> None:
    """Count, truncate, chunk or verify; the first byte chooses."""
    body = parse_strict_json(data[1:])
    tokenizer = live().tokenizer
    match data[:1]:
        case b"0":
            render_count(_known(validate(body, CountRequest)), live())
        case b"1":
            cut = _known(validate(body, TruncateRequest))
            answer = json.loads(b"".join(render_truncation(cut, live()).chunks))
            assert len(answer["tokens"]) <= cut.max_tokens
            assert answer["text"] in cut.text
            assert tokenizer.decode(answer["tokens"]) == answer["text"]
        case b"2":
            whole = _known(validate(body, ChunkRequest))
            made = render_chunks(whole, live(), max_bytes=_MOST_BYTES)
            chunks = json.loads(b"".join(made.chunks))["chunks"]
            for chunk in chunks:
                assert len(chunk["tokens"]) <= whole.max_tokens
                assert tokenizer.decode(chunk["tokens"]) == chunk["text"]
            if not whole.overlap_tokens:
                assert "".join(chunk["text"] for chunk in chunks) == whole.text
        case _:
            asked = _known(validate(body, VerifyRequest))
            made = render_verification(asked, live(), max_decoded_bytes=_MOST_BYTES)
            assert asked.text is None or json.loads(b"".join(made.chunks))["ok"]


def _known(wanted: Any) -> Any:
    require_known_specials(live(), wanted.disallowed_special)
    return wanted


def dialect_body(data: bytes) -> None:
    """Requests in the form of other servers; the response is JSON."""
    if data[:1] == b"0":
        text = dialects.parse_tokenize(data[1:])
        chunks = render_tokenize(text, live(), limits=RenderLimits()).chunks
    else:
        wanted = dialects.parse_detokenize(data[1:])
        chunks = render_detokenize(wanted, live(), max_decoded_bytes=_MOST_BYTES).chunks
    json.loads(b"".join(chunks))


def order_body(data: bytes) -> None:
    """The admin routes' bodies: a training run, a corpus to encode, a tokenizer to promote."""
    body = parse_strict_json(data[1:])
    if data[:1] == b"0":
        wanted = validate(body, CheckedTrainRequest)
        with taken():
            fields = json.loads(wanted.model_dump_json(exclude_none=True))
            again = validate(fields, CheckedTrainRequest)
            assert again.digest() == wanted.digest()
    elif data[:1] == b"2":
        asked = validate(body, EncodeCorpusRequest)
        corpus_format(asked, [])
        plan, arguments = plan_encoding(asked, live())
        with taken():  # as the child process creates it again
            arguments = json.loads(json.dumps(arguments))
            assert plan_token_files(live().tokenizer, **arguments, ref=live().ref) == plan
            assert len(asked.digest("news")) == 64
    else:
        validate(body, PromoteRequest)


def text_stream(data: bytes) -> None:
    """A text has the same ids cut anywhere as whole."""
    pieces, form = _cut(data)
    parts, code = _stream(EncodeCodec(StreamingEncoder(live().tokenizer)), pieces, form)
    try:
        ids = slow_tokenizer().encode(data[1:].decode())
    except UnicodeDecodeError:
        assert code == "invalid_utf8"
        return
    assert not code
    if form == FRAMES:
        assert b"".join(parts) == np.array(ids, "<u4").tobytes()
    else:
        assert [id_ for part in parts for id_ in json.loads(part)["tokens"]] == ids


def id_stream(data: bytes) -> None:
    """Ids cut anywhere give the same text as whole, or the same refusal."""
    pieces, form = _cut(data)
    kind = data[0] >> 6 if data else 0
    makers = (
        lambda: IdLines(live().ref.digest),
        lambda: IdLines(live().ref.digest),
        lambda: RawIds(IdsForm(OCTETS, "u16")),
        lambda: RawIds(IdsForm(OCTETS, "u32")),
    )
    cut, code = _stream(DecodeCodec(live(), makers[kind]()), pieces, form)
    whole, code_of_whole = _stream(DecodeCodec(live(), makers[kind]()), [data[1:]], form)
    assert code == code_of_whole != "internal_error"
    if not code:
        assert _text_of(cut, form) == _text_of(whole, form)
    if kind > 1 and not code:
        ids = np.frombuffer(data[1:], "<u2" if kind == 2 else "<u4")
        assert _text_of(cut, form) == live().tokenizer.decode(ids.tolist())


def _text_of(parts: list[bytes], form: str) -> str:
    if form == FRAMES:
        return b"".join(parts).decode()
    return "".join(json.loads(part)["text"] for part in parts)


def _cut(data: bytes) -> tuple[list[bytes], str]:
    """The pieces of the rest, cut as the first byte says, and the form of the response."""
    size = (data[0] & 31) + 1 if data else 1
    pieces = [data[at : at + size] for at in range(1, len(data), size)]
    return pieces or [b""], FRAMES if data and data[0] & 32 else NDJSON


def _stream(codec: StreamCodec, pieces: list[bytes], form: str) -> tuple[list[bytes], str]:
    """The parts of the response, and the code of the error at its end, if any."""
    waiting, sent = list(pieces), []

    async def receive() -> Any:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        sent.append(message)

    stream = DuplexStream(
        codec,
        headers=live().headers,
        digest=live().ref.digest,
        form=form,
        queue=_here(),
        budget=ByteBudget(1 << 30),
        metrics=_METRICS,
        problem_of=problem_of,
        idle_seconds=60,
    )
    asyncio.run(stream({"type": "http", "method": "", "path": "", "headers": []}, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    if sent[0]["status"] != 200:
        return [], json.loads(body)["code"]
    records = _frames(body) if form == FRAMES else _lines(body)
    *parts, (is_done, last) = records
    assert [end for end, _ in parts if end is not None] == []
    assert is_done is not None
    return [part for _, part in parts], "" if is_done else json.loads(last)["error"]["code"]


def _lines(body: bytes) -> list[tuple[bool | None, bytes]]:
    """Each record, and whether it is the end (True), an error (False) or a part (None)."""
    kinds = {"done": True, "error": False}
    lines = body.splitlines()
    return [(kinds.get(next(iter(json.loads(line)))), line) for line in lines]


def _frames(body: bytes) -> list[tuple[bool | None, bytes]]:
    found, at = [], 0
    while at < len(body):
        kind, size = struct.unpack_from("<II", body, at)
        at += 8 + size
        assert at <= len(body)
        found.append((None if kind == DATA_FRAME else kind == END_FRAME, body[at - size : at]))
    return found


def _here() -> WorkQueue:
    """Runs at once what the service would run on a thread."""

    class Here(WorkQueue):
        async def run_admitted(self, departure: Any, work: Any, *arguments: Any) -> Any:
            return work(*arguments)

    return Here(None)  # type: ignore[arg-type]
