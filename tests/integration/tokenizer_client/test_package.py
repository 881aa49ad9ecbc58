"""The package's examples, run with a real server."""

import doctest
import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import tokenizer_client
from tests.conftest import REPOSITORY
from tokenizer_client import Client

MODULES = [
    module.name
    for module in pkgutil.walk_packages(tokenizer_client.__path__, "tokenizer_client.")
    if not module.ispkg
]


def test_the_examples_run(server):
    attempted = {}
    with Client(server.url) as client:
        for name in MODULES:
            done = doctest.testmod(importlib.import_module(name), extraglobs={"client": client})
            assert done.failed == 0, name
            attempted[name] = done.attempted
    assert attempted["tokenizer_client.client"]
    assert attempted["tokenizer_client.calls.wire_formats"]


@pytest.mark.slow
def test_a_type_checker_sees_the_types(tmp_path):
    (tmp_path / "use.py").write_text(
        "import asyncio\n"
        "from typing import assert_type\n"
        "from tokenizer_client import AsyncClient, Client\n"
        "from tokenizer_client.schemas.jobs import AnyJobView, JobView\n"
        "client = Client(timeout=5, max_retries=2)\n"
        "assert_type(client.encode('a', allowed_special='none'), list[int])\n"
        "assert_type(client.jobs.wait(client.train(documents=['a'])), AnyJobView)\n"
        "assert_type(client.jobs.wait('j'), AnyJobView)\n"
        "async def main() -> None:\n"
        "    async with AsyncClient() as client:\n"
        "        assert_type(await client.encode_batch(['a']), list[list[int]])\n"
        "        assert_type(await client.train(corpus_ids=['a'], wait=True), JobView)\n"
        "        async for job in client.jobs.follow('j'):\n"
        "            assert_type(job, AnyJobView)\n"
        "client.encode(['a'])\n"
        "client.train(vocabulary=3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "use.py"]
    environment = os.environ | {"MYPYPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    errors = [
        line.partition(": error: ")[0] for line in done.stdout.splitlines() if "error:" in line
    ]
    assert errors == ["use.py:15", "use.py:16"], done.stdout
