"""Requests to an app in process, and what every response promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from starlette.testclient import TestClient

JSON = {"Content-Type": "application/json"}

Post = Callable[..., Any]
"""`post(client, path, **body)` with the client of the test."""
Refused = Callable[..., tuple[str, str]]
"""`refusal(client, path, **body)` with the client of the test."""


def post(client: TestClient, path: str, /, **body: Any) -> Any:
    """The document of a 200."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def problem(response: httpx.Response, status: int, code: str = "") -> dict[str, Any]:
    """The document of an error."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < 3000
    document: dict[str, Any] = response.json()
    assert code in ("", document["code"]), document
    return document


def pointer(document: dict[str, Any]) -> str:
    """The first place that the document of an error names."""
    place: str = document["errors"][0]["pointer"]
    return place


def refusal(client: TestClient, path: str, /, **body: Any) -> tuple[str, str]:
    """The code of a 422, and the first place that it names, if any."""
    document = problem(client.post(path, content=json.dumps(body), headers=JSON), 422)
    return document["code"], pointer(document) if "errors" in document else ""


def metrics(client: TestClient, *names: str) -> list[float]:
    """The value of each metric of the tokenizer."""
    text = client.get("/metrics").text
    return [float(text.split(f"\ntokenizer_{name} ")[1].split()[0]) for name in names]
