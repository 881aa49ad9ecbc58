"""Token files in a bucket: whole or absent, never changed, fetched once and verified."""

import hashlib
import os

import pytest

from tests.integration.s3_server import open_with_shared_client
from tests.tokenizer_core.corpus.small_corpora import NARROW, TEXTS, WIDE, content, write_texts
from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.blobs.bucket import ObjectStorage
from tokenizer_core.blobs.folder import FolderStorage
from tokenizer_core.corpus import TokenFiles, remote_token_files, verify_token_files
from tokenizer_core.corpus.remote_token_files import require_free, upload_token_files
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenizerMismatchError


@pytest.fixture
def address(s3_bucket, monkeypatch):
    """An address whose opening creates no new client, which is slow."""

    def open_quickly(place, *, read_only=False):
        is_there = place.startswith("s3://")
        return open_with_shared_client(place) if is_there else open_storage(place)

    monkeypatch.setattr(remote_token_files, "open_storage", open_quickly)
    return f"{s3_bucket}/some/tokens"


def store():
    """The storage itself, to inspect it and to damage its objects."""
    import s3fs

    found = s3fs.S3FileSystem()
    found.invalidate_cache()
    return found


@pytest.fixture
def fetched(monkeypatch):
    """The names requested from the bucket."""
    names = []
    fetch = ObjectStorage.fetch

    def noted(self, name, path):
        names.append(name.rpartition("/")[2])
        fetch(self, name, path)

    monkeypatch.setattr(ObjectStorage, "fetch", noted)
    return names


def place_of(folder):
    return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def test_a_round_trip(address, tmp_path):
    manifest = write_texts(tmp_path / "t", "megatron", tokens_per_shard=30)
    seen = []
    found = upload_token_files(tmp_path / "t", address, progress=lambda *at: seen.append(at))
    assert found == manifest
    assert seen[-1] == (sum(r.size_bytes for r in manifest.files().values()),) * 2
    cache = tmp_path / "cache"
    files = TokenFiles.open(address, NARROW, cache=cache)
    assert [files.decode_document(i, NARROW) for i in range(len(TEXTS))] == TEXTS
    assert verify_token_files(address, cache=cache).n_documents == len(TEXTS) + 1
    with pytest.raises(TokenizerMismatchError):
        TokenFiles.open(address, WIDE, cache=cache)
    # The cache and the bucket equal the uploaded folder.
    assert content(files.folder) == content(tmp_path / "t")
    store().get(f"{address}/{place_of(tmp_path / 't')}", str(tmp_path / "copy"), recursive=True)
    assert content(tmp_path / "copy") == content(tmp_path / "t")
    there = [path.removeprefix(address[5:] + "/") for path in store().find(address)]
    assert sum("/" not in path for path in there) == 1, "only the manifest stands at the address"


def test_files_are_fetched_when_needed_and_once(address, tmp_path, fetched):
    write_texts(tmp_path / "t", tokens_per_shard=30)
    upload_token_files(tmp_path / "t", address)
    files = TokenFiles.open(address, cache=tmp_path / "cache")
    assert fetched == []
    files.decode_document(0, NARROW, "validation")
    assert fetched == ["val.document-ends.u64", "val_000000.bin"]
    for _ in range(2):
        verify_token_files(address, cache=tmp_path / "cache")
        assert sorted(fetched) == sorted(files.manifest.files())
    # A damaged cache is found and mended.
    fetched.clear()
    [cached] = (tmp_path / "cache").glob("*/train_000000.bin")
    cached.write_bytes(cached.read_bytes()[:-1])
    assert TokenFiles.open(address, cache=tmp_path / "cache").decode_document(0, NARROW) == TEXTS[0]
    assert fetched == ["train_000000.bin"]
    cached.write_bytes(bytes([cached.read_bytes()[0] ^ 1]) + cached.read_bytes()[1:])
    with pytest.raises(TokenFilesCorruptError, match=r"train_000000.bin was changed .* remove /"):
        verify_token_files(address, cache=tmp_path / "cache")
    cached.unlink()
    verify_token_files(address, cache=tmp_path / "cache")


