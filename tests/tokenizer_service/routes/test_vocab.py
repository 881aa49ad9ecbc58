"""/vocab/{id} and /merges; the tests of `merge_trees` show which merges a token takes."""

from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_core import TokenizerSpec


def test_a_token_is_shown_down_to_its_bytes(shared_store, client, post):
    ranks = {bytes([i]): i for i in range(256)} | {b"\xc3\xa9": 256, b"a\xc3\xa9": 257}
    spec = TokenizerSpec.from_ranks(ranks, {"<|a|>": 300}, pattern="cl100k")
    named = str(shared_store.publish(spec, name="ranks"))

    def show(id_, **query):
        response = client.get(f"/v1/vocab/{id_}", params={"tokenizer": named, **query})
        assert response.status_code == 200, response.text
        assert response.headers["Tokenizer-Version"] == named
        answer = response.json()
        assert answer.pop("tokenizer")["digest"] == response.headers["Tokenizer-Digest"]
        return answer

    byte = {"text": None, "parts": None, "cut": False}
    a = {**byte, "id": 97, "bytes": "YQ==", "text": "a", "rank": 97}
    first = {**byte, "id": 0xC3, "bytes": "ww==", "rank": 0xC3}
    second = {**byte, "id": 0xA9, "bytes": "qQ==", "rank": 0xA9}
    accented = {"id": 256, "bytes": "w6k=", "text": "é", "rank": 256}
    tree = {**accented, "parts": [first, second], "cut": False}
    cut = {**accented, "parts": None, "cut": True}
    whole = {"id": 257, "bytes": "YcOp", "text": "aé", "rank": 257}
    token = {**whole, "special": False, "parts": [97, 256]}
    for query, parts in (({"depth": 16}, [a, tree]), ({}, [a, tree]), ({"depth": 1}, [a, cut])):
        assert show(257, **query) == {**token, "tree": {**whole, "parts": parts, "cut": False}}
    assert show(257, depth=0)["tree"] == {**whole, "parts": None, "cut": True}
    special = show(300)
    assert (special["rank"], special["parts"], special["special"]) == (None, None, True)
    answer = post("/merges", tokens=[257, 300], tokenizer="ranks")
    assert answer["merges"] == [[256, 0xC3, 0xA9, 257], [257, 97, 256, 258]]
    assert (answer["base_size"], answer["full_size"]) == (256, 258)


def test_wrong_ids_and_queries_are_refused(client, post, small_spec):
    for bad in ("1.0", "-1", "01", "1e2", "%20 97", "٣", "9" * 4000, "97%0a"):
        assert pointer(problem(client.get(f"/vocab/{bad}"), 422, "invalid_request")) == "/token_id"
    for query in ("depth=17", "depth=-1", "depth=", "deepth=1", "depth=1&depth=2"):
        problem(client.get(f"/vocab/97?{query}"), 422, "invalid_request")
    assert client.get("/vocab/97?tokenizer=é").status_code == 422
    problem(client.get("/vocab/97?tokenizer=nope"), 404, "tokenizer_not_found")
    problem(client.get("/vocab/97", headers={"If-Match": '"x"'}), 412, "digest_mismatch")
    for id_ in (small_spec.largest_id + 1, 2**32 - 1):
        found = problem(client.get(f"/vocab/{id_}"), 404, "unknown_token_id")
        assert str(small_spec.largest_id) in found["detail"]
    unknown = client.post("/merges", json={"tokens": [97, 4_000_000]})
    assert "4000000" in problem(unknown, 404, "unknown_token_id")["detail"]
    for tokens in ([], [97] * 4096):
        assert post("/merges", tokens=tokens)["merges"] == []
    many = client.post("/merges", json={"tokens": [97] * 4097})
    assert "4,096" in str(problem(many, 422, "invalid_request"))
