"""What the event loop does itself: where the work of every route runs, and how large it is."""

import asyncio
import contextlib
import itertools
import json
import random

import pytest
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel

from tests.tokenizer_service.access.test_auth import routes
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_core import TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_service.handlers.respond import PLANNED, PlannedRoutes
from tokenizer_service.handlers.stored import STORED
from tokenizer_service.http.problem import Problem

MOST_BYTES = 16 << 10
LETTERS = "".join(random.Random(7).choices("qxzjkvw", k=8000))
CHATML = "{% for message in messages %}{{ message.role + ':' + message.content }}{% endfor %}"
TEMPLATES = {"default": CHATML, "long": "{{ '" + 20_000 * "x" + "' }}" + CHATML}

ON_A_THREAD = routes(
    GET="""
        /tokenizers/active /tokenizers/{name} /vocab/{token_id} /tokenizer_info /props /corpora
        /train /train/{job_id} /jobs /jobs/{job_id} /token-files /token-files/{token_files_id}
    """,
    POST="/merges",
)
"""Routes whose JSON a thread makes."""

IN_PIECES = routes(
    POST="/encode_stream /decode_stream",
    GET="""
        /tokenizers/{name}/{version:path}/{file} /token-files/{token_files_id}/{file}
        /train/{job_id}/events /jobs/{job_id}/events
    """,
)
"""Routes that send pieces, of a file or as they come."""

OF_ONE_THING = routes(
    GET="/health /models/{model:path} /corpora/{corpus_id}",
    PUT="/models/{model:path} /tokenizers/active /corpora/{corpus_id}",
    DELETE="""
        /models/{model:path} /tokenizers/{name}/{version} /corpora/{corpus_id} /train/{job_id}
        /jobs/{job_id} /token-files/{token_files_id}
    """,
    POST="/rollback /tokenizers/{name} /corpora/{corpus_id}/encode /train",
)
"""Routes whose response tells of one name, corpus or job."""


@pytest.mark.row(39)
def test_every_route_is_listed_with_where_its_work_runs(shared_client):
    found = {
        (method, context.path)
        for context in iter_route_contexts(shared_client.app.routes)
        for method in context.methods or ()
        if not context.path.startswith("/v1/")
    }
    planned = {("POST", route.path) for route in PLANNED.values()}
    planned.add(("POST", "/models/{model:path}:countTokens"))  # by `respond` as well
    stored = {("GET", route.path) for route in STORED.values()}
    groups = [planned, stored, ON_A_THREAD, IN_PIECES, OF_ONE_THING]
    assert set().union(*groups) == found, "a route nobody listed, or one that is gone"
    assert sum(map(len, groups)) == len(found)


def is_on_loop():
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


@pytest.fixture
def rendered(monkeypatch):
    """What plans and models render: whether on the event loop, and how many bytes."""
    found = []

    def noting(make, size):
        def make_and_note(*arguments, **options):
            made = make(*arguments, **options)
            if made is not None:
                found.append((is_on_loop(), size(made)))
            return made

        return make_and_note

    def size_of(response):
        return sum(map(len, response.chunks))

    for path, route in PLANNED.items():

        def planner(request, make=route.planner):
            plan = make(request)
            run, run_body = (noting(each, size_of) for each in (plan.run, plan.run_body))
            return plan._replace(run=run, run_body=run_body)

        monkeypatch.setitem(PLANNED, path, route._replace(planner=planner))
    dump_json = noting(BaseModel.model_dump_json, len)
    monkeypatch.setattr(BaseModel, "model_dump_json", dump_json)
    return found


CONVERSATIONS = {
    "/chat/encode": ({}, {"return": ["ids", "text", "spans"]}),
    "/chat/completions/render": ({}, {"return_token_offsets": True}),
    "/messages/render": ({"max_tokens": 1},),
    "/responses/render": ({},),
    "/chat/completions/input_tokens": ({},),
    "/apply-template": ({},),
    "/messages/count_tokens": ({"max_tokens": 1},),
    "/responses/input_tokens": ({},),
    "/tokenize": ({}, {"return_token_strs": True}),
    "/extend": ({"tokens": []},),
}
"""Routes that take a conversation, and what they take besides the messages."""


