"""What the event loop does itself: where the work of every route runs, and how large it is."""

import random
import threading

import pytest
from fastapi.routing import iter_route_contexts

from tokenizer_service.handlers.respond import PLANNED
from tokenizer_service.handlers.stored import STORED

MOST_BYTES = 16 << 10
LOOP = "asyncio"
LETTERS = "".join(random.Random(7).choices("qxzjkvw", k=4000))

ON_A_THREAD = {
    ("GET", "/tokenizers/active"),
    ("GET", "/tokenizers/{name}"),
    ("GET", "/vocab/{token_id}"),
    ("POST", "/merges"),
    ("GET", "/tokenizer_info"),
    ("GET", "/props"),
    ("GET", "/corpora"),
    ("GET", "/train"),
    ("GET", "/train/{job_id}"),
    ("GET", "/jobs"),
    ("GET", "/jobs/{job_id}"),
    ("GET", "/token-files"),
    ("GET", "/token-files/{token_files_id}"),
}
"""Routes whose JSON a thread makes."""

IN_PIECES = {
    ("POST", "/encode_stream"),
    ("POST", "/decode_stream"),
    ("GET", "/tokenizers/{name}/{version:path}/{file}"),
    ("GET", "/token-files/{token_files_id}/{file}"),
    ("GET", "/train/{job_id}/events"),
    ("GET", "/jobs/{job_id}/events"),
}
"""Routes that send pieces, of a file or as they come."""

OF_ONE_THING = {
    ("GET", "/health"),
    ("GET", "/models/{model:path}"),
    ("PUT", "/models/{model:path}"),
    ("DELETE", "/models/{model:path}"),
    ("PUT", "/tokenizers/active"),
    ("POST", "/rollback"),
    ("POST", "/tokenizers/{name}"),
    ("DELETE", "/tokenizers/{name}/{version}"),
    ("PUT", "/corpora/{corpus_id}"),
    ("GET", "/corpora/{corpus_id}"),
    ("DELETE", "/corpora/{corpus_id}"),
    ("POST", "/corpora/{corpus_id}/encode"),
    ("POST", "/train"),
    ("DELETE", "/train/{job_id}"),
    ("DELETE", "/jobs/{job_id}"),
    ("DELETE", "/token-files/{token_files_id}"),
}
"""Routes whose response tells of one name, corpus or job."""


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


@pytest.fixture
def on_the_loop(monkeypatch):
    """Sizes of what plans render on the event loop."""
    sizes = []
    for path, route in PLANNED.items():

        def planner(request, make=route.planner):
            planned = make(request)

            def run(*arguments):
                rendered = planned.run(*arguments)
                if threading.current_thread().name.startswith(LOOP):
                    sizes.append(sum(map(len, rendered.chunks)))
                return rendered

            return planned._replace(run=run)

        monkeypatch.setitem(PLANNED, path, route._replace(planner=planner))
    return sizes


def bodies(path, special):
    """The bodies with the largest responses that may run on the loop, and some that may not."""
    for n_bytes in (60, 110, 440, 1000, 1900, 3900):
        text, ids = LETTERS[:n_bytes], [special] * (n_bytes // 4)
        yield from {
            "/encode": (
                {"text": text},
                {"text": text, "return": ["ids", "pieces", "offsets"]},
                {"text": [text[: n_bytes // 8]] * 8},
                {"text": ["a"] * (n_bytes // 4)},
            ),
            "/decode": ({"tokens": ids}, {"tokens": [ids[: n_bytes // 32]] * 8}, {"ids": ids}),
            "/detokenize": ({"tokens": ids},),
            "/tokenize": (
                {"prompt": text},
                {"content": text, "with_pieces": True},
                {"inputs": text},
                {"text": text},
            ),
            "/count": ({"text": ["a"] * (n_bytes // 4)},),
            "/truncate": ({"text": text, "max_tokens": n_bytes},),
            "/chunk": ({"text": text, "max_tokens": 9, "overlap_tokens": 8},),
            "/verify": ({"text": text}, {"tokens": ids}),
            "/align": ({"text": text, "other": "active"},),
            "/completions/render": ({"prompt": text}, {"prompt": ["a"] * (n_bytes // 4)}),
        }.get(path, ())


def test_no_plan_renders_more_than_16_kib_on_the_loop(shared_client, on_the_loop, small_spec):
    no_utf8 = next(id_ for id_, token in small_spec.vocab.items() if token == b"\xff")
    special = next(iter(small_spec.special_tokens.values()))
    seen = set()
    for path in sorted({route.path for route in PLANNED.values()}):
        for id_ in (no_utf8, special):
            for body in bodies(path, id_):
                n_before = len(on_the_loop)
                response = shared_client.post(path, json=body)
                assert response.status_code in (200, 422), (path, response.text[:300])
                if len(on_the_loop) > n_before:
                    seen.add(path)
    assert max(on_the_loop) <= MOST_BYTES
    assert {"/encode", "/decode", "/tokenize", "/truncate", "/verify"} <= seen
