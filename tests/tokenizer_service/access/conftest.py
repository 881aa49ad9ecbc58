"""Tests here only read, so `client` is the app of their module; others use `own_client`."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient


@pytest.fixture
def client(shared_client: TestClient) -> TestClient:
    return shared_client
