"""`model` chooses the tokenizer on the routes of other servers; /models lists names and aliases."""

import json
import shutil
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from tests.tokenizer_service.chats import SPEC, say, with_templates
from tests.tokenizer_service.conftest import ADMIN_KEY, serve
from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_core.registry import ArtifactRef
from tokenizer_service.main import create_app
from tokenizer_service.serving.models import ModelNames

pytestmark = pytest.mark.usefixtures("rendering_here")

ADMIN = {"X-API-Key": ADMIN_KEY}
ALIAS = "Qwen/Qwen3-8B:free"
HELLO = say("Hello")
BORROWED = {
    "/tokenize prompt": {"prompt": "Hello"},
    "/tokenize content": {"content": "Hello"},
    "/tokenize inputs": {"inputs": "Hello"},
    "/tokenize text": {"text": "Hello"},
    "/tokenize messages": {"messages": HELLO},
    "/detokenize": {"tokens": []},
    "/decode": {"ids": []},
    "/v1/chat/completions/render": {"messages": HELLO},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/responses/input_tokens": {"input": "Hello"},
}


@pytest.fixture(scope="module")
def client(shared_store, other_spec):
    """A service whose active tokenizer is `chat`; `other` has another version that is promoted by
    nobody, and the alias."""
    shared_store.publish(with_templates(SPEC), name="chat")
    shared_store.publish(with_templates(other_spec), name="other")
    shared_store.add_alias(ALIAS, "other")
    with serve(shared_store, default="chat") as client:
        yield client


def served(client, route, **fields):
    """The name of the tokenizer that served this request."""
    response = client.post(route.split()[0], json={**BORROWED[route], **fields})
    assert response.status_code == 200, response.text
    return response.headers["Tokenizer-Version"].partition("@")[0]


@pytest.mark.row(44)
@pytest.mark.parametrize("route", BORROWED)
def test_model_chooses_by_name_alias_or_version(client, shared_store, route):
    exact = str(shared_store.resolve("other"))
    for absent in ({}, {"model": None}, {"model": ""}, {"model": "chat"}, {"model": "active"}):
        assert served(client, route, **absent) == "chat"
    for model in ("other", ALIAS, exact):
        assert served(client, route, model=model) == "other"
        assert served(client, route, model=model, tokenizer="other") == "other"
        assert served(client, route, model=model, tokenizer=exact) == "other"


def test_tokenizer_takes_an_alias_too(client, shared_store):
    text = {"text": "Hello"}
    asked = [("/encode", text), ("/v1/tokenize", {"prompt": "Hello"}), ("/vocab/1000", None)]
    asked += [("/encode_stream", "Hello"), ("/align", {**text, "other": ALIAS})]
    for path, body in asked:
        is_json = isinstance(body, dict)
        answer = client.request(
            "GET" if body is None else "POST",
            path,
            params={} if is_json else {"tokenizer": ALIAS},
            **({"json": {**body, "tokenizer": ALIAS}} if is_json else {"content": body}),
        )
        assert answer.status_code == 200, answer.text
        assert answer.headers["Tokenizer-Version"] == str(shared_store.resolve("other"))
    for name in (ALIAS + "x", "../x", "other@1"):
        problem(client.post("/encode", json={**text, "tokenizer": name}), 404)
    problem(client.post("/encode", json={**text, "tokenizer": "é"}), 422, "invalid_request")
    # Another host may publish a name that is an alias: the tokenizer comes first.
    aliases = shared_store.root / "aliases.json"
    aliases.write_text(json.dumps({**json.loads(aliases.read_text()), "chat": "other"}))
    assert shared_store.resolve_named("chat") == shared_store.resolve("chat")


