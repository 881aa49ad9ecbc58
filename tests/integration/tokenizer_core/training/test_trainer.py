"""Counting and training with real worker processes, and within a ceiling of memory."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tokenizer_core.training.test_trainer import COUNTING, EXAMPLE, GPT2, corpus, use_engine
from tokenizer_core.training import TrainingOptions, count_pretokens, train

__all__ = ["corpus", "use_engine"]


@pytest.fixture(autouse=True)
def use_processes(monkeypatch):
    """For a corpus of any size, however small."""
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)


@pytest.mark.promise(18)
def test_the_result_and_the_end_of_progress_are_the_same_for_any_number_of_workers(corpus):
    corpus.write_text(f"{EXAMPLE} 漢字<|e|> " * 300)
    size = corpus.stat().st_size
    fingerprints = set()
    for n_workers in (1, 2, 4):
        events = []
        options = TrainingOptions(263, ["<|e|>"], num_workers=n_workers, chunk_bytes=900)
        fingerprints.add(train([corpus], options, progress=events.append).spec.fingerprint)
        counting = [event for event in events if event.phase == "count"]
        learning = [event for event in events if event.phase == "learn"]
        assert events == counting + learning
        assert (counting[-1].done, counting[-1].total) == (size, size)
        assert (learning[-1].done, learning[-1].total) == (6, 6)
    assert len(fingerprints) == 1


def test_workers_are_replaced_and_nothing_is_lost(corpus, monkeypatch):
    monkeypatch.setattr(COUNTING, "_CHUNKS_BEFORE_REPLACEMENT", 2)
    corpus.write_text("some words " * 1_000)
    counted = count_pretokens(
        [corpus], pattern=GPT2, chunk_bytes=1_000, num_workers=2, engine="python"
    )
    assert counted.counts == {"some": 1, " words": 1_000, " some": 999, " ": 1}


MEASURE = """
import json, sys
from pathlib import Path
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.training import count_pretokens

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

corpus, engine, ceiling = sys.argv[1:]
count_pretokens([corpus + ".first"], pattern=PATTERNS["gpt2"], engine=engine)
before = memory("VmRSS")
counts = count_pretokens(
    [corpus], pattern=PATTERNS["gpt2"], engine=engine, num_workers=1,
    max_memory_bytes=int(ceiling),
)
counts.save(corpus + ".counts")
print(json.dumps({
    "took": memory("VmHWM") - before, "distinct": len(counts.counts), "spills": counts.n_spills,
    "n_bytes": counts.n_pre_token_bytes,
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's peak memory")
def test_memory_stays_near_the_ceiling(engine, tmp_path):
    ceiling = (16 if engine == "native" else 32) << 20
    rng = random.Random(1)
    corpus = tmp_path / "corpus.txt"
    letters = str.maketrans("0123456789", "ghijklmnop")
    with corpus.open("w") as file:
        for _ in range(150):  # 24 MB or 12 MB, nearly all of it distinct
            n_words = 10_000 if engine == "native" else 5_000
            words = " ".join(f"{rng.getrandbits(60):x}" for _ in range(n_words))
            file.write(words.translate(letters) + "\n")
    Path(f"{corpus}.first").write_text("what is needed once, whatever is counted")
    command = [sys.executable, "-c", MEASURE, corpus, engine, str(ceiling)]
    # glibc returns freed blocks at once; what it keeps otherwise depends on addresses.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    measured = json.loads(done.stdout)
    assert measured["spills"] > 1
    assert measured["n_bytes"] == corpus.stat().st_size
    # After counting, the native engine holds the sum in packed form: text, length and count.
    packed = 24 * measured["distinct"] if engine == "native" else 0
    assert measured["took"] < max(ceiling, packed) + (16 << 20)
