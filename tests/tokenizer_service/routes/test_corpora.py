"""/corpora: an upload is complete or absent, also after faults of client, text or disk."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tokenizer_service.jobs import corpora
from tokenizer_service.settings import Settings

from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_client.schemas.jobs import FILE_FORMATS
from tokenizer_core.documents import FORMATS

KEY = {"X-API-Key": ADMIN_KEY}
TEXT = "low lower lowest, 中文 café\n".encode() * 100
WINDOW = 1024 * 1024


@pytest.fixture
def admin(client: TestClient) -> TestClient:
    client.headers.update(KEY)
    return client


@pytest.fixture
def folder(settings: Settings) -> Path:
    return settings.artifacts_dir / "corpora"


def texts(folder: Path) -> list[bytes]:
    """The files in the folder, whether a record names them or not."""
    return [path.read_bytes() for path in sorted((folder / "files").glob("*"))]


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code, body
    return body


@pytest.mark.parametrize("kind", [None, "text/plain; charset=utf-8", "application/octet-stream"])
def test_an_upload_is_there_and_can_be_replaced(
    admin: TestClient, folder: Path, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = admin.put("/v1/corpora/news", content=TEXT, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/corpora/news"
    corpus = answer.json()
    assert corpus["id"] == "news"
    assert (corpus["bytes"], corpus["sha256"]) == (len(TEXT), hashlib.sha256(TEXT).hexdigest())
    assert set(corpus) == {"id", "bytes", "format", "field", "sha256", "uploaded_at"}
    assert admin.get("/corpora/news").json() == corpus
    assert admin.head("/corpora/news").status_code == 200
    listed = admin.get("/corpora").json()
    assert (listed["corpora"], listed["bytes"]) == ([corpus], len(TEXT))
    assert texts(folder) == [TEXT]

    again = admin.put("/corpora/news", content=b"other")
    assert (again.status_code, again.json()["bytes"]) == (200, 5)
    assert admin.get("/corpora/news").json() == again.json()
    assert texts(folder) == [b"other"]


@pytest.mark.parametrize("size", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_every_size_comes_whole_in_pieces_without_a_length(
    admin: TestClient, folder: Path, size: int
) -> None:
    text = (TEXT * (size // len(TEXT) + 1))[:size].decode(errors="ignore").encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(text), 70_001):  # cuts characters, divides no window
            yield text[start : start + 70_001]

    corpus = admin.put("/corpora/a.b-c_1", content=pieces()).json()
    assert corpus["sha256"] == hashlib.sha256(text).hexdigest()
    assert texts(folder) == [text]


def test_if_none_match_keeps_what_is_there(admin: TestClient, folder: Path) -> None:
    only_new = {"If-None-Match": "*"}
    assert admin.put("/corpora/news", content=TEXT, headers=only_new).status_code == 201
    problem(admin.put("/corpora/news", content=b"x", headers=only_new), 412, "corpus_exists")
    assert texts(folder) == [TEXT]


@pytest.mark.parametrize("tag", ['"wrong"', "*"])
def test_nothing_changes_under_a_tag_that_is_not_checked(
    admin: TestClient, folder: Path, tag: str
) -> None:
    guarded = {"If-Match": tag}
    admin.put("/corpora/news", content=TEXT)
    problem(admin.put("/corpora/news", content=b"x", headers=guarded), 412, "no_entity_tag")
    problem(admin.delete("/corpora/news", headers=guarded), 412, "no_entity_tag")
    assert texts(folder) == [TEXT]


@pytest.mark.parametrize("address", ["news", "news.txt.gz", "news.jsonl?format=text"])
def test_text_has_no_field(admin: TestClient, folder: Path, address: str) -> None:
    joined = "&" if "?" in address else "?"
    refused = admin.put(f"/corpora/{address}{joined}field=story", content=TEXT)
    assert problem(refused, 422, "corpus_field")["errors"][0]["pointer"] == "/field"
    assert not folder.exists()


def test_a_part_of_a_file_does_not_replace_it(admin: TestClient, folder: Path) -> None:
    """As `curl -C 5 -T FILE` sends it, to continue an upload."""
    admin.put("/corpora/news", content=TEXT)
    rest = {"Content-Range": f"bytes 5-{len(TEXT) - 1}/{len(TEXT)}"}
    problem(admin.put("/corpora/news", content=TEXT[5:], headers=rest), 400, "part_of_a_file")
    assert texts(folder) == [TEXT]


@pytest.mark.parametrize("name", ["News", ".x", "x" * 65, "a%00", "%2e%2e", "a b", "-a"])
def test_an_id_is_a_plain_word(admin: TestClient, folder: Path, name: str) -> None:
    assert admin.put(f"/corpora/{name}", content=TEXT).status_code in (404, 422)
    assert not folder.exists()
    assert admin.put("/corpora/../secret", content=TEXT).status_code in (404, 405)


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"Content-Type": "application/json"}, b"{}", "corpus_format"),
        ({"Content-Type": "multipart/form-data"}, b"x", "text_required"),
        ({"Content-Type": "text/plain; charset=latin-1"}, b"x", "charset_unsupported"),
        ({"Content-Encoding": "gzip"}, b"x", "content_encoding_unsupported"),
        ({}, b"\x1f\x8b\x08\x00rest", "corpus_format"),
        ({}, b"\x28\xb5\x2f\xfdrest", "corpus_format"),
    ],
)
def test_only_files_that_say_what_they_are_are_taken(
    admin: TestClient, folder: Path, headers: dict[str, str], body: bytes, code: str
) -> None:
    found = problem(admin.put("/corpora/news", content=body, headers=headers), 415, code)
    assert "curl" in found["detail"] or code != "text_required"
    assert not folder.exists() or texts(folder) == []


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b"caf\xe9 au lait", 3),
        (b"a" * (WINDOW - 1) + "é".encode() + b"\xff", WINDOW + 1),
        (b"a" * (2 * WINDOW) + b"\xe4\xb8", 2 * WINDOW),
        (b"\xed\xa0\x80", 0),
    ],
)
def test_what_is_not_utf8_is_named_by_its_byte_and_not_kept(
    admin: TestClient, folder: Path, text: bytes, offset: int
) -> None:
    admin.put("/corpora/news", content=TEXT)
    found = problem(admin.put("/corpora/news", content=text), 400, "invalid_utf8")
    assert found["byte_offset"] == offset
    assert texts(folder) == [TEXT]


def test_the_quota_holds_for_all_corpora_together(
    make_client: Callable[..., TestClient], folder: Path
) -> None:
    with make_client(corpora_max_bytes=3 * WINDOW) as client:
        client.headers.update(KEY)
        client.put("/corpora/a", content=b"a" * WINDOW)
        too_much = b"b" * (2 * WINDOW + 1)
        found = problem(client.put("/corpora/b", content=too_much), 413, "corpora_quota")
        assert (found["limit"], found["actual"]) == (3 * WINDOW, 3 * WINDOW + 1)
        problem(client.put("/corpora/b", content=iter([too_much])), 413, "corpora_quota")
        assert texts(folder) == [b"a" * WINDOW]
        assert client.put("/corpora/b", content=too_much[:-1]).status_code == 201
        assert client.get("/corpora").json()["bytes"] == 3 * WINDOW
        # The upload to be replaced stays until the new one is complete: it counts as well.
        problem(client.put("/corpora/a", content=b"x"), 413, "corpora_quota")
        assert client.delete("/corpora/b").status_code == 204
        assert client.put("/corpora/a", content=b"x").status_code == 200


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(errno.ENOSPC, 507, "disk_full"), (errno.EIO, 503, "storage_failed")],
)
@pytest.mark.parametrize("where", ["write", "fsync", "record"])
def test_a_disk_that_fails_leaves_what_was_there(
    admin: TestClient,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    number: int,
    status: int,
    code: str,
) -> None:
    admin.put("/corpora/news", content=TEXT)

    def fail(*_: object) -> int:
        raise OSError(number, "the disk fails")

    if where == "write":
        failing = type("Failing", (io.FileIO,), {"write": fail})
        monkeypatch.setattr(corpora.io, "FileIO", failing)
    elif where == "fsync":
        monkeypatch.setattr(corpora.os, "fsync", fail)
    else:
        monkeypatch.setattr(corpora, "replace_synced", fail)
    problem(admin.put("/corpora/news", content=b"other"), status, code)
    monkeypatch.undo()
    assert texts(folder) == [TEXT]
    assert admin.get("/corpora/news").json()["bytes"] == len(TEXT)
    assert admin.post("/encode", json={"text": "a"}).status_code == 200


def test_removing(admin: TestClient, folder: Path) -> None:
    admin.put("/corpora/news", content=TEXT)
    assert admin.delete("/corpora/news").status_code == 204
    problem(admin.delete("/corpora/news"), 404, "corpus_not_found")
    problem(admin.get("/corpora/news"), 404, "corpus_not_found")
    assert admin.get("/corpora").json()["corpora"] == []
    assert texts(folder) == []


def test_before_the_first_upload_there_is_nothing(admin: TestClient, folder: Path) -> None:
    assert admin.get("/corpora").json()["corpora"] == []
    problem(admin.delete("/corpora/news"), 404, "corpus_not_found")


LINES = b'{"text": "low lower"}\n{"text": "lowest"}\n'
PACKED = gzip.compress(LINES, mtime=0)


@pytest.mark.parametrize(
    ("path", "body", "format_name", "field"),
    [
        ("news", TEXT, "txt", None),
        ("news.txt", b"x", "txt", None),
        ("news.jsonl", LINES, "jsonl", None),
        ("news.jsonl.gz?field=story", PACKED, "jsonl.gz", "story"),
        ("news?format=jsonl.gz", PACKED, "jsonl.gz", None),
        ("news?format=text", LINES, "txt", None),
        ("news.jsonl?format=txt", LINES, "txt", None),
        ("news.parquet", b"PAR1...", "parquet", None),
        ("news.txt.zst", b"\x28\xb5\x2f\xfd...", "txt.zst", None),
        ("news.jsonl", b"", "jsonl", None),
        ("news.jsonl.gz", b"", "jsonl.gz", None),
        ("prose", b"{} and more", "txt", None),
    ],
)
def test_a_corpus_keeps_its_format(
    admin: TestClient, folder: Path, path: str, body: bytes, format_name: str, field: str | None
) -> None:
    answer = admin.put(f"/corpora/{path}", content=body)
    assert answer.status_code == 201, answer.text
    corpus = answer.json()
    assert (corpus["format"], corpus["field"]) == (format_name, field)
    assert (corpus["bytes"], corpus["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert admin.get(f"/corpora/{corpus['id']}").json() == corpus
    (file,) = (folder / "files").iterdir()
    assert file.name.endswith(f".{format_name}")
    assert file.read_bytes() == body


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("news", PACKED, "is packed with gzip, and neither"),
        ("news.txt", PACKED, "is packed with gzip, and neither"),
        ("news.jsonl", PACKED, "is packed with gzip, and neither"),
        ("news?format=txt", PACKED, "is packed with gzip, and neither"),
        ("news", b"PAR1" + bytes(9), "is a Parquet file, and neither"),
        ("news", LINES, "is JSON lines, and neither"),
        ("news.txt", LINES * 9_000, "is JSON lines, and neither"),
        ("news.jsonl.gz", LINES, "is not packed with gzip, but"),
        ("news.txt.zst", PACKED, "is not packed with Zstandard, but"),
        ("news.parquet", LINES, "is not a Parquet file, but"),
    ],
    ids=map(str, range(10)),
)
def test_a_body_that_is_not_what_it_is_called_is_refused(
    admin: TestClient, folder: Path, path: str, body: bytes, words: str
) -> None:
    refused = problem(admin.put(f"/corpora/{path}", content=body), 415, "corpus_format")
    assert f"The body {words} the id" in refused["detail"]
    assert "?format=" in refused["detail"]
    assert texts(folder) == []
    assert admin.get("/corpora").json()["corpora"] == []


def test_a_query_that_nobody_knows_is_refused(admin: TestClient) -> None:
    problem(admin.put("/corpora/news?formt=jsonl", content=TEXT), 422, "invalid_request")
    problem(admin.put("/corpora/news?format=csv", content=TEXT), 422, "invalid_request")
    problem(admin.put("/corpora/news?field=", content=TEXT), 422, "invalid_request")


def test_a_record_of_an_earlier_release_is_text(admin: TestClient, folder: Path) -> None:
    admin.put("/corpora/news", content=TEXT)
    record = folder / "news.json"
    fields = json.loads(record.read_bytes())
    del fields["format"], fields["field"]
    record.write_text(json.dumps(fields))
    assert admin.get("/corpora/news").json()["format"] == "txt"


def test_the_client_knows_the_formats_of_the_library() -> None:
    assert sorted(FILE_FORMATS) == sorted(FORMATS)
