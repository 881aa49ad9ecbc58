"""Write `digests.json`: the digests of the ids that tiktoken and Hugging Face's library give, and
the fingerprints of our vocabularies. A row has a digest for each text, in the order of the texts.

    python -m tests.parity.make_digests ../shared/data

Run it after a change of the texts or vocabularies in `vocabularies.py`. A fingerprint never
changes: token files and published versions name it.
"""

import hashlib
import json
import sys
from pathlib import Path

from tests.integration.parity.references import load_pair
from tests.parity.vocabularies import (
    DIGEST_BYTES,
    NAMES,
    OPEN_FILES,
    digest_of_ids,
    digest_of_texts,
    digest_texts,
    vocabulary_file,
)

DIGESTS = Path(__file__).with_name("digests.json")


def main(data):
    """Run the libraries on all texts."""
    texts = {engine: digest_texts(data, n_bytes) for engine, n_bytes in DIGEST_BYTES.items()}
    ids = {}
    fingerprints = {}
    for name in [*NAMES, *OPEN_FILES]:
        pair = load_pair(data, name, "native")
        # A vocabulary of characters merges over a line break, so that its texts stay whole.
        encode = pair.encode if name in OPEN_FILES else pair.encode_long
        ids[name] = {
            engine: " ".join(digest_of_ids(encode, parts) for parts in named.values())
            for engine, named in texts.items()
            if engine == "native" or name in NAMES
        }
        fingerprints[name] = pair.ours.spec.fingerprint
        print(name, "done", flush=True)
    found = {
        "vocabularies": {
            name: hashlib.sha256(vocabulary_file(data, name).read_bytes()).hexdigest()
            for name in ids
        },
        "texts": {
            engine: " ".join(map(digest_of_texts, named.values()))
            for engine, named in texts.items()
        },
        "ids": ids,
        "fingerprints": fingerprints,
    }
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
