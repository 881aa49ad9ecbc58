"""Fuzz targets: everything that reads bytes from a stranger. A target takes any bytes.

A target ends normally, or with one of the errors that its reader promises. Any other exception is a
finding, and so is a broken promise about accepted input. Targets do not import the fuzzer, so that
the ordinary suite also runs their seeds and the earlier findings (`found/TARGET/`). Code generates
the seeds, so that they follow the formats.
"""

import json
import pickle
from functools import cache
from pathlib import Path

import numpy as np

from tests.fuzz import file_targets, service_targets
from tests.fuzz.file_targets import BYTE_ENTRIES, BYTE_LINES, MERGES, SPEC, SPECIAL, VOCAB
from tests.fuzz.service_targets import DIGEST, FORMS
from tokenizer_client.schemas.tokens import BatchTooLargeError
from tokenizer_core.errors import CorpusError, FormatError, InvalidSpecError, TokenizerCoreError
from tokenizer_core.formats.tiktoken_file import render_tiktoken
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_core.registry.manifest import render_version
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_service.access.errors import AccessError
from tokenizer_service.egress import CorpusUrlError
from tokenizer_service.http.id_formats import render_ids_form
from tokenizer_service.http.problem import Problem, problem_response
from tokenizer_service.jobs.errors import JobsError
from tokenizer_service.responses.problem_table import problem_of

_FILE = (FormatError, InvalidSpecError)
_REFUSED = (Problem, AccessError, BatchTooLargeError, JobsError)

TARGETS = {
    file_targets.plain_pickle: (FormatError,),
    file_targets.tiktoken: _FILE,
    file_targets.tokenizer_json: _FILE,
    file_targets.manifest: _FILE,
    file_targets.corpus_address: (CorpusError,),
    service_targets.request_json: (),
    service_targets.request_body: _REFUSED,
    service_targets.ids_body: _REFUSED,
    service_targets.request_headers: (),
    service_targets.corpus_url: (CorpusUrlError,),
}
"""Each target, and the errors that it may end with."""

NAMES = {target.__name__: target for target in TARGETS}


def try_target(name, data):
    """Give `data` to the target; return whether it was accepted. Raises what is a finding."""
    target = NAMES[name]
    try:
        target(data)
    except TARGETS[target] as error:
        _check_told(error)
        return False
    return True


def _check_told(error):
    """A refusal can be reported: in a response that blames the client, or in a line of a log."""
    str(error).encode()
    if isinstance(error, _REFUSED):
        problem = problem_of(error)
        assert problem is not None
        answer = problem_response(problem, {"type": "http", "headers": []})
        assert 400 <= answer.status_code < 500
        json.loads(bytes(answer.body))
    elif isinstance(error, TokenizerCoreError):
        assert str(error).isprintable()


FOUND = Path(__file__).parent / "found"
RICH = TokenizerSpec.from_merges(
    VOCAB,
    MERGES,
    [
        AddedToken(SPECIAL, 260, lstrip=True, rstrip=True),
        AddedToken("<think>", 261, special=False, single_word=True, normalized=True),
    ],
    pattern="llama3",
    normalizer="nfc",
    prefix_ids=(260,),
)
TEXT = f"ab c, {SPECIAL}\U0001f600"
REQUESTS = [
    {"documents": ["a b", ""], "vocab_size": 300, "name": "x"},
    {"text": [TEXT, "a"], "limit": 2},
    {"tokens": [[97, 256], [240]], "errors": "replace"},
    {"layout": "llmc", "tokens_per_shard": 7, "allowed_special": [SPECIAL]},
    {"text": TEXT, "allowed_special": []},
]
HEADS = [
    f"""Host: a.example
Content-Type: application/json; charset=utf-8
Content-Length: 12
Accept: application/octet-stream; dtype=u16;q=0.5, */*
If-Match: "{DIGEST}", W/"x"
If-None-Match: W/"{DIGEST}\"""",
    f"""Content-Type: application/octet-stream; dtype=u32; layout=batch
X-Request-Id: a-1
Range: bytes=3-
If-Range: "{DIGEST}"
Transfer-Encoding: chunked
Content-Encoding: identity
Authorization: Bearer a""",
    "Host: a.LOCALHOST.:80",
    "Host: [::ffff:127.0.0.1]:80",
]


def _short(table):
    """Without white space, and with a NUL for the entries of the 256 bytes."""
    packed = json.dumps(json.loads(table), ensure_ascii=False, separators=(",", ":")).encode()
    return packed.replace(BYTE_ENTRIES, b"\0")


@cache
def seeds():
    """Target -> inputs that it accepts."""
    plain = TokenizerSpec.from_merges(VOCAB, MERGES)
    files = render_version(SPEC, name="small", version="20260101T000000Z-00000000")
    values = (VOCAB, MERGES, {}, {7: b"x" * 300}, {70_000: b"y"})
    ids, lengths = np.array([1, 258, 2], np.uint32), np.array([1, 2], np.uint64)
    return {
        "plain_pickle": [pickle.dumps(value, 3 + i % 3) for i, value in enumerate(values)],
        "tiktoken": [render_tiktoken(plain).replace(BYTE_LINES, b"\0"), b"\0YWI= 256\r\n"],
        "tokenizer_json": [_short(render_tokenizer_json(spec)) for spec in (SPEC, RICH)],
        "manifest": [files["manifest.json"]],
        "request_json": [
            b'{"text": "a\\ud83d\\ude00\\n", "ids": [1, -2.5e3, null, true], "b": {"c": []}}',
            b' [[1], ["ab", "\xc3\xa9"], {}] ',
            b"[" * 12 + b"]" * 12,
        ],
        "ids_body": [
            bytes([number]) + b"".join(render_ids_form(ids, lengths, form))
            for number, form in enumerate(FORMS)
        ],
        "request_body": [
            bytes([number]) + json.dumps(fields).encode() for number, fields in enumerate(REQUESTS)
        ],
        "request_headers": [lines.encode() for lines in HEADS],
        "corpus_address": [
            b"https://host/data\nHTTPS://Host:443/data/a%20b.txt?c=d",
            b"http://u:p@[::1]:8080\nhttp://u:p@[::1]:8080/x/y#z",
            b"s3://bucket/news/\ns3://bucket/news/a@b?.txt",
            b"memory://\nmemory:///x.txt",
        ],
        "corpus_url": [
            b"data.example.org\nhttps://data.example.org/a%20b?c=d",
            b"[::1]:9000=::/0\nhttp://[0:0::1]:9000",
            b"store:80=10.0.0.0/8\nhttp://STORE?x",
        ],
    }
