"""CorpusStore: which files `sweep` removes, and concurrent uploads."""

import json

import pytest

from tokenizer_service.jobs.corpora import CorpusStore
from tokenizer_service.jobs.errors import CorporaQuotaError, CorpusExistsError, CorpusNotFoundError


@pytest.fixture
def store(tmp_path):
    return CorpusStore(tmp_path / "corpora", 1_000_000)


def put(store, corpus_id, text):
    upload = store.begin(corpus_id)
    upload.write(text)
    upload.publish()
    upload.close()


def test_a_sweep_keeps_files_in_use(store, tmp_path):
    store.sweep()  # the folder does not exist yet
    put(store, "kept", b"kept")
    under_way = store.begin("later")
    under_way.write(b"half")
    files = tmp_path / "corpora" / "files"
    (files / f"{'0' * 32}.txt").write_bytes(b"of a process that was killed")
    (files / "notes").write_bytes(b"somebody's own")
    # Another process starts.
    CorpusStore(tmp_path / "corpora", 1_000_000).sweep()
    left = sorted(path.read_bytes() for path in files.iterdir())
    assert left == [b"half", b"kept", b"somebody's own"]
    under_way.write(b" and half")
    under_way.publish()
    under_way.close()
    assert [(corpus.id, corpus.bytes) for corpus in store.all()] == [("kept", 4), ("later", 13)]


def test_one_of_two_uploads_wins(store, tmp_path):
    first, second = (store.begin("news", may_replace=False) for _ in range(2))
    first.write(b"first")
    second.write(b"second")
    second.publish()
    with pytest.raises(CorpusExistsError):
        first.publish()
    first.close()
    second.close()
    assert store.get("news").bytes == 6
    (file,) = (tmp_path / "corpora" / "files").iterdir()
    assert file.stat().st_mode & 0o077 == 0  # only the owner can read it


def test_uploads_under_way_count_for_the_quota(store):
    first = store.begin("a")
    first.write(b"a" * 600_000)
    with pytest.raises(CorporaQuotaError) as raised:
        store.begin("b", n_declared=400_001)
    assert (raised.value.limit, raised.value.actual) == (1_000_000, 1_000_001)
    second = store.begin("b", n_declared=400_000)
    with pytest.raises(CorporaQuotaError):
        second.write(b"b" * 400_001)
    second.close()
    first.close()
    assert store.used_bytes() == 0


def test_a_damaged_record_is_no_corpus_and_can_be_replaced(store, tmp_path):
    put(store, "news", b"text")
    path = tmp_path / "corpora" / "news.json"
    sound = json.loads(path.read_bytes())
    for record in (b"", b"{}", b"[]", b"\xff", b'{"id":"x"}'):
        path.write_bytes(record)
        assert store.find("news") is None
        assert store.all() == []
    put(store, "news", b"again")
    assert store.get("news").bytes == 5
    (tmp_path / "secret.txt").write_text("secret")
    path.write_text(json.dumps({**sound, "file": "../../secret.txt"}))
    with pytest.raises(CorpusNotFoundError):
        store.find_file("news")