def test_damaged_objects_never_enter_the_cache(address, tmp_path):
    write_texts(tmp_path / "t", tokens_per_shard=30)
    upload_token_files(tmp_path / "t", address)
    name = f"{address}/{place_of(tmp_path / 't')}/train_000000.bin"
    sound = store().cat_file(name)
    for damaged in (sound[:-1], sound + b"x", bytes([sound[0] ^ 1]) + sound[1:], b""):
        store().pipe_file(name, damaged)
        with pytest.raises(TokenFilesCorruptError, match=r"train_000000.bin at s3://"):
            TokenFiles.open(address, cache=tmp_path / "cache").document(0)
        assert not list((tmp_path / "cache").rglob("*train_000000*"))
    store().rm_file(name)
    with pytest.raises(TokenFilesCorruptError, match=r"train_000000.bin is missing at s3://"):
        verify_token_files(address, cache=tmp_path / "cache")
    assert [path.name[0] == "." for path in (tmp_path / "cache").iterdir()] == [False]
    store().pipe_file(f"{address}/manifest.json", b"{}")
    with pytest.raises(TokenFilesCorruptError):
        TokenFiles.open(address, cache=tmp_path / "cache")


def test_a_killed_upload_is_invisible_and_goes_on(address, tmp_path, monkeypatch):
    manifest = write_texts(tmp_path / "t", tokens_per_shard=30)
    put = ObjectStorage.put
    sent = []

    def dies(self, name, source):
        sent.append(name)
        if len(sent) == 3:
            raise SystemExit
        put(self, name, source)

    monkeypatch.setattr(ObjectStorage, "put", dies)
    with pytest.raises(SystemExit):
        upload_token_files(tmp_path / "t", address)
    require_free(address)
    with pytest.raises(TokenFilesError, match="never finished"):
        TokenFiles.open(address, cache=tmp_path / "cache")
    upload_token_files(tmp_path / "t", address)
    assert sent.count(sent[0]) == 1, "what was there was sent again"
    assert len(sent) == len(manifest.files()) + 1 + 1  # one failed; and the manifest's copy
    sent.clear()
    assert upload_token_files(tmp_path / "t", address) == manifest
    assert not sent, "uploading once more is no error, and no work"


def test_a_late_writer_is_refused_and_changes_nothing(address, tmp_path, monkeypatch):
    """It found nothing, and creates its manifest after the other writer."""
    write_texts(tmp_path / "t", tokens_per_shard=30)
    write_texts(tmp_path / "late", tokens_per_shard=20)
    create = ObjectStorage.create

    def is_overtaken(self, name, source):
        if name == "manifest.json":
            monkeypatch.setattr(ObjectStorage, "create", create)
            upload_token_files(tmp_path / "t", address)
        return create(self, name, source)

    monkeypatch.setattr(ObjectStorage, "create", is_overtaken)
    with pytest.raises(TokenFilesError, match="already"):
        upload_token_files(tmp_path / "late", address)
    with pytest.raises(TokenFilesError, match=r"has other token files already.*remove them"):
        upload_token_files(tmp_path / "late", address)
    with pytest.raises(TokenFilesError, match="already"):
        require_free(address)
    verify_token_files(address, cache=tmp_path / "cache")
    assert TokenFiles.open(address, cache=tmp_path / "c2").manifest.plan.tokens_per_shard == 30


def test_damaged_files_are_not_uploaded(tmp_path):
    """Against a folder, which is a storage as well."""
    write_texts(tmp_path / "t", tokens_per_shard=30)
    path = tmp_path / "t" / "train_000000.bin"
    sound = path.read_bytes()
    for damaged, why in ((sound[:-1], "bytes, the manifest says"), (sound[::-1], "was changed")):
        path.write_bytes(damaged)
        with pytest.raises(TokenFilesCorruptError, match=f"train_000000.bin .*{why}"):
            upload_token_files(tmp_path / "t", str(tmp_path / "shared"))
    assert not FolderStorage(tmp_path / "shared").names("manifest.json")
    with pytest.raises(TokenFilesError, match="holds no token files"):
        upload_token_files(tmp_path / "nothing", str(tmp_path / "shared"))


def test_a_forked_reader_fetches(address, tmp_path, monkeypatch):
    """Like the worker processes of a loader, forked with an open dataset."""
    monkeypatch.setattr(remote_token_files, "open_storage", open_storage)
    write_texts(tmp_path / "t", tokens_per_shard=30)
    upload_token_files(tmp_path / "t", address)
    files = TokenFiles.open(address, cache=tmp_path / "cache")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(files.decode_document(0, NARROW) != TEXTS[0])
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
