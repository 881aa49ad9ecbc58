"""The package: two clients alike, no server imported, the alias, literal limits."""

import inspect
import subprocess
import sys
import typing

import httpx
import pytest

from tokenizer_client import AsyncClient, Client
from tokenizer_client.schemas import jobs, text, tokens
from tokenizer_core import spec
from tokenizer_core.registry import versions
from tokenizer_core.training import vocabulary_plan

SERVER = {"pydantic_settings", "sqlite3", "starlette", "tokenizer_service", "tqdm", "uvicorn"}


def public(kind):
    """Path -> public method of a client and of its resources."""
    client = kind(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    names = ("jobs", "corpora", "tokenizers", "token_files")
    owners = {"": client} | {f"{name}.": getattr(client, name) for name in names}
    return {
        prefix + name: getattr(type(owner), name)
        for prefix, owner in owners.items()
        for name in dir(type(owner))
        if not name.startswith("_") and callable(getattr(type(owner), name))
    }


def test_every_method_has_types_and_a_docstring_and_is_alike_in_both_clients():
    """`help(client.encode)` must not show `(session, text, **options)`."""
    blocking, awaited = public(Client), public(AsyncClient)
    assert blocking.keys() - {"close"} == awaited.keys() - {"aclose"}
    assert len(blocking) > 45
    for name in sorted(blocking.keys() - {"close"}):
        mine, other = map(inspect.signature, (blocking[name], awaited[name]))
        assert mine.parameters == other.parameters, name
        assert inspect.getdoc(blocking[name]), name
        _, *parameters = mine.parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        for parameter in parameters:
            assert parameter.annotation not in (parameter.empty, "Any"), (name, parameter)
        is_stream = str(mine.return_annotation).startswith("Generator[")
        assert inspect.iscoroutinefunction(awaited[name]) != (is_stream or name == "pinned")
        assert typing.get_type_hints(blocking[name])["return"] is not typing.Any


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("tokenizer_client", {"tokenizer_core"}),
        ("tokenizer_core", {"tokenizer_client", "httpx", "pydantic"}),
    ],
)
def test_importing_a_package_imports_nothing_of_the_server(tmp_path, package, others):
    code = f"import sys, {package}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True).split()
    roots = {name.partition(".")[0] for name in loaded}
    assert package in roots
    assert roots & (SERVER | others) == set()


def test_literal_limits_are_those_of_the_library():
    assert jobs.MAX_VOCAB_SIZE == spec.MAX_TOKEN_ID + 1
    assert jobs.MAX_RESERVED == vocabulary_plan.MAX_RESERVED
    assert jobs.RESERVED_NAME == versions.ACTIVE
    name, version = versions.NAME.pattern, versions.VERSION.pattern
    assert f"^{name}$" == tokens.PLAIN_NAME_PATTERN
    groups = str.maketrans("", "", "()")
    assert f"^{name}(@{version})?$".translate(groups) == tokens.NAME_PATTERN.translate(groups)
    assert tokens.MAX_ID == text.MAX_TOKEN_LIMIT == 2**32 - 1
