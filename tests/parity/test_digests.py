"""Our ids have the digests of tiktoken's and Hugging Face's ids, which `make_digests.py` wrote.

`tests/integration/parity` compares more texts with the libraries themselves.
"""

import hashlib
import json
from pathlib import Path

import pytest

from tests.parity.vocabularies import (
    DIGEST_BYTES,
    NAMES,
    digest_of_ids,
    digest_of_texts,
    digest_texts,
    load_ours,
    vocabulary_file,
)

DIGESTS = json.loads(Path(__file__).with_name("digests.json").read_text(encoding="utf-8"))

Texts = dict[str, list[str]]


@pytest.fixture(scope="module")
def texts(engine: str, shared_data: Path) -> Texts:
    found = digest_texts(shared_data, DIGEST_BYTES[engine])
    there = {name: digest_of_texts(parts) for name, parts in found.items()}
    assert there == DIGESTS["texts"][engine], "other data: run tests/parity/make_digests.py"
    return found


@pytest.mark.shared_data
@pytest.mark.parametrize("name", NAMES)
def test_ids_have_the_digests_of_the_references(
    name: str, engine: str, texts: Texts, shared_data: Path
) -> None:
    data = vocabulary_file(shared_data, name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS["vocabularies"][name], "another vocabulary"
    tokenizer = load_ours(shared_data, name, engine)
    ids = {text: digest_of_ids(tokenizer.encode, parts) for text, parts in texts.items()}
    assert ids == DIGESTS["ids"][name][engine]
    if tokenizer.spec.normalizer == "none":
        for parts in texts.values():
            for part in parts:
                assert tokenizer.decode(tokenizer.encode(part)) == part
