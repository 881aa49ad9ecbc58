"""Which thread serves a request, as only short work runs on the event loop; and the memory that a
response reserves as JSON, where a character may have six bytes and a token a description."""

import dataclasses
import threading

import pytest

from tokenizer_service.access.limits import (
    INLINE_BODY_BYTES,
    INLINE_DECODED_BYTES,
    INLINE_DETAILED_BYTES,
    INLINE_ITEMS,
)
from tokenizer_service.handlers.plan import SMALL_BODY_BYTES
from tokenizer_service.handlers.respond import PLANNED

LONG = "a " * INLINE_DETAILED_BYTES
LOOP, SMALL, LARGE = "asyncio", "small-request", "large-request"
"""How the names of the threads begin; the test client runs the event loop in the first."""


AROUND = {"tokenizer": "around"}


@pytest.fixture(scope="module")
def around(shared_client, shared_store, small_spec):
    """A tokenizer with as many ids around a text as an import may have, in memory."""
    spec = dataclasses.replace(small_spec, prefix_ids=(0,) * 32, suffix_ids=(1,) * 32)
    shared_store.publish(spec, name="around")
    assert shared_client.post("/encode", json={"text": "", **AROUND}).status_code == 200


@pytest.mark.row(39)
@pytest.mark.parametrize(
    ("path", "body", "thread"),
    [
        ("/encode", {"text": ["a"] * 8, "add_special_tokens": True, **AROUND}, LOOP),
        ("/tokenize", {"inputs": "a", **AROUND}, LOOP),
        ("/tokenize", {"inputs": ["a"] * 8, **AROUND}, SMALL),
        ("/tokenize", {"inputs": ["a"] * 200, **AROUND}, LARGE),
        ("/encode", {"text": LONG, "return": ["ids"]}, LOOP),
        ("/encode", {"text": ["a"] * INLINE_ITEMS}, LOOP),
        ("/encode", {"text": "a", "return": ["ids", "pieces", "offsets"]}, LOOP),
        ("/encode", {"text": ["a"] * (INLINE_ITEMS + 1)}, SMALL),
        ("/encode", {"text": LONG, "return": ["pieces"]}, SMALL),
        ("/encode", {"text": "a" * INLINE_BODY_BYTES}, SMALL),
        ("/encode", {"text": "a " * 10_000, "return": ["pieces"]}, LARGE),
        ("/encode", {"text": "a" * SMALL_BODY_BYTES}, LARGE),
        ("/encode", {"text": ["a"] * INLINE_BODY_BYTES}, LARGE),
        ("/decode", {"tokens": [1] * INLINE_DECODED_BYTES}, LOOP),
        ("/decode", {"tokens": [1] * (INLINE_DECODED_BYTES + 1)}, SMALL),
        ("/decode", {"tokens": [[1]] * (INLINE_ITEMS + 1)}, SMALL),
        ("/count", {"text": ["a"] * (INLINE_ITEMS + 1)}, SMALL),
        ("/tokenize", {"prompt": LONG, "return_token_strs": True}, SMALL),
        ("/tokenize", {"prompt": LONG}, LOOP),
        ("/tokenize", {"content": LONG, "with_pieces": True}, SMALL),
        ("/tokenize", {"inputs": LONG}, SMALL),
        ("/tokenize", {"text": LONG}, SMALL),
        ("/completions/render", {"prompt": LONG, "return_token_offsets": True}, SMALL),
        ("/chunk", {"text": "a", "max_tokens": 1}, SMALL),
        ("/chunk", {"text": LONG * 40, "max_tokens": 9, "overlap_tokens": 1}, SMALL),
    ],
)
def test_where_work_runs(shared_client, around, monkeypatch, path, body, thread):
    route, threads = PLANNED[path], []

    def watched(request):
        plan = route.planner(request)

        def noting(run):
            def noted(*arguments):
                rendered = run(*arguments)
                threads.extend([threading.current_thread().name] if rendered else [])
                return rendered

            return noted

        return plan._replace(run=noting(plan.run), run_body=noting(plan.run_body))

    monkeypatch.setitem(PLANNED, path, route._replace(planner=watched))
    assert shared_client.post(path, json=body).status_code == 200
    (used,) = threads
    assert used.startswith(thread), used
    assert shared_client.app.services.budget.used == 0


@pytest.mark.row(39)
def test_a_large_body_waits_again_if_its_work_is_larger(shared_client, monkeypatch):
    queue, waited = shared_client.app.services.queue, []

    def run_for(*arguments, seconds, run_for=queue.run_for, **options):
        waited.append(seconds)
        return run_for(*arguments, seconds=seconds, **options)

    monkeypatch.setattr(queue, "run_for", run_for)
    assert shared_client.post("/encode", json={"text": "a" * 80_000}).status_code == 200
    assert len(waited) == 1
    assert shared_client.post("/encode", json={"text": ["a"] * 20_000}).status_code == 200
    assert waited[2] > 5 * waited[1]


def test_a_response_reserves_its_size_as_json(shared_client, around, monkeypatch, small_spec):
    reserved = []
    rendering = ("responses.decode", "responses.json_values")
    for module in (*rendering, "handlers.decode", "handlers.encode", "handlers.text"):
        name = f"tokenizer_service.{module}.reserve_memory"
        monkeypatch.setattr(name, reserved.append)

    def check(path, **body):
        reserved.clear()
        response = shared_client.post(path, json=body)
        assert 0.95 < sum(reserved) / len(response.content) < 1.05
        return response.json()

    (no_utf8,) = (number for number, token in small_spec.vocab.items() if token == b"\xff")
    assert check("/decode", tokens=[no_utf8] * 40_000)["text"] == "\ufffd" * 40_000
    for text_ in ("\x01" * 40_000, '"\\' * 20_000, "abc " * 10_000):
        check("/chunk", text=text_, max_tokens=2000, overlap_tokens=1000)
    for text_ in ("\x01" * 40_000, '"\\' * 20_000):
        ids = shared_client.post("/encode", json={"text": text_}).json()["tokens"]
        assert check("/decode", tokens=ids)["text"] == text_
    special = next(iter(small_spec.special_tokens.values()))
    for ids, n_texts in (([97] * 40_000, 1), ([97] * 40_000 + [special], 2)):
        reserved.clear()
        response = shared_client.post("/detokenize", json={"tokens": ids})
        assert response.json()["text"] == "a" * 40_000
        # `prompt` and `content` are one text in memory; `text` has no special tokens.
        assert sum(reserved) == pytest.approx(n_texts * 40_000, rel=0.05)
    for path, body in (
        ("/tokenize", {"inputs": ["a"] * 1000, **AROUND}),
        ("/tokenize", {"prompt": ["a"] * 1000, "return_token_strs": True, **AROUND}),
        ("/tokenize", {"content": [special] * 4000, "with_pieces": True}),
        ("/tokenize", {"text": "a b " * 4000}),
        ("/encode", {"text": ["a b "] * 1000, "return": ["pieces", "offsets"]}),
        ("/encode", {"text": ["a"] * 1000, "add_special_tokens": True, **AROUND}),
        ("/completions/render", {"prompt": "a b " * 9000, "return_token_offsets": True}),
    ):
        reserved.clear()
        response = shared_client.post(path, json=body)
        # The ids of the body's text are in its own share, those around it are counted as of seven
        # digits.
        assert 0.5 < sum(reserved) / len(response.content) < 8, (path, body)
