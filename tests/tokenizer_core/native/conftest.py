"""The compiled module, for tests below the level of the engine."""

import pytest

from tests.native_module import native_module


@pytest.fixture(scope="session")
def native():
    return native_module()
