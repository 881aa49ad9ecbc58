"""Headers and log lines that every response has, for any route and any outcome."""

import gc
import weakref

from tests.tokenizer_service.conftest import ADMIN_KEY


def test_errors_after_a_tokenizer_was_chosen_name_it(client, starter):
    rows = [
        ("/encode", {"text": "a b c d", "max_tokens": 1}, {}, 413),
        ("/encode", {"text": "a", "disallowed_special": ["no such token"]}, {}, 422),
        ("/encode", {"text": "a"}, {"If-Match": '"another"'}, 412),
        ("/decode", {"tokens": [1 << 19]}, {}, 422),
        ("/chunk", {"text": "𐍈", "max_tokens": 1}, {}, 422),
    ]
    for path, body, headers, status in rows:
        for name in (None, str(starter)):
            answer = client.post(path, json={**body, "tokenizer": name}, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.headers["Tokenizer-Version"] == str(starter)
            assert answer.headers["Tokenizer-Digest"] == starter.digest
    for body, status in (({"text": 1}, 422), ({"text": "a", "tokenizer": "unknown"}, 404)):
        answer = client.post("/encode", json=body)
        assert answer.status_code == status
        assert not {"tokenizer-version", "tokenizer-digest"} & set(answer.headers)


def test_errors_hold_no_tokenizer_that_has_retired(own_client, store, other_spec):
    client = own_client
    live = client.app.services.live
    other = store.publish(other_spec, name="other")
    retired = weakref.ref(live.require_active())
    gc.collect()
    gc.disable()  # else it would hide that errors and their frames form a reference cycle
    try:
        for n_ids in (1, 5000):  # the second request is processed on a thread
            answer = client.post("/decode", json={"tokens": [99_999] * n_ids})
            assert answer.json()["code"] == "unknown_token_id"
        asked = {"tokenizer": str(other)}
        promoted = client.put("/tokenizers/active", json=asked, headers={"X-API-Key": ADMIN_KEY})
        assert promoted.status_code == 200
        assert retired() is None
    finally:
        gc.enable()
