"""Chat templates of a real server: limits, other requests meanwhile, and the end of the server."""

import json

import pytest

from tests.integration.server_process import serve, wait_until, wait_until_gone
from tests.tokenizer_service.chats import SPEC, TEMPLATES, chatml_ids, say
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec.chat_templates import ChatTemplates

HOSTILE = {
    "loop": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "grow": "{{ 'a' * 10**10 }}",
    "read": "{{ messages.__class__.__mro__ }}",
    # Ends, but runs in a child process.
    "centred": TEMPLATES["default"].replace("message.content }}", "message.content.center(1) }}"),
}
CHAT = {"messages": say("Hi"), "tokenizer": "chat"}
HOSTILE_SPEC = SPEC.with_chat(ChatTemplates(TEMPLATES | HOSTILE))
IDS = chatml_ids(("user", "Hi"))


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    root = tmp_path_factory.mktemp("chat") / "artifacts"
    ArtifactStore(root).publish(HOSTILE_SPEC, name="chat")
    return root


def encode(client, **changes):
    return client.post("/chat/encode", json={**CHAT, **changes})


def test_a_hostile_template_is_refused_and_the_next_is_served(artifacts):
    with serve(artifacts, chat_seconds="1", default="chat") as server, server.client() as client:
        for template, code, reason in (
            ("loop", "chat_limit_exceeded", "longer than 1 s"),
            ("grow", "chat_limit_exceeded", "256 MiB"),
            ("read", "chat_template_failed", "unsafe"),
        ):
            answer = encode(client, chat_template=template)
            assert (answer.status_code, answer.json()["code"]) == (422, code)
            assert reason in answer.json()["detail"]
            assert encode(client).json()["tokens"] == IDS


def test_endless_templates_delay_neither_other_requests_nor_the_end(artifacts):
    """More of them than there are threads; one whose client leaves ends at once."""
    with serve(artifacts, chat_seconds="3600", default="chat") as server, server.client() as client:
        with _send(server, "Hi"):
            wait_until(lambda: len(server.processes()) > 1)  # it runs in a process of its own
            pids = [process.pid for process in server.processes()][1:]
        wait_until_gone(pids)
        assert encode(client).json()["tokens"] == IDS
        waiting = [_send(server, content) for content in ("Hi", "a" * 10_000) * 4]
        server.wait_for_in_flight(len(waiting))
        texts = ["a"] * 20  # work for the thread of small requests
        assert client.post("/encode", json={"text": texts}).json()["count"] == [1] * 20
        assert client.post("/encode", json={"text": "a" * 10_000}).json()["count"] == 10_000
        assert client.get("/livez").status_code == 200
        pids = [process.pid for process in server.processes()]
        assert len(pids) > 1
        server.terminate()
        wait_until_gone(pids)
        for raw in waiting:
            raw.socket.close()


def test_endless_templates_do_not_delay_other_conversations(artifacts):
    """Each of these waits for its own result only, in this process or in a child."""
    with serve(artifacts, chat_seconds="3600", default="chat") as server, server.client() as client:
        endless = [_send(server, "Hi") for _ in range(20)]
        server.wait_for_in_flight(len(endless))
        for template in ("default", "centred") * 3:
            assert encode(client, chat_template=template).json()["tokens"] == IDS
        long = "a" * 100_000
        ids = encode(client, messages=say(long)).json()["tokens"]
        assert ids == chatml_ids(("user", long))
        server.wait_for_in_flight(len(endless))
        for raw in endless:
            raw.socket.close()


def _send(server, content):
    """A request whose template never ends."""
    target = "/chat/encode"
    raw = RawRequest(server.host, server.port, target, "Content-Type: application/json")
    body = {**CHAT, "messages": say(content), "chat_template": "loop"}
    raw.send_chunk(json.dumps(body).encode())
    raw.end()
    return raw
