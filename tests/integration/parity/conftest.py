"""The public vocabularies, as in tests/parity."""

from tests.parity.conftest import pairs

__all__ = ["pairs"]
