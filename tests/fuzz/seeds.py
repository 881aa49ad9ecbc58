"""The fuzzer's first inputs: a small tokenizer in every format, and a few requests.

Code generates them, so that they follow the formats; `found/TARGET/` has earlier findings.
"""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from tests.fuzz.file_targets import (
    BYTE_ENTRIES,
    BYTE_LINES,
    NEXT_FILE,
)
from tests.fuzz.service_targets import DIGEST, FORMS
from tests.fuzz.small_tokenizer import MERGES, SPECIAL, VOCAB, live, small_spec
from tests.tokenizer_core.documents.corpus_writer import zstd
from tokenizer_core.formats.gpt2_files import render_gpt2_files
from tokenizer_core.formats.tiktoken_file import render_tiktoken
from tokenizer_core.formats.tokenizer_json import render_tokenizer_json
from tokenizer_core.registry.manifest import FileRecord, describe
from tokenizer_core.registry.pointer import ActivePointer
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_service.http.id_formats import render_ids_form

CORPUS_TEXT = "one<|e|>\r\n<|e|><|e|>zwei é 🙂".encode()
CORPUS_LINES = b'{"text": "one", "n": [1.5, null]}\n{"text": "\\u00e9\\ud83d\\ude00 \xc3\xa9"}\r\n'
FOUND = Path(__file__).parent / "found"


@cache
def seeds() -> dict[str, list[bytes]]:
    """Target -> inputs that it accepts."""
    return _of_files() | _of_bodies() | _of_heads()


def found(target: str) -> list[Path]:
    """Files of inputs that once caused a failure."""
    return sorted((FOUND / target).glob("*"))


def _of_files() -> dict[str, list[bytes]]:
    plain = TokenizerSpec.from_merges(VOCAB, MERGES)
    rich = TokenizerSpec.from_merges(
        VOCAB,
        MERGES,
        [AddedToken(SPECIAL, 260), AddedToken("<think>", 261, special=False)],
        pattern="llama3",
        ignore_merges=True,
        normalizer="nfc",
        prefix_ids=(260,),
    )
    flagged = TokenizerSpec.from_merges(
        VOCAB,
        MERGES,
        [
            AddedToken(SPECIAL, 260, lstrip=True, rstrip=True),
            AddedToken("<think>", 261, special=False, single_word=True, normalized=True),
        ],
        normalizer="prefix-space",
    )
    vocab_json, merges_txt = render_gpt2_files(plain)
    records = {name: FileRecord("0" * 64, 5) for name in ("vocab.pkl", "merges.pkl")}
    manifest = describe(small_spec(), name="small", version=live().ref.version, files=records)
    time = "2026-01-01T00:00:00Z"
    pointer = ActivePointer(str(live().ref), live().ref.digest, None, time, 1)
    values = (VOCAB, MERGES, {}, {7: b"x" * 300}, {70_000: b"y"})
    return {
        "plain_pickle": [pickle.dumps(value, 3 + i % 3) for i, value in enumerate(values)],
        "gpt2_files": [_short(vocab_json) + NEXT_FILE + merges_txt],
        "tiktoken": [render_tiktoken(plain).replace(BYTE_LINES, b"\0"), b"\0YWI= 256\r\n"],
        "tokenizer_json": [
            _short(render_tokenizer_json(spec)) for spec in (small_spec(), rich, flagged)
        ],
        "tekken": [_tekken("v3", 22, []), _tekken("v13", 3, ["<unk>", "<s>"])],
        "manifest": [manifest.to_json()],
        "active_pointer": [pointer.to_json()],
        "corpus_file": [
            bytes([number]) + pack(text)
            for number, (text, pack) in enumerate(
                product((CORPUS_TEXT, CORPUS_LINES), (bytes, gzip.compress, zstd.compress))
            )
        ],
    }