def test_what_is_not_published_is_refused_with_the_way_to_publish_it(own_client, store):
    for published in (store.root / "tokenizers").iterdir():
        shutil.rmtree(published)
    ways = {
        "gpt2": "tokenizer import --preset gpt2 --name gpt2`, or POST /tokenizers/gpt2?preset",
        "starter": "tokenizer import starter --name starter`, or POST /tokenizers/starter with",
    }
    for path, body in (
        ("/encode", {"text": "a", "tokenizer": "gpt2"}),
        ("/encode", {"text": "a", "tokenizer": "starter"}),
        ("/tokenize", {"prompt": "a", "model": "gpt2"}),
    ):
        answer = own_client.post(path, json=body)
        problem(answer, 404)
        assert ways[body.get("tokenizer", "gpt2")] in answer.text


@pytest.mark.row(44)
@pytest.mark.parametrize("route", BORROWED)
def test_unknown_or_contradictory_model_is_refused(client, route):
    path, body = route.split()[0], BORROWED[route]
    for model in ("gpt-4", "Chat", ALIAS + "x", "other@20000101T000000Z-00000000", "é", "../x"):
        for named in ({}, {"tokenizer": "chat"}):
            asked = {**body, **named, "model": model}
            found = problem(client.post(path, json=asked), 404, "model_not_found")
            text = json.dumps(found, ensure_ascii=False)
            assert "TOKENIZER_MODEL=ignore" in text
            assert "tokenizer alias" in text
            # Clients of other servers expect the name; nothing else is repeated.
            assert (f"The model `{model}` does not exist" in text) == (path != "/detokenize")
    for model, tokenizer in ((ALIAS, "chat"), ("chat", "other"), ("other", "active")):
        asked = {**body, "model": model, "tokenizer": tokenizer}
        found = problem(client.post(path, json=asked), 422, "model_conflict")
        assert pointer(found) == "/model"
    assert problem(client.post(path, json={**body, "model": 5}), 422, "invalid_request")


def test_tokenizer_info_takes_a_model(client):
    for query, name in (("", "chat"), ("model=", "chat"), (f"model={ALIAS}", "other")):
        assert client.get(f"/v1/tokenizer_info?{query}").json()["tokenizer"]["name"] == name
    conflict = client.get(f"/v1/tokenizer_info?model={ALIAS}&tokenizer=chat")
    problem(conflict, 422, "model_conflict")


def test_model_is_ignored_if_the_operator_says_so(settings):
    ignoring = settings.model_copy(update={"model": "ignore"})
    with TestClient(create_app(ignoring)) as client:
        answer = client.post("/tokenize", json={"prompt": "the", "model": "gpt-4"})
        assert answer.headers["Tokenizer-Version"].startswith("starter@")


@pytest.mark.parametrize(("model", "n_looks"), [("chat", 1), (ALIAS, 2)])
def test_a_promotion_meanwhile_gives_a_request_no_other_name(model, n_looks):
    chat, other = (ArtifactRef(name, "v", "d") for name in ("chat", "other"))
    active = iter([chat] * n_looks + [other])

    class Live:
        @property
        def active(self):
            return SimpleNamespace(ref=next(active))

        def require_active(self):
            return self.active

    store = SimpleNamespace(poll_seconds=60.0, resolve_model=lambda model: chat)
    live = Live()
    assert ModelNames(store, live).get(model).ref == chat


@pytest.mark.row(37)
@pytest.mark.parametrize("file", ["vocab.pkl", "manifest.json", None])
def test_an_alias_of_a_damaged_active_tokenizer_gets_what_no_name_gets(
    make_client, store, starter, file
):
    store.promote(starter)
    store.add_alias(ALIAS, "starter")
    folder = store.root / "tokenizers" / "starter"
    if file is None:
        shutil.rmtree(folder)
    else:
        (folder / starter.version / file).write_bytes(b"")
    with make_client() as client:
        unnamed = problem(client.post("/tokenize", json={"prompt": "a"}), 503)
        for model in (ALIAS, "starter"):
            asked = client.post("/tokenize", json={"prompt": "a", "model": model})
            assert problem(asked, 503) == unnamed
        pinned = {"prompt": "a", "model": str(starter)}
        problem(client.post("/tokenize", json=pinned), 404 if file is None else 409)


