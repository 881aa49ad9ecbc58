"""Shared by all tests: the Hypothesis profiles, the larger data, the two engines."""

import gc
import os
from pathlib import Path

import pytest

from tests import profiles
from tests.native_module import native_module
from tests.reliability.names import pytest_itemcollected

__all__ = ["pytest_itemcollected"]

profiles.register()
os.environ["TOKENIZER_COMPILED"] = "off"  # tests write nothing to the cache of the user

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items):
    """Mark the tests of the integration tier, which its folder holds."""
    folder = REPOSITORY / "tests" / "integration"
    for item in items:
        if folder in item.path.parents:
            item.add_marker("integration")


def pytest_collection_finish():
    """Take what lives as long as the session out of later collections of garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    """Skips a test marked `torch` without torch."""
    if item.get_closest_marker("torch"):
        pytest.importorskip("torch", reason="torch is not installed: make test-language-model")


@pytest.fixture(scope="session")
def shared_data():
    """The folder with `corpora/`, `vocab/` and `cs336/`; tests that request it skip without it."""
    named = os.environ.get("TOKENIZER_TEST_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (folder / "vocab").is_dir():
        pytest.skip(f"no test data in {folder}; set TOKENIZER_TEST_DATA to its folder")
    return folder


@pytest.fixture(scope="session", params=["python", "native"])
def engine(request):
    """The name of an engine; a test that requests it runs on each. Skips where one is missing."""
    if request.param == "native":
        native_module()
    return request.param
