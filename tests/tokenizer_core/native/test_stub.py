"""The stub matches the compiled module, is compiled into it and installed beside it."""

import subprocess
import sys
import tomllib

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.thorough
def test_the_stub_is_that_of_the_module(native):
    options = ("--mypy-config-file", "pyproject.toml")
    command = [sys.executable, "-m", "mypy.stubtest", *options, native.__name__]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert checked.returncode == 0, checked.stdout


def test_the_stub_is_compiled_into_the_module(native):
    stub = (REPOSITORY / "tokenizer_core" / "_native.pyi").read_text(encoding="utf-8")
    assert native.STUB.splitlines() == stub.splitlines()


def test_the_stub_is_part_of_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert "_native.pyi" in project["tool"]["setuptools"]["package-data"]["tokenizer_core"]
