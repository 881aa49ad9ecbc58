"""Our ids have the digests of tiktoken's and Hugging Face's ids, which `make_digests.py` wrote, and
our vocabularies keep their fingerprints.

`tests/integration/parity` compares more texts with the libraries themselves.
"""

import functools
import hashlib
import json
from pathlib import Path

import pytest

from tests.parity.vocabularies import (
    DIGEST_BYTES,
    NAMES,
    OPEN_FILES,
    RANK_FILES,
    digest_of_ids,
    digest_of_texts,
    digest_texts,
    load_ours,
    vocabulary_file,
)
from tokenizer_core.presets import find_preset
from tokenizer_core.registry.golden_text import check_round_trip

DIGESTS = json.loads(Path(__file__).with_name("digests.json").read_text(encoding="utf-8"))


# The Python engine is slow to load and to encode.
CASES = [
    *((name, "native") for name in [*NAMES, *OPEN_FILES]),
    *((name, "python") for name in ("gpt2", "cl100k", "qwen3")),
    *(pytest.param(name, "python", marks=pytest.mark.slow) for name in ("o200k", "llama3")),
]


@functools.cache
def texts_of(data, engine):
    found = digest_texts(data, DIGEST_BYTES[engine])
    there = {name: digest_of_texts(parts) for name, parts in found.items()}
    wanted = dict(zip(found, DIGESTS["texts"][engine].split(), strict=True))
    assert there == wanted, "other data: run tests/parity/make_digests.py"
    return found


def test_the_fingerprints_of_presets_are_those_of_the_references():
    fingerprints = DIGESTS["fingerprints"]
    assert fingerprints["gpt2_json"] in find_preset("gpt2").fingerprints
    for name, preset in RANK_FILES.items():
        assert fingerprints[name] in find_preset(preset).fingerprints


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_ids_have_the_digests_of_the_references(name, engine, shared_data):
    data = vocabulary_file(shared_data, name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == DIGESTS["vocabularies"][name], "another vocabulary"
    tokenizer, texts = load_ours(shared_data, name, engine), texts_of(shared_data, engine)
    assert tokenizer.spec.fingerprint == DIGESTS["fingerprints"][name]
    check_round_trip(tokenizer)  # as before it is published
    ids = {text: digest_of_ids(tokenizer.encode, parts) for text, parts in texts.items()}
    assert ids == dict(zip(texts, DIGESTS["ids"][name][engine].split(), strict=True))
    if tokenizer.spec.normalizer.name == "none":
        for parts in texts.values():
            for part in parts:
                assert tokenizer.decode(tokenizer.encode(part)) == part
