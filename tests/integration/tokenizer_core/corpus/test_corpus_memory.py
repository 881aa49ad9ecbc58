"""Encoding a corpus needs bounded memory, for any size of the corpus and its documents."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.native_module import native_module

# A separate process for each figure. The engine's own memory is measured first: it encodes the same
# text in pieces and drops them, which fills its cache.
PROGRAM = """
import json, resource, sys
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import CorpusFormat, encode_corpus, plan_token_files

file, vocab, folder, separator, workers, shuffle = json.loads(sys.argv[1])
tokenizer = Tokenizer.from_tokenizer_json(vocab)
if folder:
    plan = plan_token_files(tokenizer, end_of_document="<|endoftext|>")
    encode_corpus(
        tokenizer, [file], folder, plan, corpus_format=CorpusFormat(separator=separator),
        workers=workers, shuffle=shuffle,
    )
else:
    with open(file, encoding="utf-8", newline="") as text:
        while piece := text.read(1 << 20):
            tokenizer.encode_to_numpy(piece, num_threads=workers)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_megabytes(*what: object) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(what)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        check=True,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return int(done.stdout) / 1000


@pytest.mark.slow
def test_no_more_than_100_megabytes_over_the_engine(shared_data, tmp_path):
    native_module()
    vocab = str(shared_data / "vocab" / "gpt2.tokenizer.json")
    big = tmp_path / "big.txt"
    with big.open("wb") as file:
        for _ in range(2):
            for corpus in sorted((shared_data / "corpora").glob("*.txt")):
                file.write(corpus.read_bytes())
    engine = [peak_megabytes(str(big), vocab, None, None, workers, False) for workers in (1, 2)]
    found = {}
    for name, separator, workers, shuffle in (
        ("one document", None, 1, False),
        ("one document, two workers", None, 2, False),
        ("lines", "\n", 1, False),
        ("lines, two workers, shuffled", "\n", 2, True),
        ("one document, shuffled", None, 1, True),
    ):
        folder = tmp_path / name
        peak = peak_megabytes(str(big), vocab, str(folder), separator, workers, shuffle)
        found[name] = round(peak - engine[workers - 1])
    print(f"engine {engine} MB, over it: {found}")
    assert max(found.values()) < 100, (engine, found)
