"""The page and its files over HTTP; tests/integration/browser tests its behaviour."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

import pytest
from starlette.testclient import TestClient

from tests.conftest import REPOSITORY
from tokenizer_core.patterns import PATTERNS
from tokenizer_service.routes.playground import assets

FOLDER = REPOSITORY / "app" / "tokenizer_service" / "playground"
FILES = sorted(path.name for path in FOLDER.iterdir())
PAGE = (FOLDER / "index.html").read_text(encoding="utf-8")


def source(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["/", "/v1/", "/playground/page.css", "/v1/playground/main.js"])
def test_nothing_of_another_origin_or_inline_may_run(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"


def test_a_file_that_the_browser_has_is_not_sent_again(client: TestClient) -> None:
    kinds = {
        "html": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    for name in FILES:
        response = client.get(f"/playground/{name}")
        assert response.content == (FOLDER / name).read_bytes()
        kind = response.headers["Content-Type"].split(";")[0]
        assert kind == kinds[name.rpartition(".")[2]], name
        assert response.headers["Cache-Control"] == "no-cache"
        other_and_own = f'"x", W/{response.headers["ETag"]}'
        known = client.get(f"/playground/{name}", headers={"If-None-Match": other_and_own})
        assert (known.status_code, known.content) == (304, b"")
        policy = "Content-Security-Policy"
        assert known.headers[policy] == response.headers[policy]


def test_no_other_file_is_sent(client: TestClient) -> None:
    for name in ("nothing.js", "__init__.py", "..%2fmain.py", "%2e%2e%2fauth.py"):
        assert client.get(f"/playground/{name}").status_code == 404


def test_the_package_holds_the_page() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["tokenizer_service"]
    assert set(assets()) == set(FILES)
    for name in FILES:
        assert any(fnmatch(f"playground/{name}", pattern) for pattern in patterns), name


def test_every_script_is_preloaded() -> None:
    """Without its line in the head a module loads only after the one before it was read."""
    preloaded = set(re.findall(r'rel="modulepreload" href="playground/(\w+\.js)"', PAGE))
    assert preloaded | {"main.js"} == {name for name in FILES if name.endswith(".js")}


def test_scripts_are_short_and_make_no_markup_of_strings() -> None:
    for name in FILES:
        if name.endswith(".js"):
            text = source(name)
            assert len(text.splitlines()) <= 400
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
            )


def test_the_page_has_no_inline_style_or_script() -> None:
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", PAGE)


def test_every_split_pattern_is_offered() -> None:
    choice = re.search(r'<select id="train-pattern">(.*?)</select>', PAGE, re.DOTALL)
    assert choice is not None
    assert set(re.findall(r"<option>([^<]+)", choice[1])) == set(PATTERNS)
