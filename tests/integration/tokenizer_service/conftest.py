"""The fixtures of the service, as in tests/tokenizer_service."""

from tests.tokenizer_service.conftest import cli, starter, starter_artifacts, store, trained

__all__ = ["cli", "starter", "starter_artifacts", "store", "trained"]
