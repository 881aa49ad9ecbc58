"""The compiled module, for what is tested of it below the engine."""

import pytest

from tests.native_module import native_module


@pytest.fixture(scope="session")
def native():
    return native_module()
