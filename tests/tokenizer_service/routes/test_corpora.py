"""/corpora: an upload is complete or absent, also after faults of client, text or disk."""

import errno
import gzip
import hashlib
import io

import pytest

from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_client.schemas.jobs import FILE_FORMATS
from tokenizer_core.documents import FORMATS
from tokenizer_service.jobs import corpora

TEXT = "low lower lowest, 中文 café\n".encode() * 100
WINDOW = 1024 * 1024
LINES = b'{"text": "low lower"}\n{"text": "lowest"}\n'
PACKED = gzip.compress(LINES, mtime=0)


@pytest.fixture
def admin(client):
    """The app of the module; each test leaves it without corpora."""
    client.headers["X-API-Key"] = ADMIN_KEY
    yield client
    for corpus in client.get("/corpora").json()["corpora"]:
        client.delete(f"/corpora/{corpus['id']}")


@pytest.fixture
def folder(shared_store):
    return shared_store.root / "corpora"


def texts(folder):
    return [path.read_bytes() for path in sorted((folder / "files").glob("*"))]


def test_an_upload_is_listed_replaced_and_removed(admin, folder):
    only_new = {"If-None-Match": "*", "Content-Type": "text/plain; charset=utf-8"}
    answer = admin.put("/v1/corpora/news", content=TEXT, headers=only_new)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/corpora/news"
    corpus = answer.json()
    assert corpus["id"] == "news"
    assert (corpus["bytes"], corpus["sha256"]) == (len(TEXT), hashlib.sha256(TEXT).hexdigest())
    assert set(corpus) == {
        *("id", "bytes", "format", "field", "sha256", "uploaded_at", "not_utf8_at")
    }
    assert admin.get("/corpora/news").json() == corpus
    assert admin.head("/corpora/news").status_code == 200
    listed = admin.get("/corpora").json()
    assert (listed["corpora"], listed["bytes"]) == ([corpus], len(TEXT))
    problem(admin.put("/corpora/news", content=b"x", headers=only_new), 412, "corpus_exists")
    for tag in ('"wrong"', "*"):
        guarded = {"If-Match": tag}
        problem(admin.put("/corpora/news", content=b"x", headers=guarded), 412, "no_entity_tag")
        problem(admin.delete("/corpora/news", headers=guarded), 412, "no_entity_tag")
    # As `curl -C 5 -T FILE` sends it, to continue an upload.
    rest = {"Content-Range": f"bytes 5-{len(TEXT) - 1}/{len(TEXT)}"}
    problem(admin.put("/corpora/news", content=TEXT[5:], headers=rest), 400, "part_of_a_file")
    assert texts(folder) == [TEXT]
    again = admin.put("/corpora/news", content=b"other")
    assert (again.status_code, again.json()["bytes"]) == (200, 5)
    assert admin.get("/corpora/news").json() == again.json()
    assert texts(folder) == [b"other"]
    assert admin.delete("/corpora/news").status_code == 204
    problem(admin.delete("/corpora/news"), 404, "corpus_not_found")
    problem(admin.get("/corpora/news"), 404, "corpus_not_found")
    assert admin.get("/corpora").json()["corpora"] == []
    assert texts(folder) == []


