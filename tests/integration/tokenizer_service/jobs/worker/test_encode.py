"""Encoding jobs: the files they write, and what remains when they are cancelled or die."""

import gzip
import json
import os
import signal
import threading
from unittest.mock import Mock

import pytest

from tests.integration.server_process import wait_until
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.corpus import CorpusFormat, TokenFiles, encode_corpus, plan_token_files
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.token_files import TokenFilesFolder, TokenFilesTakenError
from tokenizer_service.jobs.worker import encode as encode_child
from tokenizer_service.jobs.worker.child import describe_failure
from tokenizer_service.jobs.worker.context import WorkerJob

END = "<|endoftext|>"
TEXTS = [f"The {n}th document, 東京 {n * 7}.\n" * (n % 5) for n in range(300)]
NEWS = END.join(TEXTS)


def folder_of(service):
    return TokenFilesFolder.of(service.settings.artifacts_dir)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tokenizer_of(service):
    ref = service.store.resolve("starter")
    return Tokenizer.from_spec(service.store.open(ref)), ref


def expected_files(service, tmp_path):
    source, folder = tmp_path / "news", tmp_path / "expected"
    source.write_text(NEWS)
    tokenizer, ref = tokenizer_of(service)
    plan = plan_token_files(tokenizer, seed=0, ref=ref)
    form = CorpusFormat(separator=END)
    encode_corpus(tokenizer, [source], folder, plan, corpus_format=form)
    return contents(folder)


def test_all_options_reach_the_files(shared_service):
    service = shared_service
    service.put("first?format=jsonl", '{"story": "one<|endoftext|>"}\n{"story": "two"}\n')
    service.put("second?format=jsonl", '{"body": "three"}\n' * 40)
    body = {
        "further_corpora": ["second"],
        "format": "jsonl",
        "field": ["story", "body"],
        "layout": "npy",
        "dtype": "uint32",
        "tokens_per_shard": 50,
        "begin_of_document": END,
        "end_of_document": "",
        "allowed_special": "none",
        "validation_share": 0.3,
        "shuffle": True,
        "seed": 3,
        "workers": 2,
    }
    job = service.wait(service.encode("first", token_files_id="options", **body))
    assert (job["state"], job["progress"], job["error"]) == ("succeeded", 1.0, None), job
    counters, result = job["counters"], job["result"]
    for phase in ("encode", "shuffle"):
        assert counters[f"{phase}_done"] == counters[f"{phase}_total"] > 0
    tokenizer, ref = tokenizer_of(service)
    files = TokenFiles.open(folder_of(service).path("options"), tokenizer)
    manifest = files.manifest
    plan = manifest.plan
    assert (plan.layout_name, plan.dtype, plan.tokens_per_shard) == ("npy", "uint32", 50)
    assert (plan.begin_of_document_id, plan.end_of_document_id, plan.seed) == (256, None, 3)
    assert (plan.tokenizer.name, plan.tokenizer.version) == (ref.name, ref.version)
    assert plan.recognised_special == ()
    assert [source.path for source in manifest.sources] == ["first", "second"]
    documents = {
        split.name: [
            files.decode_document(n, tokenizer, split.name) for n in range(split.n_documents)
        ]
        for split in manifest.splits
    }
    assert len(documents["validation"]) > 4
    both = documents["train"] + documents["validation"]
    assert sorted(both) == sorted([f"{END}one{END}", f"{END}two", *[f"{END}three"] * 40])
    # "<|endoftext|>" in the text was plain text: 13 ids of bytes, not one.
    n_tokens = 42 + len(f"one{END}two") + 40 * len("three")
    assert (counters["documents"], counters["tokens"]) == (42, n_tokens)
    assert (result["id"], result["documents"], result["tokens"]) == ("options", 42, n_tokens)
    assert files.n_tokens("train") + files.n_tokens("validation") == n_tokens
    described = service.client.get("/token-files/options").json()
    assert (described["validation_share"], described["shuffle"]) == (0.3, True)
    assert result["bytes"] == sum(record.size_bytes for record in manifest.files().values())
    assert not JobFolder.of(service.settings.artifacts_dir, job["id"]).scratch_path.exists()


