"""The playground, the page of the API, and their files; tests/integration/browser uses them."""

import re
import tomllib
from fnmatch import fnmatch

from tests.conftest import REPOSITORY
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_service.routes.playground import assets

FOLDER = REPOSITORY / "app" / "tokenizer_service" / "playground"
FILES = sorted(path.name for path in FOLDER.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]
PAGE = (FOLDER / "index.html").read_text(encoding="utf-8")
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def test_nothing_of_another_origin_or_inline_may_run(client):
    for path in ("/", "/v1/", "/playground/page.css", "/v1/playground/main.js"):
        response = client.get(path)
        assert response.status_code == 200
        policies = response.headers["Content-Security-Policy"]
        policy = dict(part.strip().split(" ", 1) for part in policies.split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in policies
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", PAGE)
    for name in SCRIPTS:
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(r"(inner|outer)HTML|AdjacentHTML|document\.write|\beval\(", text)


def test_every_file_of_the_page_is_sent_once_and_no_other(client):
    for name in FILES:
        response = client.get(f"/playground/{name}")
        assert response.content == (FOLDER / name).read_bytes()
        kind = response.headers["Content-Type"].split(";")[0]
        assert kind == KINDS[name.rpartition(".")[2]], name
        assert response.headers["Cache-Control"] == "no-cache"
        other_and_own = f'"x", W/{response.headers["ETag"]}'
        known = client.get(f"/playground/{name}", headers={"If-None-Match": other_and_own})
        assert (known.status_code, known.content) == (304, b"")
        assert "Content-Security-Policy" in known.headers
    for name in ("nothing.js", "__init__.py", "..%2fmain.py", "%2e%2e%2fauth.py"):
        assert client.get(f"/playground/{name}").status_code == 404
        assert client.get(f"/docs/{name}").status_code == 404


def test_the_package_holds_the_page_and_the_page_its_scripts():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["tokenizer_service"]
    assert set(assets()) == set(FILES)
    for name in FILES:
        assert any(fnmatch(f"playground/{name}", pattern) for pattern in patterns), name
    # Without its line in the head a module loads only after the one before it was read.
    preloaded = set(re.findall(r'rel="modulepreload" href="playground/(\w+\.js)"', PAGE))
    assert preloaded | {"main.js"} == set(SCRIPTS)
    choice = re.search(r'<select id="train-pattern">(.*?)</select>', PAGE, re.DOTALL)
    assert set(re.findall(r"<option>([^<]+)", choice[1])) == set(PATTERNS)


def test_the_page_of_the_api_asks_no_other_server(client):
    page = client.get("/v1/docs")
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", "")
    files = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
    assert len(files) == 3
    for file in files:
        answer = client.get(f"/v1/{file}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].startswith(KINDS[file.rpartition(".")[2]])


def test_what_changes_rarely_has_an_entity_tag(client):
    paths = ("/docs", "/docs/start.js", "/openapi.json", "/tokenizers", "/tokenizers/starter")
    for path in (*paths, "/models"):
        whole = client.get(path)
        known = client.get(path, headers={"If-None-Match": whole.headers["ETag"]})
        assert (known.status_code, known.content) == (304, b""), path
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["Content-Length"] == str(len(whole.content)), path
