"""Fixtures for the service: a small tokenizer in its own store, and an app that serves it."""

import shutil

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from tests.tokenizer_service import run_cli
from tests.tokenizer_service.chats import rendering_here
from tests.tokenizer_service.run_cli import Cli
from tokenizer_core import Tokenizer, TokenizerSpec, train_bpe
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings

__all__ = ["rendering_here"]

ADMIN_KEY = "an-admin-key-for-the-tests"
SPECIALS = ["<|endoftext|>", "<|a|>", "<|a|><|a|>"]
CORPUS = (
    "the quick brown fox jumps over the lazy dog and the other quick foxes. "
    "low low lower newest newest widest widest widest don't we'll 12345 12 1999 "
    "héllo wörld café naïve 中文字符 中文 Привет мир   \n\n  end\r\n\r\n"
) * 3


@pytest.fixture(scope="session")
def anyio_backend():
    """Tests that are coroutines run on the event loop of the service."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def small_spec(tmp_path_factory):
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    corpus.write_bytes(CORPUS.encode())
    vocab, merges = train_bpe(corpus, 400, SPECIALS, num_workers=1)
    return TokenizerSpec.from_merges(vocab, merges, SPECIALS)


@pytest.fixture(scope="session")
def other_spec():
    """Single bytes, with every id increased by 1000: no id is also one of `small_spec`."""
    vocab = {1000 + byte: bytes([byte]) for byte in range(256)}
    return TokenizerSpec.from_merges(vocab, [], ["<|endoftext|>"])


@pytest.fixture(scope="session")
def small_tokenizer(small_spec):
    return Tokenizer.from_spec(small_spec)


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """The command, in a folder that has a corpus and no tokenizer."""
    (tmp_path / "corpus.txt").write_text(run_cli.CORPUS)
    return Cli(tmp_path, monkeypatch)


@pytest.fixture
def trained(cli):
    """The command, in a folder where `worked` is trained and active."""
    cli.run("train", "corpus.txt", "--vocab-size", "265", "--name", "worked", "--promote")
    return cli


@pytest.fixture(scope="session")
def starter_artifacts(small_spec, tmp_path_factory):
    """A folder of artifacts with `small_spec` as `starter`."""
    folder = tmp_path_factory.mktemp("published") / "artifacts"
    ArtifactStore(folder).publish(small_spec, name="starter")
    return folder


@pytest.fixture
def store(tmp_path, starter_artifacts):
    return ArtifactStore(shutil.copytree(starter_artifacts, tmp_path / "artifacts"))


@pytest.fixture
def settings(store):
    return settings_for(store)


def settings_for(store):
    return Settings(artifacts_dir=store.root, admin_keys=(SecretStr(ADMIN_KEY),), threads=2)


def serve(store, **changes):
    """An app over `store` with these settings, for a `with`."""
    return TestClient(create_app(settings_for(store).model_copy(update=changes)))


@pytest.fixture
def client(settings):
    with TestClient(create_app(settings), raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def own_client(make_client):
    """An app for one test, also where `client` is the app of the module."""
    with make_client() as client:
        yield client


@pytest.fixture(scope="module")
def shared_store(starter_artifacts, tmp_path_factory):
    """The store of `shared_client`; a test may publish under a name of its own."""
    folder = tmp_path_factory.mktemp("shared") / "artifacts"
    return ArtifactStore(shutil.copytree(starter_artifacts, folder))


@pytest.fixture(scope="module")
def shared_client(shared_store):
    """One app for all tests of a module that change nothing which another one sees."""
    with serve(shared_store) as client:
        yield client


@pytest.fixture
def starter(starter_artifacts):
    """The version of `starter`, the same in all stores."""
    return ArtifactStore(starter_artifacts).resolve("starter")


@pytest.fixture
def make_client(settings):
    """Use the result in a `with`: it starts and ends the app."""

    def make(**changes):
        return TestClient(create_app(settings.model_copy(update=changes)))

    return make
