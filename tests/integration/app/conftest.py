"""The fixtures of the service, as in tests/app."""

from tests.app.conftest import cli, client, make_client, settings, starter, store, trained

__all__ = ["cli", "client", "make_client", "settings", "starter", "store", "trained"]
