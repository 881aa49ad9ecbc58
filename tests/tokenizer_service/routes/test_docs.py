"""The page of the API loads all its files from this server."""

from __future__ import annotations

import re

from starlette.testclient import TestClient


def test_the_page_asks_no_other_server(client: TestClient) -> None:
    prefix = "/v1"
    page = client.get(f"{prefix}/docs")
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", "")
    files = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
    assert len(files) == 3
    for file in files:
        answer = client.get(f"{prefix}/{file}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        kind = "text/css" if file.endswith(".css") else "text/javascript"
        assert answer.headers["content-type"].startswith(kind)
    assert "SwaggerUIBundle" in client.get(f"{prefix}/docs/swagger-ui-bundle.js").text
    assert client.get(f"{prefix}/openapi.json").json()["openapi"].startswith("3.1")


def test_no_other_file_is_given(client: TestClient) -> None:
    for file in ("redoc.standalone.js", "..%2fcore.py"):
        answer = client.get(f"/docs/{file}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_operation_ids_are_the_names_of_the_endpoints(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(set(ids)) == len(ids)
    assert {"encode", "decode_stream", "show_job", "remove_corpus"} <= set(ids)
    assert [id_ for id_ in ids if not re.fullmatch("[a-z_]{1,30}", id_)] == []