def _short(table: bytes) -> bytes:
    """Without white space, and with a NUL for the entries of the 256 bytes."""
    packed = json.dumps(json.loads(table), ensure_ascii=False, separators=(",", ":")).encode()
    return packed.replace(BYTE_ENTRIES, b"\0")


def _tekken(version: str, n_special: int, listed: list[str]) -> bytes:
    tokens = [base64.b64encode(left + right).decode() for left, right in MERGES]
    config = {
        "pattern": r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+",
        "default_vocab_size": n_special + 259,
        "default_num_special_tokens": n_special,
        "version": version,
    }
    table: dict[str, object] = {
        "config": config,
        "vocab": [
            {"rank": 256 + index, "token_bytes": token, "token_str": None}
            for index, token in enumerate(tokens)
        ],
    }
    if listed:
        table["special_tokens"] = [
            {"rank": rank, "token_str": content, "is_control": True}
            for rank, content in enumerate(listed)
        ]
    packed = json.dumps(table, separators=(",", ":")).encode()
    return packed.replace(b'"vocab":[', b'"vocab":[\0,')


def _of_bodies() -> dict[str, list[bytes]]:
    ids, lengths = np.array([1, 258, 2], np.uint32), np.array([1, 2], np.uint64)
    text = f"ab c, {SPECIAL}\U0001f600"
    return {
        "request_json": [
            b'{"text": "a\\ud83d\\ude00\\n", "ids": [1, -2.5e3, null, true], "b": {"c": []}}',
            b' [[1], ["ab", "\xc3\xa9"], {}] ',
            b"[" * 12 + b"]" * 12,
        ],
        "ids_body": [
            bytes([number]) + b"".join(render_ids_form(ids, lengths, form))
            for number, form in enumerate(FORMS)
        ],
        "encode_body": _json(
            {"text": text},
            {"text": [text, ""], "return": ["ids", "pieces", "offsets"], "offset_unit": "char"},
            {"text": "ab", "allowed_special": "none", "disallowed_special": [SPECIAL]},
            {"text": "ab", "add_special_tokens": True, "max_tokens": 9, "tokenizer": "small"},
        ),
        "request_body": [
            bytes([number]) + _json(fields)[0]
            for number, fields in enumerate(
                [
                    {"documents": ["a b", ""], "vocab_size": 300, "name": "x"},
                    {"text": [text, "a"], "limit": 2},
                    {"tokens": [[97, 256], [240]], "errors": "replace"},
                    {"layout": "llmc", "tokens_per_shard": 7, "allowed_special": [SPECIAL]},
                    {"text": text, "allowed_special": []},
                ]
            )
        ],
    }


def _of_heads() -> dict[str, list[bytes]]:
    head = b"POST /encode?a=b HTTP/1.1\r\nHost: a.example:80\r\n"
    return {
        "request_headers": [
            b"Host: a.example\nContent-Type: application/json; charset=utf-8\nContent-Length: 12\n"
            b'Accept: application/octet-stream; dtype=u16;q=0.5, */*\nIf-Match: "%b", W/"x"\n'
            b'If-None-Match: W/"%b"' % (DIGEST.encode(), DIGEST.encode()),
            b"Content-Type: application/octet-stream; dtype=u32; layout=batch\nX-Request-Id: a-1\n"
            b'Range: bytes=3-\nIf-Range: "%b"\n'
            % DIGEST.encode()
            + b"Transfer-Encoding: chunked\nContent-Encoding: identity\nAuthorization: Bearer a",
            b"Host: a.LOCALHOST.:80",
            b"Host: [::ffff:127.0.0.1]:80",
        ],
        "http_connection": [
            b"\x05" + head + b"Content-Length: 3\r\n\r\nabc" + b"GET / HTTP/1.0\r\n\r\n",
            b"\x03" + head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
            b"\x04GET http://a.example:80/b HTTP/1.1\r\nHost: a.example\r\n\r\n",
            b"\x09" + head + b"Expect: 100-continue\r\nConnection: close, upgrade\r\n\r\n",
        ],
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


def _json(*values: object) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]
