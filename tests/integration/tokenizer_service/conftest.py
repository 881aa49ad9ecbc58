"""The fixtures of the service, as in tests/tokenizer_service."""

from tests.tokenizer_service.conftest import (
    cli,
    client,
    make_client,
    settings,
    starter,
    starter_artifacts,
    store,
    trained,
)

__all__ = [
    "cli",
    "client",
    "make_client",
    "settings",
    "starter",
    "starter_artifacts",
    "store",
    "trained",
]
