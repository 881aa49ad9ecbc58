"""Ids that stay over HTTP: text, segments and messages after them, one or a batch."""

import json
from hashlib import sha256

import pytest

from tests.tokenizer_service.chats import (
    CHATML,
    END,
    END_ID,
    SPEC,
    START_ID,
    chatml_ids,
    say,
    with_templates,
)
from tests.tokenizer_service.conftest import serve
from tests.tokenizer_service.routes.exchanges import JSON, metrics, problem
from tokenizer_core import Tokenizer

pytestmark = pytest.mark.usefixtures("rendering_here")

MORE = say("more")
PROMPT = chatml_ids(("user", "Hi"), prompt=True)
GENERATED = [*b"Ho", END_ID]
ADDED = [10, *chatml_ids(("user", "more"))]


@pytest.fixture(scope="module")
def client(shared_store):
    """A service whose active tokenizer has templates; `starter` has none."""
    shared_store.publish(with_templates(SPEC), name="chat")
    with serve(shared_store, default="chat") as client:
        yield client


def held(**fields):
    """An item whose ids hold a conversation of two messages."""
    mask = [0] * len(PROMPT) + [1] * len(GENERATED)
    both = {"messages_before": say("Hi", "Ho"), "messages": MORE}
    return {"tokens": PROMPT + GENERATED, "mask": mask, **both, **fields}


def test_a_conversation_is_continued(post, client):
    before = metrics(client, "encode_tokens_total", "encode_bytes_total")
    found = post("/extend", **held())
    ids = PROMPT + GENERATED + ADDED
    assert found.pop("tokenizer")["name"] == "chat"
    assert found == {
        "tokens": ids,
        "mask": [0] * len(PROMPT) + [1] * len(GENERATED) + [0] * len(ADDED),
        "count": len(ids),
        "first_drift": None,
        "chat_template": {"name": "default", "sha256": sha256(CHATML.encode()).hexdigest()},
    }
    after = metrics(client, "encode_tokens_total", "encode_bytes_total")
    n_bytes = len(Tokenizer.from_spec(SPEC).decode_bytes(ADDED))
    assert [b - a for a, b in zip(before, after, strict=True)] == [len(ADDED), n_bytes]
    prompted = post("/extend", **held(add_generation_prompt=True))
    assert prompted["tokens"] == [*ids, START_ID, *b"assistant\n"]
    options = {"chat_template": "parts", "messages_form": "vllm"}
    first = post("/extend", tokens=[], messages=say("Hi"), **options)
    assert (first["tokens"], first["mask"]) == ([START_ID, *b"user:[Hi]", END_ID], None)


def test_a_message_of_a_user_gives_no_control_token(post):
    typed = held(messages=say(f"{END}<think>"))
    added = [10, START_ID, *b"user\n", *f"{END}<think>".encode(), END_ID, 10]
    assert post("/extend", **typed)["tokens"] == PROMPT + GENERATED + added


def test_text_and_segments_continue_ids(post):
    text = {"tokens": [*b"ab", END_ID], "text": f"c{END}"}
    found = post("/extend", **text)
    assert (found["tokens"], found["first_drift"]) == ([*b"ab", END_ID, ord("c"), END_ID], None)
    plain = [*b"ab", END_ID, *f"c{END}".encode()]
    for policy in ({"allowed_special": "none"}, {"added_tokens": "none"}):
        found = post("/extend", **text, **policy)
        assert (found["tokens"], found["first_drift"]) == (plain, 4)
    segments = [{"text": "c", "special": True}, {"text": END, "special": False}]
    found = post("/extend", tokens=text["tokens"], segments=segments)
    assert (found["tokens"], found["first_drift"]) == (plain, None)
    assert "chat_template" not in found


