"""Every example request in `/docs` works, and every JSON body has one."""

from starlette.testclient import TestClient

from tests.tokenizer_service.chats import with_templates
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_service.http.request_examples import REQUEST_EXAMPLES
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings

JSON_BODIES = [
    (method, path, body["examples"])
    for path, operations in create_app(Settings()).openapi()["paths"].items()
    for method, operation in operations.items()
    if (body := operation.get("requestBody", {}).get("content", {}).get("application/json"))
]


def test_each_example_is_answered(
    settings, store, small_spec, tmp_path, monkeypatch, rendering_here
):
    store.publish(with_templates(small_spec), name="starter")

    async def do_nothing(runner):
        pass

    monkeypatch.setattr(JobRunner, "start", do_nothing)
    (tmp_path / "news.txt").write_text("some news")
    its = settings.model_copy(update={"corpus_roots": (tmp_path,)})
    sent = []
    with TestClient(create_app(its), headers={"X-API-Key": ADMIN_KEY}) as client:
        client.put("/corpora/stories", content=b"a story")
        for method, path, examples in JSON_BODIES:
            assert examples
            for name, example in examples.items():
                assert example["summary"]
                where = path.replace("{corpus_id}", "stories").replace("{model}:", "starter:")
                answer = client.request(method, where, json=example["value"])
                assert answer.status_code in (200, 202), (path, name, answer.text)
                sent.append(example)
    for examples in REQUEST_EXAMPLES.values():
        assert all(example in sent for example in examples.values())