def test_each_corpus_is_read_with_its_own_field(shared_service):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    service = shared_service
    service.put("stories?format=jsonl&field=story", '{"story": "one", "body": "no"}\n')
    service.put("bodies?format=jsonl&field=body", '{"body": "two", "story": "no"}\n')
    ids = ["stories", "bodies"]
    body = {"further_corpora": ids[1:], "end_of_document": "", "layout": "parquet"}
    job = service.wait(service.encode(ids[0], token_files_id="own", **body))
    assert job["state"] == "succeeded", job
    tokenizer, _ = tokenizer_of(service)
    files = TokenFiles.open(folder_of(service).path("own"), tokenizer)
    assert [files.decode_document(n, tokenizer) for n in range(2)] == ["one", "two"]
    rows = parquet.read_table(files.folder / "train.parquet").column("input_ids").to_pylist()
    assert [tokenizer.decode(row) for row in rows] == ["one", "two"]
    job = service.wait(service.start(input_paths=None, corpus_ids=ids, name="own", vocab_size=261))
    assert job["error"] is None
    learned = service.store.open(service.store.resolve("own")).vocab.values()
    assert {b"one", b"two"} <= {*learned}


def test_packed_text_of_json_lines_is_refused_unless_the_upload_names_its_format(shared_service):
    service, packed = shared_service, gzip.compress(b'{"text": "low lower"}\n' * 2)
    service.put("packed.txt.gz", packed)
    service.put("named?format=txt.gz", packed)
    asked = {"input_paths": None, "vocab_size": 258}
    refused = [
        service.wait(service.encode("packed.txt.gz", token_files_id="packed")),
        service.wait(service.start(corpus_ids=["packed.txt.gz"], **asked)),
    ]
    for job in refused:
        assert job["error"]["code"] == "invalid_corpus", job
        assert "'packed.txt.gz' is JSON lines" in job["error"]["detail"]
    job = service.wait(service.encode("named", token_files_id="named"))
    assert (job["state"], job["result"]["documents"]) == ("succeeded", 1), job


def test_conversations_become_ids_and_masks(shared_service):
    service = shared_service
    template = "{% for m in messages %}{{ m.content + '<|endoftext|>' }}{% endfor %}"
    tokenizer, _ = tokenizer_of(service)
    templates = {"default": "{{ raise_exception('not this one') }}", "plain": template}
    service.store.publish(tokenizer.with_chat_templates(templates).spec, name="chatty")
    lines = [
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
        '{"conversations": [{"from": "human", "value": "cd"}, {"from": "gpt", "value": "efg"}]}',
        '{"messages": []}',
    ]
    service.put("chats?format=jsonl", "\n".join(lines))
    asked = {"format": "chat", "tokenizer": "chatty", "chat_template": "plain", "max_length": 6}
    before = folder_of(service).names()
    job = service.wait(service.encode("chats", token_files_id="bad", **asked))
    assert (job["state"], job["error"]["code"]) == ("failed", "invalid_corpus"), job
    assert "'chats', line 3: the conversation has no messages" in job["error"]["detail"]
    assert job["log_tail"][-1].endswith(f"invalid_corpus: {job['error']['detail']}")
    assert str(service.settings.artifacts_dir) not in json.dumps([job["error"], job["log_tail"]])
    assert folder_of(service).left_over() == []
    assert folder_of(service).names() == before
    body = {**asked, "skip_bad": True, "max_bad": 0.5, "loss": "role"}
    job = service.wait(service.encode("chats", token_files_id="chats", **body))
    assert job["state"] == "succeeded", job
    files = TokenFiles.open(folder_of(service).path("chats"))
    end = 256
    assert [files.document(n).tolist() for n in range(2)] == [
        [*b"a", end, *b"b", end],
        [*b"cd", end, *b"efg"],
    ]
    assert [files.document_mask(n).tolist() for n in range(2)] == [[0, 0, 1, 1], [0, 0, 0, 1, 1, 1]]
    described = service.client.get("/token-files/chats").json()
    assert described["document_encoder"]["loss"] == "role"
    assert (described["max_length"], described["over_length"]) == (6, "truncate")
    split = described["splits"]["train"]
    assert (split["loss_tokens"], split["documents_truncated"], split["tokens_lost"]) == (5, 1, 1)
    assert (split["documents_dropped"], split["conversations_without_loss"]) == (0, 0)
    place = {"file": "chats", "line": 3, "row": None, "reason": "no_conversation"}
    assert described["bad_documents"] == {"reasons": {"no_conversation": 1}, "first": [place]}
    assert job["result"]["warnings"] == [
        "documents left out: 1 bad (no_conversation 1: chats line 3)",
        "train: over 6 tokens: 1 document truncated, 0 dropped, 1 token lost",
    ]