def test_every_size_comes_whole_in_pieces_without_a_length(admin, folder):
    for size in (0, WINDOW - 1, WINDOW, WINDOW + 1):
        text = (TEXT * (size // len(TEXT) + 1))[:size].decode(errors="ignore").encode()
        # A piece cuts characters and divides no window.
        pieces = [text[start : start + 70_001] for start in range(0, len(text), 70_001)]
        corpus = admin.put("/corpora/a.b-c_1", content=iter(pieces)).json()
        assert corpus["sha256"] == hashlib.sha256(text).hexdigest()
        assert texts(folder) == [text]


def test_wrong_uploads_are_refused(admin, folder):
    for name in ("News", ".x", "x" * 65, "a%00", "%2e%2e", "a b", "-a"):
        assert admin.put(f"/corpora/{name}", content=TEXT).status_code in (404, 422)
    assert admin.put("/corpora/../secret", content=TEXT).status_code in (404, 405)
    for query in ("formt=jsonl", "format=csv", "field="):
        problem(admin.put(f"/corpora/news?{query}", content=TEXT), 422, "invalid_request")
    for address in ("news?", "news.txt.gz?", "news.jsonl?format=text&"):
        refused = admin.put(f"/corpora/{address}field=story", content=TEXT)
        assert pointer(problem(refused, 422, "corpus_field")) == "/field"
    for headers, body, code in (
        ({"Content-Type": "application/json"}, b"{}", "corpus_format"),
        ({"Content-Type": "multipart/form-data"}, b"x", "text_required"),
        ({"Content-Type": "text/plain; charset=latin-1"}, b"x", "charset_unsupported"),
        ({"Content-Encoding": "gzip"}, b"x", "content_encoding_unsupported"),
        ({}, b"\x28\xb5\x2f\xfdrest", "corpus_format"),
    ):
        problem(admin.put("/corpora/news", content=body, headers=headers), 415, code)
    for path, body, words in (
        ("news.jsonl", PACKED, "is packed with gzip"),
        ("news.txt", LINES * 9_000, "is JSON lines"),
        ("news.jsonl.xz", b"\xfd7zXZ\x00", "is packed with xz, which is not read: unpack it"),
        ("news.jsonl.gz", LINES, "is not packed with gzip"),
        ("news.parquet", LINES, "is not a Parquet file"),
    ):
        found = problem(admin.put(f"/corpora/{path}", content=body), 415, "corpus_format")
        assert words in found["detail"], path
    assert admin.put("/corpora/news.warc?format=txt", content=b"WARC/1.0\r\n").status_code == 201
    assert admin.delete("/corpora/news.warc").status_code == 204
    assert texts(folder) == []


def test_text_that_is_not_utf_8_is_for_jobs_that_skip_bad_documents(admin, folder):
    for text, offset in (
        (b"caf\xe9 au lait", 3),
        (b"a" * (WINDOW - 1) + "é".encode() + b"\xff", WINDOW + 1),
        (b"a" * (2 * WINDOW) + b"\xe4\xb8", 2 * WINDOW),
    ):
        assert admin.put("/corpora/latin", content=text).json()["not_utf8_at"] == offset
        assert texts(folder) == [text]
        read = {"/train": {"corpus_ids": ["latin"]}, "/corpora/latin/encode": {}}
        for path, body in read.items():
            found = problem(admin.post(path, json=body), 422, "invalid_corpus")
            assert (
                f"The corpus latin is not UTF-8: its text is wrong at byte {offset}. "
                in (found["detail"])
            )


def test_the_quota_holds_for_all_corpora_together(make_client, settings):
    with make_client(corpora_max_bytes=3 * WINDOW) as client:
        client.headers["X-API-Key"] = ADMIN_KEY
        client.put("/corpora/a", content=b"a" * WINDOW)
        too_much = b"b" * (2 * WINDOW + 1)
        found = problem(client.put("/corpora/b", content=too_much), 413, "corpora_quota")
        assert (found["limit"], found["actual"]) == (3 * WINDOW, 3 * WINDOW + 1)
        problem(client.put("/corpora/b", content=iter([too_much])), 413, "corpora_quota")
        assert texts(settings.artifacts_dir / "corpora") == [b"a" * WINDOW]
        assert client.put("/corpora/b", content=too_much[:-1]).status_code == 201
        assert client.get("/corpora").json()["bytes"] == 3 * WINDOW
        # The upload to be replaced stays until the new one is complete: it counts as well.
        problem(client.put("/corpora/a", content=b"x"), 413, "corpora_quota")
        assert client.delete("/corpora/b").status_code == 204
        assert client.put("/corpora/a", content=b"x").status_code == 200


def test_a_disk_that_fails_leaves_the_earlier_upload(admin, folder, monkeypatch):
    error = OSError(errno.ENOSPC, "the disk fails")

    def fail(*_):
        raise error

    admin.put("/corpora/news", content=TEXT)
    for target, name, failing in (
        (corpora.io, "FileIO", type("Failing", (io.FileIO,), {"write": fail})),
        (corpora.os, "fsync", fail),
        (corpora, "replace_synced", fail),
    ):
        for number, status, code in (
            (errno.ENOSPC, 507, "disk_full"),
            (errno.EIO, 503, "storage_failed"),
        ):
            error.errno = number
            with monkeypatch.context() as patch:
                patch.setattr(target, name, failing)
                problem(admin.put("/corpora/news", content=b"other"), status, code)
            assert texts(folder) == [TEXT]
            assert admin.get("/corpora/news").json()["bytes"] == len(TEXT)


def test_a_corpus_keeps_its_format(admin, folder):
    assert sorted(FILE_FORMATS) == sorted(FORMATS)  # the client's, and the library's
    for path, body, format_name, field in (
        ("news.txt", b"x", "txt", None),
        ("news.jsonl.gz?field=story", PACKED, "jsonl.gz", "story"),
        ("news.jsonl?format=text", LINES, "txt", None),
        ("news.jsonl.gz", b"", "jsonl.gz", None),
        ("prose", b"{} and more", "txt", None),
    ):
        corpus = admin.put(f"/corpora/{path}", content=body).json()
        assert (corpus["format"], corpus["field"]) == (format_name, field), path
        assert (corpus["bytes"], corpus["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert admin.get(f"/corpora/{corpus['id']}").json() == corpus
        (file,) = (folder / "files").iterdir()
        assert file.name.endswith(f".{format_name}")
        assert file.read_bytes() == body
        assert admin.delete(f"/corpora/{corpus['id']}").status_code == 204