def test_a_batch_has_each_by_itself(post, client):
    items = [held(), {"tokens": [], "messages": MORE}, held(mask=None)]
    items[2].pop("mask")
    found = post("/extend", batch=items)
    each = [post("/extend", **item) for item in items]
    identity = found.pop("tokenizer")
    assert found == {name: [one[name] for one in each] for name in found}
    assert identity == each[0]["tokenizer"]
    texts = [{"tokens": [97], "text": "b"}, {"tokens": [], "segments": []}]
    found = post("/extend", batch=texts, allowed_special="all")
    assert (found["tokens"], found["count"]) == ([[97, 98], []], [2, 0])
    assert post("/extend", batch=[])["tokens"] == []
    mixed = client.post("/extend", json={"batch": items})
    assert mixed.headers["chat-template-digest"] == sha256(CHATML.encode()).hexdigest()


TEXT, SEGMENTS = {"tokens": [97], "text": "a"}, {"tokens": [97], "segments": []}
MESSAGES, UNKNOWN = {"tokens": [97], "messages": MORE}, held(tokens=[9999], mask=[0])
PIRATE = [{"role": "pirate", "content": ""}]
IMAGE = [{"role": "user", "content": [{"type": "image"}]}]


@pytest.mark.parametrize(
    ("fields", "code", "where"),
    [
        ({"tokens": [97, 9999], "text": "a"}, "unknown_token_id", "/tokens/1"),
        ({"tokens": [97, True], "text": "a"}, "invalid_token_id", "/tokens/1"),
        ({"batch": [held(), UNKNOWN]}, "unknown_token_id", "/batch/1/tokens/0"),
        ({"batch": [held(), held(tokens=[1, -1])]}, "invalid_token_id", "/batch/1/tokens/1"),
        (held(mask=[0]), "invalid_request", ""),
        (held(mask=[2] * len(PROMPT + GENERATED)), "invalid_request", "/mask"),
        (held(mask=[True] * len(PROMPT + GENERATED)), "invalid_token_id", "/mask/0"),
        (held(tokens=[], mask=[]), "invalid_chat", "/messages"),
        (held(messages_before=[]), "invalid_chat", "/messages"),
        (held(text="a"), "invalid_request", "/text"),
        ({"tokens": [97]}, "invalid_request", ""),
        ({**TEXT, **SEGMENTS}, "invalid_request", ""),
        ({"text": "a"}, "invalid_request", "/tokens"),
        ({"tokens": [], "text": "a", "batch": []}, "invalid_request", "/tokens"),
        ({"batch": [SEGMENTS], "allowed_special": "none"}, "invalid_request", "/batch/0/segments"),
        ({"batch": [TEXT, MESSAGES]}, "invalid_request", "/batch/1/messages"),
        ({**TEXT, "text": END, "disallowed_special": "all"}, "special_token_forbidden", "/text"),
        (held(messages=PIRATE), "chat_template_failed", "/messages/0"),
        (
            {"batch": [held(messages_before=PIRATE)]},
            "chat_template_failed",
            "/batch/0/messages_before/0",
        ),
        (held(chat_template="absent"), "chat_template_missing", "/chat_template"),
        (held(tokenizer="starter"), "chat_template_missing", "/messages"),
        (held(messages=IMAGE, messages_form="vllm"), "invalid_request", "/messages/0/content/0"),
    ],
)
def test_what_is_refused(refused, fields, code, where):
    assert refused("/extend", **fields) == (code, where)


def test_limits(client, post):
    assert post("/extend", **held(max_tokens=len(PROMPT + GENERATED + ADDED)))
    body = held(max_tokens=len(PROMPT + GENERATED + ADDED) - 1)
    found = problem(client.post("/extend", json=body), 413, "too_many_tokens")
    assert found["errors"][0]["pointer"] == "/tokens"
    nested = json.loads("[" * 70 + "]" * 70)
    body = json.dumps({"batch": [held(messages=[{"role": "user", "content": nested}])]})
    problem(client.post("/extend", content=body, headers=JSON), 422, "nested_too_deep")


def test_a_batch_has_the_time_of_one_request(client, shared_store):
    with serve(shared_store, default="chat", chat_seconds=1e-9) as client:
        batch = [{"tokens": [], "messages": MORE}]
        found = problem(client.post("/extend", json={"batch": batch}), 422, "chat_limit_exceeded")
        assert "send fewer at once" in found["detail"]
