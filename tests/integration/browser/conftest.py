"""A real Chromium with a real server; without either, the tests skip by name."""

import shutil
from dataclasses import dataclass, field

import httpx
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import ADMIN, serve
from tests.tokenizer_service.chats import SPEC, with_templates
from tests.tokenizer_service.conftest import other_spec
from tokenizer_core.registry import ArtifactStore

playwright = pytest.importorskip("playwright.sync_api")

__all__ = ["other_spec"]

WAIT_MILLISECONDS = 60_000  # a busy machine is no fault of the page
playwright.expect.set_options(timeout=WAIT_MILLISECONDS)

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    """One browser for the module, not for the session: it runs an event loop in this thread, and
    tests of other modules start their own."""
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on the PATH")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=path)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory, other_spec):
    """The service with the starter tokenizer, `bytes`, which has no merges, and `chat`, which has
    chat templates."""
    artifacts = tmp_path_factory.mktemp("site") / "artifacts"
    shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", artifacts / "tokenizers")
    ArtifactStore(artifacts).publish(other_spec, name="bytes")
    ArtifactStore(artifacts).publish(with_templates(SPEC), name="chat")
    with serve(artifacts, job_nice="0") as running:  # other tests run beside the jobs
        yield running


@dataclass
class Service:
    """The same service, for requests without the page."""

    url: str
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def ask(self, method, path, **options):
        answer = self.client.request(method, self.url + path, headers=ADMIN, **options)
        assert answer.is_success, answer.text
        return answer.json()

    def encode(self, text, tokenizer="starter"):
        return self.ask("POST", "/encode", json={"text": text, "tokenizer": tokenizer})["tokens"]

    def promote(self, tokenizer):
        self.ask("PUT", "/tokenizers/active", json={"tokenizer": tokenizer})


@pytest.fixture
def service(site):
    """Before each test the starter becomes active, and reading needs no key."""
    asked = Service(site.url)
    asked.promote("starter")
    yield asked
    asked.client.close()


@pytest.fixture
def open_page(browser, service):
    """Open the page in a new context; `with_problems`: responses of 4xx are part of the test.

    At the end of the test: no error in any console, and no request to another origin.
    """
    contexts, errors, foreign = [], [], []

    def open_one(fragment="", *, url=service.url, with_problems=False, **options):
        context = browser.new_context(**options)
        context.set_default_timeout(WAIT_MILLISECONDS)
        contexts.append(context)
        page = context.new_page()

        def hear(message):
            is_problem = message.text.startswith("Failed to load resource: the server responded")
            if message.type in ("error", "warning") and not (with_problems and is_problem):
                errors.append(message.text)

        page.on("console", hear)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith(url + "/") or foreign.append(request.url),
        )
        page.goto(f"{url}/{fragment}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert errors == []
    assert foreign == []
