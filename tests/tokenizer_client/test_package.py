"""The package: types and docstrings, no server imported, literal limits."""

import inspect
import re
import subprocess
import sys
import typing

import httpx
import pytest

from tokenizer_client import Client
from tokenizer_client.schemas import jobs, text, tokens
from tokenizer_core.registry import aliases, versions
from tokenizer_core.spec import checks
from tokenizer_core.training import vocabulary_plan

SERVER = {"pydantic_settings", "sqlite3", "starlette", "tokenizer_service", "tqdm", "uvicorn"}


def test_every_method_has_types_and_a_docstring():
    """`help(client.encode)` must not show `(session, text, **options)`."""
    client = Client(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    owners = (client, client.jobs, client.corpora, client.tokenizers, client.token_files)
    methods = [
        getattr(owner, name)
        for owner in owners
        for name in dir(type(owner))
        if not name.startswith("_") and callable(getattr(type(owner), name))
    ]
    assert len(methods) > 45
    for method in methods:
        assert inspect.getdoc(method), method
        for parameter in inspect.signature(method).parameters.values():
            assert parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            assert parameter.annotation not in (parameter.empty, "Any"), (method, parameter)
        assert typing.get_type_hints(method)["return"] is not typing.Any


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("tokenizer_client", {"tokenizer_core"}),
        ("tokenizer_core", {"tokenizer_client", "httpx", "pydantic"}),
    ],
)
def test_importing_a_package_imports_nothing_of_the_server(tmp_path, package, others):
    code = f"import sys; from {package} import *; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True).split()
    roots = {name.partition(".")[0] for name in loaded}
    assert package in roots
    assert roots & (SERVER | others) == set()


def test_completion_offers_what_is_imported_on_first_use():
    code = (
        "import tokenizer_client as client, tokenizer_core as core, tokenizer_core.corpus as corpus"
        "\nfor package in (client, core, corpus): assert {*package.__all__} <= {*dir(package)}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_literal_limits_are_those_of_the_library():
    assert jobs.MAX_VOCAB_SIZE == checks.MAX_TOKEN_ID + 1
    assert jobs.MAX_RESERVED == vocabulary_plan.MAX_RESERVED
    assert jobs.RESERVED_NAME == versions.ACTIVE
    assert f"^{versions.NAME.pattern}$" == tokens.PLAIN_NAME_PATTERN
    longest = aliases.checked_alias("~" * 200)
    assert re.match(tokens.TOKENIZER_PATTERN, longest)
    assert tokens.MAX_ID == text.MAX_TOKEN_LIMIT == 2**32 - 1
