"""The stub is compiled into the module and installed beside it; `make check` compares them."""

from tests.conftest import REPOSITORY


def test_the_stub_is_compiled_into_the_module(native):
    stub = (REPOSITORY / "tokenizer_core" / "_native.pyi").read_text(encoding="utf-8")
    assert native.STUB.splitlines() == stub.splitlines()