def test_a_job_warns_of_what_the_command_warns_of(shared_service):
    service = shared_service
    service.put("prose", f"one {END} two")
    asked = {"separator": "###", "validation_share": 1e-9, "token_files_id": "prose"}
    job = service.wait(service.encode("prose", **asked))
    warnings = job["result"]["warnings"]
    assert warnings == [
        f"train: special tokens found in the texts: '{END}' (1 time); allowed_special "
        f"(--allowed-special) may make them text",
        "the separator '###' occurs nowhere: each file is one document; name what ends a document "
        "(`separator`, on the command line --separator, $'\\n' for a line)",
        "all documents are in the split train: with a validation share of 1e-09 no other was drawn",
    ]
    logged = [line.partition(" warning: ")[2] for line in job["log_tail"]]
    assert [line for line in logged if line] == warnings
    service.put("latin", f"one{END}caf\xe9{END}two".encode("latin-1"))
    asked = {"skip_bad": True, "max_bad": 0.5, "token_files_id": "latin"}
    job = service.wait(service.encode("latin", **asked))
    assert job["result"]["documents"] == job["counters"]["documents"] == 2
    assert job["result"]["warnings"] == ["documents left out: 1 bad (invalid_utf8 1: latin line 1)"]


def test_a_job_encodes_with_the_version_of_its_request(service):
    service.put("news", NEWS)
    _, pinned = tokenizer_of(service)
    service.stop_runner()
    job_id = service.encode(token_files_id="a")
    vocab = {1000 + byte: bytes([byte]) for byte in range(256)}
    for name in ("starter", "other"):
        ref = service.store.publish(TokenizerSpec.from_merges(vocab, [], [END]), name=name)
        swap = service.client.put("/tokenizers/active", json={"tokenizer": str(ref)})
        assert swap.status_code == 200
    service.start_runner()
    assert service.wait(job_id)["state"] == "succeeded"
    files = TokenFiles.open(folder_of(service).path("a"))
    identity = files.manifest.plan.tokenizer
    assert (identity.name, identity.version) == (pinned.name, pinned.version)
    assert max(files.document(1)) <= 256


