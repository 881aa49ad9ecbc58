"""/corpora/{id}/encode and /token-files: requests refused before a job exists, and downloads.

No job runs here: the integration tests of `jobs/worker` test what jobs write.
"""

import hashlib
import json
import os
import shutil
from types import SimpleNamespace

import pytest

from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.routes.exchanges import pointer, problem
from tokenizer_core import TokenizerSpec
from tokenizer_core.corpus import TokenFiles, TokenFilesWriter, plan_token_files
from tokenizer_service.jobs.runner import JobRunner
from tokenizer_service.jobs.token_files import TokenFilesFolder

TEXT = b"low lower<|endoftext|>lowest"
TRAINING = {"documents": ["ab ab"], "vocab_size": 258}


@pytest.fixture
def start(make_client, monkeypatch):
    async def do_nothing(runner):
        pass

    monkeypatch.setattr(JobRunner, "start", do_nothing)
    started = []

    def start_with(**changes):
        client = make_client(**changes)
        client.headers["X-API-Key"] = ADMIN_KEY
        started.append(client.__enter__())
        assert client.put("/corpora/news", content=TEXT).is_success
        return client

    yield start_with
    for client in started:
        client.__exit__(None, None, None)


@pytest.fixture
def admin(start):
    return start()


@pytest.fixture
def folder(settings):
    return TokenFilesFolder.of(settings.artifacts_dir)


@pytest.fixture
def stories(folder, small_tokenizer, starter):
    """Token files as a job writes them, called `stories`."""
    place = folder.path("stories")
    plan = plan_token_files(small_tokenizer, end_of_document="", tokens_per_shard=4, ref=starter)
    with TokenFilesWriter(place, plan) as writer:
        writer.append(range(10), n_bytes=12)
        writer.append([1], n_bytes=1, split="validation")
        writer.finish()
    return place


def encode(client, corpus_id="news", /, **body):
    return client.post(f"/corpora/{corpus_id}/encode", json=body)


def jobs(client, **query):
    return client.get("/jobs", params=query).json()["jobs"]


@pytest.mark.parametrize(
    ("corpus", "given", "expected"),
    [
        ("news", {}, ("all", [])),
        ("rows", {}, ("none", "all")),
        ("rows", {"allowed_special": "all"}, ("all", [])),
        ("rows", {"allowed_special": "none"}, ("none", [])),
        ("rows", {"allowed_special": []}, ([], [])),
        ("rows", {"added_tokens": "none"}, ("ordinary", [])),
        ("rows", {"disallowed_special": ["<|endoftext|>"]}, ("none", "all")),
    ],
)
def test_a_special_token_in_a_record_is_an_error_unless_the_request_says_what_it_is(
    admin, corpus, given, expected
):
    assert admin.put("/corpora/rows?format=jsonl", content=b'{"text": "a"}\n').is_success
    assert encode(admin, corpus, **given).status_code == 202
    [job] = admin.app.services.jobs.latest()
    plan = job.request["plan"]
    assert (plan["allowed_special"], plan["disallowed_special"]) == expected


