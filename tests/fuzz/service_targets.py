"""Targets that read requests: each takes any bytes, see `targets`."""

import io
import ipaddress
import json
import re
from urllib.parse import urlsplit

import numpy as np
from starlette.requests import Request

from tests.fuzz.file_targets import taken
from tokenizer_client.schemas.text import CountRequest, VerifyRequest
from tokenizer_client.schemas.token_files import EncodeCorpusRequest
from tokenizer_client.schemas.tokens import DecodeRequest
from tokenizer_core import strict_json as strict_files
from tokenizer_core.engines import choose_engine
from tokenizer_core.errors import FormatError
from tokenizer_service.access.auth import AccessKeys, _holds
from tokenizer_service.access.errors import AccessError
from tokenizer_service.egress import CorpusUrl, ListedHost
from tokenizer_service.http.bodies import (
    content_type_of,
    declared_length,
    read_model,
    require_acceptable,
    require_json,
    require_text,
    validate,
)
from tokenizer_service.http.headers import accepts, header_of
from tokenizer_service.http.id_formats import (
    NPY,
    OCTETS,
    IdsForm,
    choose_ids_form,
    ids_form_of,
    parse_ids_body,
    render_ids_form,
    wants_bytes,
)
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem, request_id_of
from tokenizer_service.http.protocol import check_framing, check_size
from tokenizer_service.http.responses import requested_span
from tokenizer_service.ingress import LOOPBACK, AllowedHosts
from tokenizer_service.jobs.train_request import CheckedTrainRequest

FORMS = [
    IdsForm(NPY, "u32"),
    *(IdsForm(OCTETS, dtype, batch) for dtype in ("u16", "u32") for batch in (False, True)),
]
_ONLY_IN_WINDOWS = {"invalid_request", "number_too_long"}
_MOST_BRACKETS = 500
"""The stack limits the nesting of what a reader accepts, and the limit differs between readers."""


def request_json(data):
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


def _value_or_code(data, **options):
    try:
        return repr(parse_body_json(data, **options)), ""
    except (Problem, AccessError) as error:
        return "", error.code


def ids_body(data):
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


MODELS = [CheckedTrainRequest, CountRequest, DecodeRequest, EncodeCorpusRequest, VerifyRequest]


def request_body(data):
    """Both readers of JSON lead to the same request; the first byte chooses the model."""
    model = MODELS[data[0] % len(MODELS)] if data else MODELS[0]
    wanted = read_model(model, data[1:], choose_engine())
    with taken():
        assert repr(wanted) == repr(validate(parse_body_json(data[1:]), model))


DIGEST = "0123456789abcdef" * 4


def request_headers(data):
    """Headers, as lines of `name: value`, that routes read: a response or a Problem."""
    request = _request_of(data)
    accept, kind = header_of(request, b"accept"), header_of(request, b"content-type")
    looks = [
        lambda: require_json(request),
        lambda: require_text(request, ""),
        lambda: require_acceptable(request, "application/json"),
        lambda: choose_ids_form(accept),
        lambda: wants_bytes(accept),
        lambda: check_size(b"/", request.scope["headers"], len(data)),
    ]
    for look in looks:
        _answer_or_problem(look)
    host = _answer_or_problem(lambda: check_framing(request.scope["headers"], "1.1"))
    if host is not None and AllowedHosts(LOOPBACK).allows(host):
        name = (urlsplit(f"//{host.decode()}").hostname or "").removesuffix(".")
        if not re.fullmatch(r"(.*\.)?localhost", name):
            address = ipaddress.ip_address(name)
            assert (getattr(address, "ipv4_mapped", None) or address).is_loopback
    form = _answer_or_problem(lambda: ids_form_of(kind))
    assert form is None or ids_form_of(form.media_type) == form
    accepts(accept, "application/json", by_name=True)
    content_type_of(request)
    assert (declared_length(request) or 0) >= 0
    assert re.fullmatch(r"[!-~]+", request_id_of(request.scope))
    assert not _holds(request, AccessKeys.of(["a key that no input has"]).admin)
    span = _answer_or_problem(lambda: requested_span(request, len(data), f'"{DIGEST}"'))
    assert span is None or 0 <= span[0] < span[1] <= len(data) or span == (0, len(data))


def corpus_url(data):
    """A line of the operator's list, then a URL: the standard library reads every accepted URL, and
    reads the same after it was written."""
    entry, _, url = data.decode("latin-1").partition("\n")
    listed = ListedHost.parse(entry)
    if listed.network is None:
        for inner in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"):
            assert not listed.allows(ipaddress.ip_address(inner))
    taken = CorpusUrl.parse(url, [listed])
    again = CorpusUrl.parse(f"{taken.scheme}://{taken.origin}{taken.target}", [listed])
    assert again == taken
    parts = urlsplit(url)
    assert (parts.scheme, parts.username, parts.fragment) == (taken.scheme, None, "")
    host = parts.hostname or ""
    assert ListedHost.parse(f"[{host}]" if ":" in host else host).host == taken.host
    assert (parts.port or {"http": 80, "https": 443}[taken.scheme]) == taken.port


def _answer_or_problem(look):
    try:
        return look()
    except Problem:
        return None


def _request_of(data):
    lines = [line.partition(b":") for line in data.split(b"\n")]
    headers = [(name.strip().lower(), value.strip()) for name, colon, value in lines if colon]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers})
