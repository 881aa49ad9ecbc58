"""The files of a version over a real socket."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.server_process import Server
from tokenizer_service.serving.artifact_files import MEDIA_TYPES


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.pkl"])
def test_a_file_is_served_with_its_headers_and_tag(server: Server, file: str) -> None:
    active = httpx.get(f"{server.url}/tokenizers/active").json()
    url = f"{server.url}/tokenizers/{active['name']}/{active['version']}/{file}"
    answer = httpx.get(url)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].partition(";")[0] == MEDIA_TYPES[file]
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{file}"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "private, no-cache"
    assert answer.headers["Tokenizer-Digest"] == active["digest"]
    head = httpx.head(url)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag"):
        assert head.headers[name] == answer.headers[name]
    assert int(head.headers["Content-Length"]) == len(answer.content)
    etag = answer.headers["ETag"]
    for known in (etag, f"W/{etag}", f'"x", {etag}'):
        unchanged = httpx.get(url, headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == etag
        assert unchanged.headers["Tokenizer-Digest"] == active["digest"]
    assert httpx.get(url, headers={"If-None-Match": '"x"'}).status_code == 200
    assert httpx.get(f"{server.url}/v1{url.removeprefix(server.url)}").content == answer.content


@pytest.mark.row(28)
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("starter/%2e%2e/tokenizer.json", 422, "invalid_tokenizer_name"),
        ("starter/%2e%2e%2f%2e%2e%2fx/manifest.json", 422, "invalid_tokenizer_name"),
        ("starter/newest/tokenizer.json", 422, "invalid_tokenizer_name"),
        ("starter/20261121T041500Z-1a2b3c4d/tokenizer.json", 404, "tokenizer_not_found"),
        ("starter/20261121T041500Z-1a2b3c4d/%2e%2e", 404, "file_not_found"),
    ],
)
def test_a_path_that_is_no_file_of_a_version_is_refused(
    server: Server, path: str, status: int, code: str
) -> None:
    # A raw target: clients resolve `..` themselves.
    request = httpx.Request("GET", server.url)
    request.url = request.url.copy_with(raw_path=f"/tokenizers/{path}".encode())
    with httpx.Client() as client:
        answer = client.send(request)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
