"""Tests here only read, so `client` is the app of their module; others use `own_client`."""

import pytest


@pytest.fixture
def client(shared_client):
    return shared_client