@pytest.mark.row(31)
def test_an_alias_of_the_active_tokenizer_serves_without_the_pointer(make_client, store, starter):
    store.promote(starter)
    store.add_alias(ALIAS, "starter")
    asked = {"prompt": "the", "model": ALIAS}
    with make_client() as here:
        served = here.post("/tokenize", json=asked).json()
        (store.root / "active.json").write_text("garbage")
        with make_client() as restarted:
            for client in (here, restarted):
                assert client.post("/tokenize", json=asked).json() == served


def test_models_are_listed_and_shown_as_openai_does(client, shared_store):
    refs = {name: str(shared_store.resolve(name)) for name in ("chat", "other", "starter")}
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    found = [(model["id"], model["root"]) for model in listed["data"]]
    others = [(ALIAS, refs["other"]), ("other", refs["other"]), ("starter", refs["starter"])]
    assert (found[0], sorted(found[1:])) == (("chat", refs["chat"]), others)
    for model in listed["data"]:
        assert (model["object"], model["owned_by"]) == ("model", "tokenizer-service")
        assert client.get(f"/v1/models/{model['id']}").json() == model
        assert client.get(f"/v1/models/{model['root']}").json()["root"] == model["root"]
    for written in (ALIAS, "Qwen%2FQwen3-8B%3Afree"):
        assert client.get(f"/models/{written}").json()["id"] == ALIAS
    problem(client.get("/v1/models/gpt-4"), 404, "model_not_found")


def test_an_alias_follows_promotions_and_is_unique(make_client, store, other_spec):
    old = store.resolve("starter")
    store.publish(other_spec, name="other")

    def put(alias, tokenizer):
        return here.put(f"/v1/models/{alias}", json={"tokenizer": tokenizer}, headers=ADMIN)

    def version(client, model=ALIAS):
        answer = client.post("/tokenize", json={"prompt": "the", "model": model})
        return answer.headers["Tokenizer-Version"]

    with make_client() as here, make_client() as there:
        for client in (here, there):
            assert client.post("/tokenize", json={"prompt": "a", "model": ALIAS}).status_code == 404
        assert put(ALIAS, "starter").json()["root"] == str(old)
        assert put(ALIAS, "starter").status_code == 200
        assert version(here) == version(there) == str(old)
        new = store.publish(other_spec, name="starter")
        assert version(here) == version(here, "starter") == str(old)
        here.put("/tokenizers/active", json={"tokenizer": ALIAS}, headers=ADMIN)
        assert version(here) == str(new)
        assert version(here, str(old)) == str(old)
        for model, tokenizer in ((str(old), str(new)), ("active", str(old))):
            both = {"prompt": "the", "model": model, "tokenizer": tokenizer}
            problem(here.post("/tokenize", json=both), 422, "model_conflict")
        for alias, tokenizer, status, code in (
            (ALIAS, "other", 409, "alias_taken"),
            ("other", "starter", 409, "alias_taken"),
            ("new", "none", 404, "tokenizer_not_found"),
            ("a" * 201, "other", 422, "invalid_tokenizer_name"),
            ("new", "../x", 422, "invalid_request"),
        ):
            problem(put(alias, tokenizer), status, code)
        training = {"documents": ["a b"], "vocab_size": 300, "name": "qwen"}
        assert put("qwen", "starter").status_code == 200
        problem(here.post("/train", json=training, headers=ADMIN), 409, "alias_taken")
        assert here.put("/models/new", json={"tokenizer": "other"}).status_code == 401
        matching = {**ADMIN, "If-Match": '"x"'}
        assert here.delete(f"/v1/models/{ALIAS}", headers=matching).status_code == 412
        assert here.delete(f"/v1/models/{ALIAS}", headers=ADMIN).status_code == 204
        problem(here.delete(f"/v1/models/{ALIAS}", headers=ADMIN), 404, "model_not_found")
        problem(here.post("/tokenize", json={"prompt": "a", "model": ALIAS}), 404)
