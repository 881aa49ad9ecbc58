"""The training routes: which requests they accept and refuse, and how they return a job."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_service.routes.exchanges import problem
from tokenizer_core.training import TrainingOptions, train_from_iterator


@pytest.fixture
def refusing(shared_service):
    """A service that must refuse the request and store nothing."""
    yield shared_service
    assert shared_service.jobs.latest() == []
    assert not (shared_service.settings.artifacts_dir / "jobs").exists()


WRONG_BODIES = [
    ({}, ""),
    ({"input_paths": ["small.txt"], "documents": ["x"]}, ""),
    ({"input_paths": []}, "/input_paths"),
    ({"documents": ["", ""]}, ""),
    ({"input_urls": ["http://127.0.0.1/"], "storage_options": {}}, "/storage_options"),
    ({"corpus_ids": ["a"], "input_urls": ["http://127.0.0.1/"]}, ""),
    ({"corpus_ids": ["A"]}, "/corpus_ids/0"),
    ({"documents": ["x"], "vocab_size": 256}, ""),
    ({"documents": ["x"], "vocab_size": 2**20 + 1}, "/vocab_size"),
    ({"documents": ["x"], "special_tokens": ["<|a|>", "<|a|>"]}, "/special_tokens"),
    ({"input_paths": ["small.txt"], "max_bad": 0.5}, ""),
    ({"documents": ["x"], "seed_tokens": ["ab", "a b"]}, "/seed_tokens"),
    ({"documents": ["x"], "seed_tokens": ["b" * 33]}, "/seed_tokens/0"),
    ({"documents": ["x"], "seed_tokens": ["abc"], "max_token_length": 2}, "/seed_tokens"),
    ({"documents": ["x"], "seed_tokens": [f"x{'ab' * n}" for n in range(501)]}, "/seed_tokens"),
    ({"documents": ["x"], "vocab_size": 260, "reserved": 4}, ""),
    ({"documents": ["x"], "vocab_size": 258, "seed_tokens": ["abc"]}, ""),
    ({"documents": ["x"], "vocab_size": 300, "superwords_from": 300}, ""),
    ({"documents": ["x"], "extend": "starter", "superwords_from": 300}, ""),
    ({"documents": ["x"], "vocab_size": 2**20, "pad_to_multiple": 1000}, ""),
    ({"documents": ["x"], "special_tokens": ["<|reserved_special_token_0|>"], "reserved": 1}, ""),
    ({"documents": ["x"], "name": "active"}, "/name"),
    ({"documents": ["x"], "pattern": "(a+)+$"}, "/pattern"),
    ({"documents": ["x"], "extend": "starter", "pattern": "gpt2"}, ""),
    ({"documents": ["x"], "limits": {"seconds": 0}}, "/limits/seconds"),
]


@pytest.mark.row(26, 27)
def test_a_wrong_request_is_422_and_names_the_field(refusing):
    for body, pointer in WRONG_BODIES:
        found = problem(refusing.train(body), 422, "invalid_request")
        assert pointer in [error["pointer"] for error in found["errors"]], (body, found)
    for body, words in (
        ({"documents": ["x"], "name": "A b"}, "/name: must be a name: up to 64 of"),
        ({"documents": []}, "/documents: must have at least 1 item, not 0"),
    ):
        assert problem(refusing.train(body), 422)["detail"].startswith(words)
    for name in ("gpt2", "starter"):
        problem(refusing.train({"documents": ["x"], "name": name}), 409, "name_reserved")
    # What only commands do.
    for option, value in (("vocab_size", [300, 400]), ("format", "chat")):
        answer = refusing.train({"input_paths": ["small.txt"], option: value})
        assert "`tokenizer " in problem(answer, 422, "invalid_request")["detail"]


@pytest.mark.parametrize(
    ("option", "inputs"),
    [
        ("field", {"input_paths": ["small.txt"]}),
        ("field", {"input_paths": ["small.txt"], "format": "txt.gz"}),
        ("field", {"input_urls": ["http://127.0.0.1/small"]}),
        ("separator", {"input_paths": ["small.txt"], "format": "jsonl"}),
        ("separator", {"input_paths": ["small.jsonl.gz", "small.parquet"]}),
        ("separator", {"input_urls": ["http://127.0.0.1/small.jsonl?x.txt"]}),
    ],
)
def test_an_option_of_another_format_is_422(refusing, option, inputs):
    """Text has no fields, and only text has a separator."""
    for name in ("small.jsonl.gz", "small.parquet"):
        (refusing.corpus / name).write_bytes(b"anything")
    found = problem(refusing.train({**inputs, option: "END"}), 422, f"corpus_{option}")
    assert found["errors"][0]["pointer"] == f"/{option}"


@pytest.mark.row(24, 25)
def test_a_path_under_no_root_and_a_url_that_is_not_listed_are_422(refusing, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (refusing.corpus / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(refusing.corpus / "pipe")
    for path in ("../secret.txt", "/etc/passwd", "small.txt\0", "link.txt", "pipe", "none"):
        answer = refusing.train({"input_paths": ["small.txt", path], "vocab_size": 300})
        found = problem(answer, 422, "invalid_corpus_path")
        assert found["errors"][0]["pointer"] == "/input_paths/1"
        assert str(refusing.corpus) not in answer.text
    for url in ("file:///etc/passwd", "http://169.254.169.254/", "http://a:b@127.0.0.1/"):
        answer = refusing.train({"input_urls": [url], "vocab_size": 300})
        found = problem(answer, 422, "invalid_corpus_url")
        assert found["errors"][0]["pointer"] == "/input_urls/0"
        assert "169.254" not in answer.text


def test_a_wrong_key_or_wait_is_422_and_an_unknown_job_404(refusing):
    for key in (b"", b" ", b"x" * 201, b"a b", b"caf\xe9"):
        headers = [(b"Idempotency-Key", key)]
        answer = refusing.client.post("/train", json={"documents": ["x"]}, headers=headers)
        problem(answer, 422, "invalid_idempotency_key")
    for wait in ("-1", "301", "nan", "long"):
        answer = refusing.client.post(f"/train?wait={wait}", json={"documents": ["x y"]})
        problem(answer, 422, "invalid_request")
    for job_id in ("nope", "..%2F..%2Fx", "20260101T000000Z-000000000000", "%00"):
        for method in ("GET", "DELETE"):
            assert refusing.client.request(method, f"/train/{job_id}").status_code == 404


def test_a_tokenizer_to_extend_is_resolved_when_it_is_asked_for(service):
    problem(service.train({"documents": ["x"], "extend": "nope"}), 404, "tokenizer_not_found")
    n_entries = len(service.services.live.active.tokenizer)
    small = service.train({"documents": ["x"], "extend": "active", "vocab_size": n_entries - 1})
    assert problem(small, 422, "invalid_request")["errors"][0]["pointer"] == "/vocab_size"
    active = str(service.services.live.active.ref)
    for name in ("active", active.partition("@")[0], active):
        answer = service.train({"documents": ["x y", "z"], "extend": name, "vocab_size": 9000})
        request = service.jobs.get(answer.json()["id"]).request
        assert request["extend"] == active
        assert request["corpus_format"]["separator"] == "<|endoftext|>"


def test_a_job_extends_a_published_tokenizer(service):
    base = trained_spec(special_tokens=["<|other|>"])
    asked = {"documents": ["zebra zebras", "zebra"], "vocab_size": len(base.vocab) + 3}
    ref = str(service.store.publish(base, name="base"))
    service.wait(service.start(input_paths=None, **asked, name="more", extend=ref), "live")
    expected = train_from_iterator(
        asked["documents"], TrainingOptions(extend=base, vocab_size=asked["vocab_size"])
    )
    assert service.store.open(service.store.resolve("more")) == expected.spec


@pytest.mark.row(36)
def test_a_full_disk_is_507_and_leaves_nothing(service, monkeypatch):
    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        problem(service.train({"documents": ["x x"]}), 507, "disk_full")
    assert service.jobs.latest() == []
    assert list((service.settings.artifacts_dir / "jobs").iterdir()) == []
    assert service.client.post("/encode", json={"text": "a"}).status_code == 200


@pytest.mark.parametrize("route", ["/train", "/corpora/c/encode"])
def test_a_request_can_wait_for_the_end_of_its_job(service, monkeypatch, route):
    monkeypatch.setattr(service.services.jobs, "claim_next", lambda owner: None)
    service.put("c", "low lower")
    body = {"documents": ["low lower"], "vocab_size": 300} if route == "/train" else {}
    client, key = service.client, {"Idempotency-Key": "k"}
    early = client.post(f"{route}?wait=0.01", json=body, headers=key)
    assert (early.status_code, early.json()["state"]) == (202, "queued")
    job_id = early.json()["id"]
    watch = service.services.job_watch
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, f"{route}?wait=60", json=body, headers=key)
        while watch.n_listeners == 0:
            assert not waiting.done(), waiting.result().text
        service.jobs.request_cancel(job_id)
        late = waiting.result()
    assert (late.status_code, late.json()["state"]) == (200, "cancelled")
    assert late.json()["id"] == job_id
    assert late.headers["Location"] == early.headers["Location"]
    assert watch.n_listeners == 0
    again = client.post(route, json=body, headers=key)
    assert (again.status_code, again.json()["state"]) == (202, "cancelled")
    watch._max_listeners = 0  # now a job is returned at once
    answer = client.post(f"{route}?wait=60", json=body)
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
