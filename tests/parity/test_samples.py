"""Our ids equal those of tiktoken and of Hugging Face's library, on samples of real text.

`tests/integration/parity` compares more vocabularies and more texts.
"""

import pytest

from tests.integration.parity.references import check_samples, load_pair
from tests.parity.vocabularies import NAMES

# The Python engine is slow to load and to encode.
CASES = [
    *((name, "native", 40_000) for name in NAMES),
    ("cl100k", "python", 10_000),
    ("qwen3", "python", 10_000),
]


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "engine", "n_bytes"), CASES)
def test_ids_equal_the_references(name, engine, n_bytes, shared_data):
    check_samples(load_pair(shared_data, name, engine), shared_data, n_bytes)
