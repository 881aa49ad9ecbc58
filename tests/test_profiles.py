"""The examples of a test do not depend on the modules that other tests imported before."""

import sys
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples


def tried_examples() -> list[object]:
    tried: list[object] = []

    @settings(examples(3), derandomize=True, database=None)
    @given(st.integers() | st.text() | st.binary() | st.floats(allow_nan=False))
    def record(value):
        tried.append(value)

    record()
    return tried


def test_imported_modules_do_not_change_the_examples(tmp_path, monkeypatch):
    before = tried_examples()
    path = tmp_path / "imported.py"
    path.write_text(f"ALL = {[*range(9_000, 9_200), *map(str, range(200))]}\n")
    module = ModuleType("imported")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "imported", module)
    assert tried_examples() == before