def test_a_job_is_listed_apart_from_training_jobs(admin, starter):
    answer = admin.post("/v1/corpora/news/encode", json={})
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["tokenizer-version"] == str(starter)
    assert answer.headers["tokenizer-digest"] == starter.digest
    assert (job["kind"], job["state"], job["result"]) == ("encode", "queued", None)
    assert job["name"] == job["id"].lower()
    assert admin.get(answer.headers["location"]).json() == job
    trained = admin.post("/train", json=TRAINING).json()
    assert [one["id"] for one in admin.get("/train").json()["jobs"]] == [trained["id"]]
    assert [one["kind"] for one in jobs(admin)] == ["train", "encode"]
    assert [one["id"] for one in jobs(admin, kind="encode")] == [job["id"]]
    for path in (f"/train/{job['id']}", f"/train/{job['id']}/events", "/jobs/x"):
        problem(admin.get(path), 404, "job_not_found")
    problem(admin.delete(f"/train/{job['id']}"), 404, "job_not_found")
    assert admin.get(f"/jobs/{trained['id']}").json() == admin.get(f"/train/{trained['id']}").json()
    answer = admin.delete(f"/jobs/{job['id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert admin.get(f"/jobs/{job['id']}/events").text.count("\ndata: ") == 1


WRONG = [
    ({"format": "csv"}, "/format"),
    ({"format": "text", "field": "text"}, ""),
    ({"format": "jsonl", "separator": "<|endoftext|>"}, ""),
    ({"format": "jsonl", "field": []}, "/field"),
    ({"format": "jsonl", "field": ["text", 1]}, "/field"),
    ({"format": "chat", "field": "text"}, ""),
    ({"format": "chat", "separator": "<|endoftext|>"}, ""),
    ({"format": "chat", "allowed_special": "none"}, ""),
    ({"format": "chat", "added_tokens": "none"}, ""),
    ({"allowed_special": ["<|endoftext|>"], "added_tokens": "none"}, "/added_tokens"),
    ({"loss": "role"}, ""),
    ({"chat_template": "default"}, ""),
    ({"max_bad": 0.5}, ""),
    ({"over_length": "drop"}, ""),
    ({"validation_share": 1}, "/validation_share"),
    ({"token_files_id": "../x"}, "/token_files_id"),
    ({"further_corpora": ["A"]}, "/further_corpora/0"),
    ({"colour": "red"}, "/colour"),
]


def test_wrong_requests_are_refused_by_their_place(client):
    client.headers["X-API-Key"] = ADMIN_KEY
    assert client.put("/corpora/news", content=TEXT).is_success
    for body, place in WRONG:
        assert pointer(problem(encode(client, **body), 422, "invalid_request")) == place, body
    problem(encode(client, format="chat"), 422, "chat_template_missing")
    for name in ("other", "{{ messages }}"):
        answer = encode(client, format="chat", chat_template=name)
        found = problem(answer, 422, "chat_template_missing")
        assert pointer(found) == "/chat_template"
        assert "`tokenizer import --chat-template FILE` adds one" in found["detail"]
    for field in ("begin_of_document", "end_of_document", "allowed_special", "disallowed_special"):
        value = "<|secret|>" if field.endswith("document") else ["<|a|>", "<|secret|>"]
        answer = encode(client, **{field: value})
        assert pointer(problem(answer, 422, "unknown_special_token")) == f"/{field}"
        assert "secret" not in answer.text
    assert jobs(client) == []


def test_combinations_of_fields_that_are_accepted(admin):
    for body in (
        {"over_length": "truncate"},
        {"over_length": "drop", "max_length": 9},
        {"skip_bad": True, "max_bad": 0},
    ):
        assert encode(admin, **body).status_code == 202
    stored = admin.put("/corpora/lines?format=jsonl", content=b'{"text": "ab"}')
    assert stored.status_code == 201
    refused = encode(admin, "lines", separator="a")
    assert pointer(problem(refused, 422, "corpus_separator")) == "/separator"
    for body in ({}, {"separator": ""}, {"separator": "a", "format": "text"}):
        assert encode(admin, "lines", **body).status_code == 202, body


def test_a_plan_that_cannot_be_written_is_refused(admin, store):
    vocab = {70_000 + byte: bytes([byte]) for byte in range(256)}
    store.publish(TokenizerSpec.from_merges(vocab, [], []), name="large")
    answer = encode(admin, tokenizer="large", dtype="uint16", end_of_document="")
    assert "70255" in problem(answer, 422, "invalid_token_files_plan")["detail"]
    answer = encode(admin, layout="llmc", tokens_per_shard=1 << 40)
    assert "1073741312" in problem(answer, 422, "invalid_token_files_plan")["detail"]
    problem(encode(admin, tokenizer="nobody"), 404, "tokenizer_not_found")
    answer = admin.post("/corpora/news/encode", json={}, headers={"If-Match": '"0"'})
    problem(answer, 412, "digest_mismatch")
    problem(encode(admin, "nothing"), 404, "corpus_not_found")
    admin.put("/corpora/gone", content=b"its file is gone")
    for path in (store.root / "corpora" / "files").iterdir():
        if path.read_bytes() != TEXT:
            path.unlink()
    problem(encode(admin, "gone"), 404, "corpus_not_found")
    problem(encode(admin, "NOTHING"), 422, "invalid_request")
    for further, code in ((["nothing"], "corpus_not_found"), (["news"], "invalid_request")):
        found = problem(encode(admin, further_corpora=further), 422, code)
        assert pointer(found) == "/further_corpora/0"
    admin.put("/corpora/empty", content=b"")
    problem(encode(admin, "empty"), 422, "empty_corpus")
    assert jobs(admin) == []
    answer = encode(admin, tokenizer="large")
    assert "(end_of_document)" in problem(answer, 422, "invalid_token_files_plan")["detail"]
    body = {"further_corpora": ["news"], "tokenizer": "large"}
    assert encode(admin, "empty", **body, end_of_document="").status_code == 202


def test_a_key_and_an_id_belong_to_one_job(start, stories):
    admin = start(train_queue=1)

    def post(path="/corpora/news/encode", key="k", **body):
        return admin.post(path, json=body, headers={"Idempotency-Key": key})

    first = post(token_files_id="a", allowed_special=["<|a|>", "<|endoftext|>"])
    again = post(token_files_id="a", allowed_special=["<|endoftext|>", "<|a|>"], layout="raw")
    assert again.json()["id"] == first.json()["id"]
    admin.put("/corpora/other", content=TEXT)
    others = (post(), post("/corpora/other/encode", token_files_id="a"), post("/train", **TRAINING))
    for other in others:
        problem(other, 422, "idempotency_key_reused")
    problem(post(key="two words"), 422, "invalid_idempotency_key")
    for taken in ("stories", "a"):
        problem(encode(admin, token_files_id=taken), 409, "token_files_exist")
    assert len(jobs(admin)) == 1
    # Trainings wait in the same queue.
    assert admin.post("/train", json=TRAINING).status_code == 202
    problem(encode(admin), 409, "training_queue_full")
    admin.delete(f"/jobs/{first.json()['id']}")
    assert encode(admin, token_files_id="a").status_code == 202


def test_the_inputs_of_a_job_are_not_removed(start, store):
    vocab = {byte: bytes([byte]) for byte in range(256)}
    ref = store.publish(TokenizerSpec.from_merges(vocab, [], []), name="pinned")
    first = start()
    first.put("/corpora/second", content=TEXT)
    job_id = encode(
        first, tokenizer="pinned", further_corpora=["second"], end_of_document=""
    ).json()["id"]
    in_memory = f"{ref.name}@{ref.version}"
    held = list((store.root / "run" / "workers").glob("*.pinned"))
    assert [json.loads(path.read_text()) for path in held] == [[in_memory]]
    held[0].unlink()  # as if the first had ended: what follows is for the sake of the job
    later = start()  # which has that version neither in memory nor in use by another request
    version = f"/tokenizers/{ref.name}/{ref.version}"
    for path in (version, "/corpora/news", "/corpora/second"):
        code = "tokenizer_in_use" if path == version else "corpus_in_use"
        assert f"ob {job_id} " in problem(later.delete(path), 409, code)["detail"]
    training = later.post("/train", json={**TRAINING, "extend": "pinned"})
    extending = training.headers["Location"]
    assert later.delete(f"/jobs/{job_id}").json()["state"] == "cancelled"
    assert later.delete("/corpora/second").status_code == 204
    for held in (store.root / "run" / "workers").glob("*.pinned"):
        held.unlink()
    last = start()
    found = problem(last.delete(version), 409, "tokenizer_in_use")
    assert f"ob {training.json()['id']} " in found["detail"]
    assert last.delete(extending).json()["state"] == "cancelled"
    assert last.delete(version).status_code == 204


def test_the_quota_and_the_disk_are_checked_first(start, stories, monkeypatch):
    client = start(token_files_max_bytes=1 << 16)
    client.put("/corpora/large", content=b"low lower lowest " * 100_000)
    found = problem(encode(client, "large"), 413, "token_files_quota")
    assert found["limit"] == 1 << 16 < found["actual"] < 1 << 22
    assert encode(client).status_code == 202
    usage = SimpleNamespace(total=1, used=1, free=4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    found = problem(encode(client), 507, "disk_full")
    assert found["limit"] == 4 < found["actual"] < 200
    assert len(jobs(client)) == 1
    assert client.get("/token-files").json()["max_bytes"] == 1 << 16


def test_token_files_are_described_sent_and_removed(admin, stories, starter, small_spec):
    listed = admin.get("/token-files").json()
    (one,) = listed["token_files"]
    files = {path.name: path.read_bytes() for path in stories.iterdir()}
    assert (listed["bytes"], listed["max_bytes"]) == (sum(map(len, files.values())), None)
    described = admin.get("/token-files/stories").json()
    assert {key: described[key] for key in one} == one
    assert one["tokenizer"] == {
        "name": starter.name,
        "version": starter.version,
        "fingerprint": small_spec.fingerprint,
        "vocab_size": len(small_spec.vocab),
        "largest_id": small_spec.largest_id,
    }
    train = one["splits"]["train"]
    counts = ("documents", "tokens", "text_bytes", "bytes_per_token", "shards")
    assert [train[name] for name in counts] == [1, 10, 12, 1.2, 3]
    assert list(one["splits"]) == ["train", "validation"]
    named = {file["name"]: (file["bytes"], file["sha256"]) for file in described["files"]}
    assert named == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    }
    problem(admin.get("/token-files/.unfinished"), 422, "invalid_request")
    for name, data in files.items():
        check_download(admin, f"/token-files/stories/{name}", data)
    with (stories / "train_000000.bin").open("rb") as reader:
        guarded = admin.delete("/token-files/stories", headers={"If-Match": '"wrong"'})
        problem(guarded, 412, "no_entity_tag")
        assert admin.delete("/token-files/stories").status_code == 204
        assert len(reader.read()) == 8  # an open download goes on
    for path in ("stories", "stories/train_000000.bin"):
        problem(admin.get(f"/token-files/{path}"), 404, "token_files_not_found")
    problem(admin.delete("/token-files/stories"), 404, "token_files_not_found")
    assert admin.get("/token-files").json() == {"token_files": [], "bytes": 0, "max_bytes": None}


def check_download(client, url, data):
    whole = client.get(url)
    tag = whole.headers["etag"]
    assert (whole.status_code, whole.content) == (200, data)
    assert tag == f'"{hashlib.sha256(data).hexdigest()}"'
    is_json = whole.headers["content-type"].startswith("application/json")
    assert is_json == url.endswith("manifest.json")
    part = client.get(url, headers={"Range": "bytes=1-1", "If-Range": tag})
    assert (part.status_code, part.content) == (206, data[1:2])
    assert part.headers["content-range"] == f"bytes 1-1/{len(data)}"
    unchanged = client.get(url, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    head = client.head(url)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(data)))


