"""Every public vocabulary on every corpus, whole: `make parity-full`.

The tests compare the beginning of each corpus; this compares all of it, which takes as long as the
slowest reference does. For each pair, with the requested engine:

- the ids of the whole file equal those of tiktoken or Hugging Face `tokenizers`,
- they are the same with two and with three threads, as a list, and counted,
- they decode to the text (its NFC, where the vocabulary normalizes),
- they are the same when streamed with 200 seeded cuts,
- a sample of the file, at a seeded place, gives the same with the other engine.

Exit status: 0 when all is equal, 1 when anything differs, 2 without the data.
"""

import argparse
import dataclasses
import hashlib
import os
import random
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tests.conftest import REPOSITORY
from tests.integration.parity.references import Pair, first_difference, load_pair
from tests.parity.vocabularies import CORPORA, JSON_FILES, NAMES, RANK_FILES
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.normalize import normalize_nfc

N_CUTS = 200
OTHER_ENGINE = {"native": "python", "python": "native"}


@dataclasses.dataclass
class Row:
    """The result of one pair; `differences` should be empty."""

    vocabulary: str
    corpus: str
    n_bytes: int
    n_ids: int
    seconds: float
    differences: list[str]


def reference_ids(pair: Pair, path: Path, text: str, kept: Path | None) -> np.ndarray:
    """The reference's ids, from an earlier run if it saved them."""
    if kept is None:
        return pair.encode_long(text)
    library = f"tiktoken {version('tiktoken')} tokenizers {version('tokenizers')}"
    digest = hashlib.sha256(f"{library} {pair.name} {path.stem} ".encode() + text.encode())
    file = kept / f"{pair.name}-{path.stem}-{digest.hexdigest()[:16]}.npy"
    if not file.exists():
        kept.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}.npy")
        np.save(unfinished, pair.encode_long(text))
        unfinished.replace(file)
    return np.load(file)


def differences(
    pair: Pair, expected: np.ndarray, text: str, other: Tokenizer | None, n_sample: int
) -> Iterator[str]:
    """The differences, as text for people."""
    ours = pair.ours
    ways = {
        "one thread": lambda: ours.encode_to_numpy(text),
        "two threads": lambda: ours.encode_to_numpy(text, num_threads=2),
        "three threads": lambda: ours.encode_to_numpy(text, num_threads=3),
        "as a list": lambda: np.array(ours.encode(text), dtype=np.uint32),
        "streamed": lambda: stream(ours, text, f"{pair.name} {len(text)}"),
    }
    for way, encode in ways.items():
        ids = encode()
        if not np.array_equal(ids, expected):
            yield f"{way}: {first_difference(ids, expected)}"
    if (n_ids := ours.count(text)) != len(expected):
        yield f"counted: {n_ids}, not {len(expected)}"
    original = normalize_nfc(text) if ours.spec.normalizer == "nfc" else text
    decoded = ours.decode_bytes(expected)
    # Added tokens are taken out before the text is normalized; none here has a mark.
    if decoded != original.encode():
        yield f"decoded: {len(decoded)} bytes, not the text's {len(original.encode())}"
    if other is not None:
        start = random.Random(f"{pair.name} {len(text)}").randrange(max(1, len(text) - n_sample))
        sample = text[start : start + n_sample]
        if found := first_difference(ours.encode(sample), other.encode(sample)):
            yield f"{other.engine_name} engine, sample from character {start}: {found}"


def stream(tokenizer: Tokenizer, text: str, seed: str) -> np.ndarray:
    """The ids of a text fed in pieces, cut at seeded places."""
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(text)), min(N_CUTS, len(text) - 1)))
    encoder = StreamingEncoder(tokenizer)
    pieces = (text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))
    parts = [np.array(encoder.feed(piece), dtype=np.uint32) for piece in pieces]
    return np.concatenate([*parts, np.array(encoder.finish(), dtype=np.uint32)])


def compare(arguments: argparse.Namespace, data: Path) -> Iterator[Row]:
    """One row for each pair, as soon as it is done."""
    other_engine = OTHER_ENGINE[arguments.engine]
    for name in arguments.vocabularies:
        print(f"loading {name}", file=sys.stderr)
        pair = load_pair(data, name, arguments.engine)
        has_other = other_engine == "python" or native_unavailable_reason() is None
        other = Tokenizer.from_spec(pair.ours.spec, engine=other_engine) if has_other else None
        for corpus in arguments.corpora:
            path = data / "corpora" / f"{corpus}.txt"
            started = time.monotonic()
            with path.open("rb") as file:
                content = file.read(arguments.max_bytes or -1)
            text = content.decode("utf-8", "ignore")
            expected = reference_ids(pair, path, text, arguments.keep_references)
            found = list(differences(pair, expected, text, other, arguments.sample_chars))
            seconds = time.monotonic() - started
            yield Row(name, corpus, len(text.encode()), len(expected), seconds, found)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.integration.parity.whole_corpora",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--engine", choices=sorted(OTHER_ENGINE), default="native")
    parser.add_argument("--vocabularies", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=CORPORA, metavar="NAME")
    parser.add_argument("--max-bytes", type=int, help="of each corpus (default: all)")
    parser.add_argument(
        "--sample-chars", type=int, default=300_000, help="of each corpus on the other engine"
    )
    parser.add_argument(
        "--keep-references", type=Path, metavar="FOLDER", help="keep the references' ids there"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    data = Path(os.environ.get("TOKENIZER_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (data / "vocab").is_dir():
        print(f"no test data in {data}; set TOKENIZER_TEST_DATA to its folder", file=sys.stderr)
        return 2
    references = ", ".join(
        f"{library} {version(library)} for {', '.join(names)}"
        for library, names in (("tiktoken", RANK_FILES), ("tokenizers", JSON_FILES))
    )
    print(f"engine {arguments.engine}; references: {references}")
    print(f"{'vocabulary':10} {'corpus':20} {'MB':>7} {'ids':>11} {'s':>6}  result", flush=True)
    rows = []
    for row in compare(arguments, data):
        rows.append(row)
        result = "equal" if not row.differences else "; ".join(["DIFFERENT", *row.differences])
        print(
            f"{row.vocabulary:10} {row.corpus:20} {row.n_bytes / 1e6:7.2f} {row.n_ids:11,} "
            f"{row.seconds:6.1f}  {result}",
            flush=True,
        )
    n_equal = sum(not row.differences for row in rows)
    print(
        f"{n_equal} of {len(rows)} pairs equal: {sum(row.n_bytes for row in rows) / 1e6:,.0f} MB, "
        f"{sum(row.n_ids for row in rows):,} ids, each encoded five ways, counted and decoded"
    )
    return 0 if rows and n_equal == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
