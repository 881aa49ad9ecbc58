"""Both clients with a real server."""

import asyncio
import doctest
import hashlib
import importlib
import io
import pkgutil

import numpy as np
import pytest

import tokenizer_client
from tests.integration.server_process import ADMIN_KEY
from tests.tokenizer_client.conftest import make_client
from tests.tokenizer_service.conftest import CORPUS
from tokenizer_client import (
    AsyncClient,
    Client,
    ConflictError,
    InvalidRequestError,
    PreconditionFailedError,
    ProblemError,
)
from tokenizer_core.corpus import TokenFiles

__all__ = ["make_client"]

TEXTS = ["", "the quick brown fox", "héllo wörld 中文字符\n\r\n", "a<|endoftext|>b", "🙂" * 50]
LONG = CORPUS * 20
DATA = LONG.encode()


@pytest.fixture
def client(make_client, server):
    return make_client(server.url)


@pytest.fixture
def admin(make_client, server):
    return make_client(server.url, api_key=ADMIN_KEY)


def test_the_examples_run(server):
    """Those of the docstrings; every method that changes nothing has one."""
    attempted = {}
    with Client(server.url) as client:
        for module in pkgutil.walk_packages(tokenizer_client.__path__, "tokenizer_client."):
            examples = importlib.import_module(module.name)
            done = doctest.testmod(examples, extraglobs={"client": client})
            assert done.failed == 0, module.name
            attempted[module.name] = done.attempted
    assert attempted["tokenizer_client.client"]
    assert attempted["tokenizer_client.wire"]


def test_ids_are_those_of_the_library_and_come_back(client, small_tokenizer):
    rows = [small_tokenizer.encode(text) for text in TEXTS]
    for text, ids in zip(TEXTS, rows, strict=True):
        assert client.encode(text) == ids
        array = client.encode_to_numpy(text)
        assert (array.tolist(), array.dtype, array.flags.writeable) == (ids, np.uint32, True)
        assert client.decode(ids) == client.decode(array) == text
        assert client.decode_bytes(ids) == text.encode()
        assert client.count(text) == len(ids)
    assert client.encode_batch(TEXTS) == rows
    ids, offsets = client.encode_batch_to_numpy(TEXTS)
    assert ids.tolist() == [id_ for row in rows for id_ in row]
    assert offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert client.decode_batch(rows) == TEXTS
    assert client.decode_batch([np.array(row, np.int64) for row in rows]) == TEXTS
    assert client.count_batch(TEXTS) == [len(row) for row in rows]
    assert client.encode_batch([]) == client.decode_batch([]) == []


def test_the_options_of_a_text_reach_the_service(client, small_tokenizer):
    text = "a<|endoftext|>b"
    plain = small_tokenizer.encode(text, allowed_special="none")
    for allowed in ("none", (), frozenset()):
        assert client.encode(text, allowed_special=allowed) == plain
        parts = client.encode_stream([text], allowed_special=allowed)
        assert np.concatenate(list(parts)).tolist() == plain
    named = client.encode(text, allowed_special={"<|endoftext|>"})
    assert named == small_tokenizer.encode(text)
    with pytest.raises(InvalidRequestError) as told:
        client.encode(text, allowed_special="none", disallowed_special="all")
    assert told.value.code == "special_token_forbidden"
    assert client.decode(named, skip_special_tokens=True) == "ab"
    part = small_tokenizer.encode("\u2122")[:1]
    assert client.decode(part) == "\ufffd"
    assert client.decode_bytes(part) == "\u2122".encode()[:1]
    with pytest.raises(InvalidRequestError):
        client.decode(part, errors="strict")


def test_streamed_ids_are_those_of_the_whole_text_and_decode_to_it(
    client, small_tokenizer, tmp_path
):
    path, raw = tmp_path / "text.txt", tmp_path / "ids.u16"
    path.write_bytes(DATA)
    ids = small_tokenizer.encode(LONG)
    for source in (
        DATA,
        path,
        io.BytesIO(DATA),
        (DATA[start : start + 7] for start in range(0, len(DATA), 7)),
        iter([LONG[:1000], "", LONG[1000:]]),
    ):
        found = np.concatenate(list(client.encode_stream(source)))
        assert (found.tolist(), found.dtype) == (ids, np.uint32)
    np.array(ids, "<u2").tofile(raw)
    for source, width in (([ids[:5], np.array(ids[5:9]), ids[9:]], "u32"), (raw, "u16")):
        assert "".join(client.decode_stream(source, width=width)) == LONG


