"""The base class: an engine that omits a required method cannot be instantiated."""

import pytest

from tests.tokenizer_core.engines.random_specs import spec_of
from tokenizer_core.engines.base import BaseEngine


def test_an_engine_without_encode_plain_cannot_be_made():
    class Unfinished(BaseEngine):
        pass

    class Finished(BaseEngine):
        def _encode_plain(self, text: str) -> list[int]:
            return list(text.encode())

    with pytest.raises(TypeError, match="_encode_plain"):
        Unfinished(spec_of([]))
    assert Finished(spec_of([])).count("abc") == 3
