"""The public vocabularies, each loaded once for each engine."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.parity.references import Pair, load_pair


@pytest.fixture(scope="session")
def pairs(shared_data: Path, engine: str) -> Callable[[str], Pair]:
    """Each vocabulary loaded at most once in a session, for each engine."""
    loaded: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in loaded:
            loaded[name] = load_pair(shared_data, name, engine)
            gc.collect()
            gc.freeze()  # by a profile, collecting garbage took an eighth of the tests' time
        return loaded[name]

    return get
