"""Counts under a ceiling keep their memory near it."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import json, sys
from pathlib import Path
from tokenizer_core.engines import native
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import count_pretokens

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

corpus, engine, ceiling = sys.argv[1:]
count_pretokens([corpus + ".first"], pattern=PATTERNS["gpt2"], engine=engine)
before = memory("VmRSS")
counts = count_pretokens(
    [corpus], pattern=PATTERNS["gpt2"], engine=engine, num_workers=1,
    max_memory_bytes=int(ceiling) or None,
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
    measured = []
    for limit in (0, ceiling):
        command = [sys.executable, "-c", MEASURE, corpus, engine, str(limit)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured.append(json.loads(done.stdout))
    plain, bounded = measured
    assert bounded["spills"] > 1
    assert plain["n_bytes"] == bounded["n_bytes"] == corpus.stat().st_size
    # After counting, the native engine holds the sum in packed form: text, length and count.
    packed = 24 * bounded["distinct"] if engine == "native" else 0
    assert bounded["took"] < max(ceiling, packed) + (16 << 20)
    assert bounded["took"] < plain["took"] / 2
