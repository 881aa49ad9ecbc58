"""The package: two clients alike, no server imported, the alias, literal limits."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tokenizer_client
from tests.conftest import REPOSITORY
from tokenizer_client import AsyncClient, Client
from tokenizer_client.schemas import jobs, text, tokens
from tokenizer_core import spec
from tokenizer_core.registry import versions
from tokenizer_core.training import vocabulary_plan

SERVER = {"app", "fastapi", "pydantic_settings", "sqlite3", "starlette", "tqdm", "uvicorn"}


def public(kind):
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_both_clients_have_the_same_methods():
    blocking, awaited = public(Client), public(AsyncClient)
    assert blocking.keys() - {"close"} == awaited.keys() - {"aclose"}
    for name in blocking.keys() - {"close"}:
        mine, other = map(inspect.signature, (blocking[name], awaited[name]))
        assert mine.parameters == other.parameters, name
        assert blocking[name].__doc__ == awaited[name].__doc__, name


def test_help_says_what_a_method_returns():
    def returned(method):
        return str(inspect.signature(method).return_annotation)

    assert returned(Client.encode) == "list[int]"
    assert returned(Client.encode_stream) == "Generator[IdArray, None, None]"
    assert returned(AsyncClient.encode_stream) == "AsyncGenerator[IdArray, None]"


def run_python(code: str, folder: Path) -> str:
    """The output of `code` in a separate process, started as a user would in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("tokenizer_client", {"tokenizer_core"}),
        ("tokenizer_core", {"tokenizer_client", "httpx", "pydantic"}),
    ],
)
def test_importing_a_package_imports_nothing_of_the_server(tmp_path, package, others):
    loaded = run_python(f"import sys, {package}; print(*sys.modules)", tmp_path).split()
    roots = {name.partition(".")[0] for name in loaded}
    assert package in roots
    assert roots & (SERVER | others) == set()


def test_a_project_with_a_folder_app_can_use_the_client(tmp_path):
    """`app.client` was not importable there: the project's own `app` hides the service's."""
    for name in ("app", "app/schemas", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'the project'\n")
    code = (
        "import app, app.schemas\n"
        "from tokenizer_client import AsyncClient, Client\n"
        "with Client('http://service.example') as client:\n"
        "    print(app.OWNER, app.schemas.OWNER, client)\n"
    )
    shown = run_python(code, tmp_path)
    assert shown == "the project the project Client('http://service.example')\n"


def test_app_client_is_an_alias_that_warns():
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from app.client import *\n"
        "    from app.client import __all__ as names\n"
        "print(len(names), [(w.category.__name__, w.filename) for w in caught])\n"
        "print(caught[0].message)\n"
        "import tokenizer_client\n"
        "assert TokenizerClient is tokenizer_client.Client\n"
        "assert AsyncTokenizerClient is tokenizer_client.AsyncClient\n"
        "assert UnexpectedAnswerError is tokenizer_client.UnexpectedResponseError\n"
        "assert NotFoundError is tokenizer_client.NotFoundError\n"
    )
    first, second = run_python(code, REPOSITORY).splitlines()
    assert first == f"{len(tokenizer_client.__all__)} [('DeprecationWarning', '<string>')]"
    assert "from tokenizer_client import Client, AsyncClient" in second


def test_literal_limits_are_those_of_the_library():
    assert jobs.MAX_VOCAB_SIZE == spec.MAX_TOKEN_ID + 1
    assert jobs.MAX_RESERVED == vocabulary_plan.MAX_RESERVED
    assert jobs.RESERVED_NAME == versions.ACTIVE
    name, version = versions.NAME.pattern, versions.VERSION.pattern
    assert f"^{name}$" == tokens.PLAIN_NAME_PATTERN
    assert f"^{name}(@{version})?$".replace("(", "").replace(")", "") == (
        tokens.NAME_PATTERN.replace("(", "").replace(")", "")
    )
    assert tokens.MAX_ID == text.MAX_TOKEN_LIMIT == 2**32 - 1