@pytest.mark.row(33)
@pytest.mark.promise(2)
def test_a_killed_child_is_resumed_and_a_cancelled_one_leaves_nothing(
    process_service, monkeypatch, tmp_path
):
    service, folder, gate = process_service, folder_of(process_service), threading.Event()
    allow = JobStore.allow_publishing
    # Until it is set, a finished job waits for permission to publish.
    monkeypatch.setattr(
        JobStore, "allow_publishing", lambda self, job: gate.wait(300) and allow(self, job)
    )
    service.put("news", NEWS)
    killed, cancelled = (service.encode(token_files_id=name) for name in ("killed", "cancelled"))
    growing = folder.growing(killed)
    wait_until(folder.note(growing).exists, seconds=120)  # its last step before the request
    written = {path.name: path.stat().st_ino for path in growing.iterdir()}
    child = service.jobs.get(killed).child
    os.kill(child.pid, signal.SIGKILL)
    gate.set()
    job = service.wait(killed)
    assert job["state"] == "succeeded", job
    assert (service.jobs.get(killed).deaths, service.jobs.get(killed).attempt) == (1, 2)
    assert contents(folder.path("killed")) == expected_files(service, tmp_path)
    kept = {path.name: path.stat().st_ino for path in folder.path("killed").iterdir()}
    assert kept == written

    gate.clear()
    wait_until(lambda: service.jobs.get(cancelled).child, seconds=300)
    child = service.jobs.get(cancelled).child
    answer = service.client.delete(f"/jobs/{cancelled}")
    assert (answer.status_code, answer.json()["phase"]) == (202, "cancelling")
    gate.set()
    assert service.wait(cancelled)["state"] == "cancelled"
    assert not child.is_alive()
    assert folder.left_over() == []
    assert folder.names() == ["killed"]


def worker_job(service, job_id, **changes):
    """A queued job, to be done by the test; it may publish."""
    row = service.jobs.get(job_id)
    folder = JobFolder.of(service.settings.artifacts_dir, job_id)
    folder = folder.again(changes.get("takeovers", 0))
    folder.write_request({**service.services.runner._request_of(row), **changes})
    job = WorkerJob(folder, folder.read_request(), Mock(), threading.Event())
    job.allowed.set()
    return job


def test_equal_files_of_another_job_are_not_taken_over(service, tmp_path):
    """The tokenizer, the plan and the corpora may be the same; that does not matter."""
    service.stop_runner()
    service.put("news", NEWS)
    job = worker_job(service, service.encode(token_files_id="tokens"))
    tokenizer, ref = tokenizer_of(service)
    plan = plan_token_files(tokenizer, seed=0, ref=ref)
    place = folder_of(service).path("tokens")
    (tmp_path / "news").write_text(NEWS)
    form = CorpusFormat(format="txt")  # all of it is one document
    encode_corpus(tokenizer, [tmp_path / "news"], place, plan, corpus_format=form)
    with pytest.raises(TokenFilesTakenError, match="DELETE") as raised:
        encode_child.encode_and_publish(job)
    assert describe_failure(raised.value)[0] == "token_files_exist"
    assert TokenFiles.open(place).manifest.split("train").n_documents == 1
    folder_of(service).remove("tokens")
    encode_child.encode_and_publish(job)
    published = contents(place)
    encode_child.encode_and_publish(job)  # as if it had died before its report
    assert contents(place) == published == expected_files(service, tmp_path)
    told = job.events
    assert [call.args[0] for call in told.send.call_args_list] == [
        *("ready", "published"),
        "published",
    ]


def test_a_late_owner_and_its_successor_write_apart_and_publish_once(service, tmp_path):
    """The paused one resumes and publishes while the other waits for permission."""
    service.stop_runner()
    service.put("news", NEWS)
    job_id = service.encode(token_files_id="tokens")
    late, successor = (worker_job(service, job_id, takeovers=number) for number in (0, 1))
    apart = []

    def wake():
        apart.append(set(folder_of(service).left_over()))
        encode_child.encode_and_publish(late)

    waits = Mock(wait=wake)
    successor = WorkerJob(successor.folder, successor.request, successor.events, waits)
    encode_child.encode_and_publish(successor)
    assert apart == [{f"{job_id}.1", f".{job_id}.1.json"}]
    assert contents(folder_of(service).path("tokens")) == expected_files(service, tmp_path)
    for job in (late, successor):
        told = job.events
        (published,) = [c for c in told.send.call_args_list if c.args[0] == "published"]
        assert published.kwargs["result"]["id"] == "tokens"
    folder_of(service).drop(job_id)
    assert folder_of(service).left_over() == []
