"""The package: its two clients are alike, its examples run, it brings no server along."""

import inspect
import subprocess
import sys

from tests.conftest import REPOSITORY
from tokenizer_client import AsyncTokenizerClient, TokenizerClient


def public(kind):
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    blocking, awaited = public(TokenizerClient), public(AsyncTokenizerClient)
    assert blocking.keys() - {"close"} == awaited.keys() - {"aclose"}
    for name in blocking.keys() - {"close"}:
        mine, other = map(inspect.signature, (blocking[name], awaited[name]))
        assert mine.parameters == other.parameters, name
        assert blocking[name].__doc__ == awaited[name].__doc__, name


def test_help_says_what_a_method_returns():
    def returned(method):
        return str(inspect.signature(method).return_annotation)

    assert returned(TokenizerClient.encode) == "list[int]"
    assert returned(TokenizerClient.encode_stream) == "Generator[IdArray, None, None]"
    assert returned(AsyncTokenizerClient.encode_stream) == "AsyncGenerator[IdArray, None]"


def test_importing_it_brings_no_server_along():
    code = "import sys, tokenizer_client; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    servers = {"fastapi", "starlette", "uvicorn", "sqlite3", "tqdm", "pydantic_settings"}
    assert servers & set(loaded) == set()
    assert {name for name in loaded if name.partition(".")[0] == "app"} == set()
