"""Worker processes import the work of these tests by name."""

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(autouse=True)
def _work_is_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY))
