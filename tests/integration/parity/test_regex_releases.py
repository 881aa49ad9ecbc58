"""Two releases of `regex` with different Unicode tables split every text alike.

The tests themselves run on one release; the child process imports another, which
`make test-integration` installs for transformers. This file is also that child:
it prints the digests.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.parity.transformers_reader import FOLDER, TransformersReader
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.normalizers.nfc import Nfc
from tokenizer_core.splitting.patterns import METASPACE, PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.splitting.pretokenize import find_safe_cut, split, split_settled
from tokenizer_core.splitting.unicode_sets import version_of_regex

REPOSITORY = Path(__file__).parents[3]
CUSTOM = [
    SplitPattern("custom", r"[\p{L}&&[^\p{Han}]]+|\p{Han}+|\w|\W+|\b", "oniguruma"),
    SplitPattern("custom", r"[^\s\p{Lu}]+|\s+(?!\S)|\s|\p{Lu}", "fancy-regex"),
    resolve_pattern(r"\w+|[^\w\s]+|\s+\b|\s"),
    resolve_pattern(r"(?V1)[\p{L}--\p{Lu}]+|.|\n"),
]


def digests():
    """What patterns make of code points in several contexts: those of most scripts, and a sample of
    the others."""
    codes = [c for c in range(0x110000) if c < 0x3400 or c % 17 == 0]
    characters = [chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF]
    rng = random.Random(5)
    texts = [context.join(characters) for context in ("", "a", " 'S")]
    mixed = "".join(rng.choices(characters, k=20_000))
    folded = ["'", "s", "S", "ſ", "ll", "LL", "st", "ﬆ", "ß", "ve", "RE", " ", "ﬀ", "K", "İ", "ı"]
    texts += [mixed, "".join(rng.choices(folded, k=5_000))]
    found = []
    # A custom pattern in Python's dialect is slow with the other release.
    for pattern in [*PATTERNS.values(), METASPACE, *CUSTOM]:
        for text in texts if pattern.is_named else [mixed[:5_000]]:
            joined = "\0".join(split(text, pattern)).encode()
            settled = split_settled(text[:2000], pattern)[1]
            cut = find_safe_cut(text, 1000, pattern)
            found.append([hashlib.sha256(joined).hexdigest(), settled, cut])
    offsets = Nfc().align("e\u0301".join(characters[::7])).runs.tobytes()
    normalized = normalize_nfc("\u0301".join(characters)).encode()
    return [*found, [hashlib.sha256(offsets + normalized).hexdigest()]]


@pytest.mark.skipif(
    not TransformersReader.is_there(), reason="no other regex; make test-integration installs it"
)
def test_another_release_of_regex_splits_code_points_alike():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), str(REPOSITORY)])}
    child = subprocess.run(
        [sys.executable, __file__],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=900,
        check=True,
    )
    release, found = json.loads(child.stdout)
    assert release != version_of_regex()
    assert found == digests()


if __name__ == "__main__":
    print(json.dumps([version_of_regex(), digests()]))
