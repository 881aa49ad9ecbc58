"""The stub is compiled into the module and installed beside it; `make check` compares them."""

import tomllib

from tests.conftest import REPOSITORY


def test_the_stub_is_compiled_into_the_module(native):
    stub = (REPOSITORY / "tokenizer_core" / "_native.pyi").read_text(encoding="utf-8")
    assert native.STUB.splitlines() == stub.splitlines()


def test_the_stub_is_part_of_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert "_native.pyi" in project["tool"]["setuptools"]["package-data"]["tokenizer_core"]