def test_a_file_that_the_manifest_does_not_name_is_never_sent(admin, stories, settings):
    (stories / "mine.txt").write_text("private")
    for name in ("mine.txt", "%2e%2e", "%2e%2e%2factive.json", "train.bin%00"):
        answer = admin.get(f"/token-files/stories/{name}")
        assert answer.status_code == 404, name
        assert "private" not in answer.text
    same_size = settings.artifacts_dir / "secret"
    same_size.write_bytes(b"x" * 8)
    shard = stories / "train_000001.bin"
    for target in (settings.artifacts_dir / "jobs.sqlite3", same_size):
        shard.unlink()
        shard.symlink_to(target)
        problem(admin.get("/token-files/stories/train_000001.bin"), 409, "token_files_corrupt")


def test_damaged_and_removed_token_files_are_refused_and_hide_no_others(
    admin, stories, folder, monkeypatch
):
    def open_and_remove(place):
        files = opened(place)
        if place.name == "one":
            folder.remove("one")
        return files

    opened = TokenFiles.open
    with monkeypatch.context() as patch:
        patch.setattr(TokenFiles, "open", open_and_remove)
        for path in ("/one", "/one/train_000001.bin", ""):
            shutil.copytree(stories, folder.path("one"))
            answer = admin.get(f"/token-files{path}")
            if path:
                problem(answer, 404, "token_files_not_found")
    assert [one["id"] for one in answer.json()["token_files"]] == ["stories"]
    shutil.copytree(stories, folder.path("damaged"))
    os.truncate(folder.path("damaged") / "train_000000.bin", 1)
    (folder.path("bare") / "manifest.json").mkdir(parents=True)
    for name in ("damaged", "bare"):
        problem(admin.get(f"/token-files/{name}"), 409, "token_files_corrupt")
    listed = admin.get("/token-files").json()["token_files"]
    assert [one["id"] for one in listed] == ["stories"]
    assert admin.delete("/token-files/damaged").status_code == 204
    assert folder.names() == ["bare", "stories"]


def test_a_start_removes_files_that_no_job_needs(start, folder):
    job_id = encode(start()).json()["id"]
    kept = folder.growing(job_id).with_name(f".{job_id}.partial")
    left = folder.growing("20200101T000000Z-0123456789ab")
    for path in (kept, left):
        path.mkdir(parents=True)
    start()
    assert kept.exists()
    assert not left.exists()