def test_an_error_in_the_middle_of_a_stream_is_raised(client):
    with pytest.raises(ProblemError) as told:
        list(client.encode_stream([DATA] * 3 + [b"\xff"]))
    assert (told.value.code, told.value.byte_offset) == ("invalid_utf8", 3 * len(DATA))
    with pytest.raises(ProblemError) as told:
        client.corpora.upload("c", [bytes(65_536)] * 1000)
    assert told.value.status == 401


def test_a_stream_that_is_left_early_is_closed(client, small_tokenizer):
    left = []

    def endless():
        try:
            while True:
                yield DATA
        finally:
            left.append(True)

    parts = client.encode_stream(endless())
    assert next(parts)[:1000].tolist() == small_tokenizer.encode(LONG)[:1000]
    parts.close()
    assert client.count("a") == 1
    assert left == [True]


def test_a_slow_source_does_not_time_out_the_stream(server, small_tokenizer, monkeypatch):
    """While its source is slow, each wait of the client for the service times out at once."""
    read_seconds = 60.0
    n_waits = 0
    waits_in_earnest = asyncio.Event()
    real_timeout = asyncio.timeout

    def timeout(seconds):
        nonlocal n_waits
        if seconds != read_seconds:
            return real_timeout(seconds)
        n_waits += 1
        if n_waits <= 3:
            return real_timeout(0)
        waits_in_earnest.set()
        return real_timeout(seconds)

    async def slowly():
        await waits_in_earnest.wait()
        yield b"low lower"

    async def stream():
        async with AsyncClient(server.url, timeout=read_seconds) as client:
            return [id_ async for ids in client.encode_stream(slowly()) for id_ in ids]

    monkeypatch.setattr(asyncio, "timeout", timeout)
    assert asyncio.run(stream()) == small_tokenizer.encode("low lower")


@pytest.mark.parametrize("make_client", ["async"], indirect=True)
def test_a_corpus_is_encoded_and_downloaded_and_a_promotion_rolled_back(admin, tmp_path):
    text = f"{CORPUS}<|endoftext|>" * 20
    path, folder = tmp_path / "corpus.txt", tmp_path / "tokens"
    path.write_text(text)
    told = []
    corpus = admin.corpora.upload("news", path, on_progress=lambda *sizes: told.append(sizes))
    assert told == [(corpus.bytes, corpus.bytes)] == [(len(text.encode()),) * 2]
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(PreconditionFailedError) as refused:
        admin.corpora.upload("news", iter(["other"]), replace=False)
    assert refused.value.code == "corpus_exists"
    with pytest.raises(InvalidRequestError) as refused:
        admin.corpora.upload("news", b'{"text": "abc"}\n')
    assert refused.value.code == "corpus_format"
    assert admin.corpora.upload("latin", b"abc\xff").not_utf8_at == 3
    admin.corpora.remove("latin")
    assert admin.corpora.get("news") == corpus

    before = admin.tokenizers.active()
    promotion = admin.tokenizers.promote("other", if_match=before.digest)
    assert admin.tokenizers.active().digest == promotion.active.digest != before.digest

    # The other tokenizer's ids begin at 1000: none is also one of the pinned one.
    pinned = admin.pinned(f"starter@{before.version}", digest=before.digest)
    seen = []
    started = pinned.corpora.encode("news", token_files_id="news", validation_share=0.2, seed=1)
    done = admin.jobs.wait(started.id, on_progress=seen.append)
    assert (done.state, seen[-1]) == ("succeeded", done)
    view = admin.token_files.download("news", folder)
    files = TokenFiles.open(folder)
    assert files.manifest.plan.tokenizer.version == before.version
    assert files.n_tokens("train") == view.splits["train"].tokens
    decoded = pinned.decode(np.fromfile(folder / "train.bin", np.uint16)[:50])
    assert decoded == text[: len(decoded)]

    assert admin.tokenizers.roll_back(promotion).active.digest == before.digest
    after = admin.tokenizers.active()
    assert (after.digest, after.previous.name) == (before.digest, "other")
    with pytest.raises(ConflictError):  # a rollback can return to it
        admin.tokenizers.remove(f"other@{promotion.active.version}")
    admin.token_files.remove("news")
    admin.corpora.remove("news")
    assert admin.corpora.list().corpora == []
    assert admin.token_files.list().token_files == []
    assert started.id in [job.id for job in admin.jobs.list(kind="encode").jobs]