def bodies(path, id_):
    """The bodies with the largest responses that may run on the loop, and some that may not."""
    for n_bytes in (80, 210, 850, 1450, 1650, 1850, 7900):
        text, ids = LETTERS[:n_bytes], [id_] * (n_bytes // 2)
        yield from {
            "/encode": (
                {"text": text},
                {"text": text, "return": ["ids", "pieces", "offsets"]},
                {"text": [text[: n_bytes // 8]] * 8},
                {"text": [text[: n_bytes // 9]] * 8, "add_special_tokens": True},
                {"text": ["a"] * (n_bytes // 4)},
            ),
            "/decode": ({"tokens": ids}, {"tokens": [ids[: n_bytes // 32]] * 8}, {"ids": ids}),
            "/detokenize": ({"tokens": ids},),
            "/tokenize": (
                {"prompt": text},
                {"prompt": [text[: n_bytes // 9]] * 8, "return_token_strs": True},
                {"content": text, "with_pieces": True},
                {"inputs": text},
                {"inputs": [text[: n_bytes // 9]] * 8},
                {"text": text},
            ),
            "/count": ({"text": ["a"] * (n_bytes // 4)}, {"text": text}),
            "/truncate": ({"text": text, "max_tokens": n_bytes},),
            "/chunk": ({"text": text, "max_tokens": 9, "overlap_tokens": 8},),
            "/verify": ({"text": text}, {"tokens": ids}),
            "/align": ({"text": text, "other": "active"},),
            "/completions/render": (
                {"prompt": text},
                {"prompt": [text[: n_bytes // 9]] * 8},
                {"prompt": ["a"] * (n_bytes // 4)},
            ),
            "/extend": ({"tokens": ids[:9], "mask": [1] * len(ids[:9]), "text": text},),
        }.get(path, ())


def conversations(path):
    """As `bodies`, of those that a template renders."""
    key = "input" if path.startswith("/responses") else "messages"
    for template, more in itertools.product(TEMPLATES, CONVERSATIONS.get(path, ())):
        for n_bytes in (1, 800, 1700):
            messages = [{"role": "user", "content": LETTERS[:n_bytes]}]
            yield {key: messages, "chat_template": template, **more}


def serve_at_once(client, path, body):
    """Serve a request in one step, as the protocol does on the loop, if that is possible."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "state": {}}
    scope |= {"root_path": "", "query_string": b""}
    serve = PlannedRoutes(None, client.app).server_of(scope)
    with contextlib.suppress(Problem):
        client.portal.call(serve, json.dumps(body).encode())


@pytest.mark.row(39)
def test_no_plan_renders_more_than_16_kib_on_the_loop(
    shared_client, shared_store, small_spec, rendered
):
    """Of a small tokenizer, and of one whose every byte is an id of seven digits, with as many of
    the post-processor around a text as an import may have."""
    assert small_spec.vocab[0] == b"\0", "six bytes as JSON"
    vocab = {1_000_000 + byte: bytes([byte]) for byte in range(256)}
    spec = TokenizerSpec.from_merges(vocab, [], prefix_ids=(1_000_065,) * 64)
    shared_store.publish(spec.with_chat(ChatTemplates(TEMPLATES)), name="seven")
    seen = set()
    for path in sorted({route.path for route in PLANNED.values()}):
        of_seven = itertools.chain(bodies(path, 1_000_255), conversations(path))
        cases = [{**body, "tokenizer": "seven"} for body in of_seven]
        for body in itertools.chain(bodies(path, 0), cases):
            rendered.clear()
            serve_at_once(shared_client, path, body)
            response = shared_client.post(path, json=body)
            assert response.status_code in (200, 422), (path, response.text[:300])
            on_the_loop = [size for on_loop, size in rendered if on_loop]
            assert max(on_the_loop, default=0) <= MOST_BYTES, (path, str(body)[:300])
            seen |= {path} if on_the_loop else set()
    assert set(CONVERSATIONS) | {"/encode", "/decode", "/truncate", "/verify"} <= seen


LISTS_AND_DESCRIPTIONS = [
    *sorted(route for route in ON_A_THREAD if "_id}" not in route[1]),
    ("GET", "/vocab/{token_id}"),
    *(("GET", path) for path in ("/info", "/models", "/tokenizers")),
]
"""Those of `ON_A_THREAD` that need no job and no token files, and stored ones made for requests."""


@pytest.mark.row(39)
@pytest.mark.parametrize(("method", "path"), LISTS_AND_DESCRIPTIONS)
def test_a_thread_makes_what_lists_and_describes(shared_client, rendered, method, path):
    path = path.format(name="starter", token_id=1)
    body = {"json": {"tokens": [300]}} if method == "POST" else {}
    headers = {"X-API-Key": ADMIN_KEY}
    response = shared_client.request(method, path, headers=headers, **body)
    assert response.status_code == 200, response.text
    assert [on_loop for on_loop, _ in rendered] == [False]
