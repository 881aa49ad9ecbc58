"""Tests here only read, so `client` is the app of their module; others use `own_client`."""

from functools import partial

import pytest

from tests.tokenizer_service.routes import exchanges


@pytest.fixture
def client(shared_client):
    return shared_client


@pytest.fixture
def post(client):
    return partial(exchanges.post, client)


@pytest.fixture
def refused(client):
    return partial(exchanges.refusal, client)
