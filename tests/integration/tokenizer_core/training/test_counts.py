"""Counts under a ceiling keep their memory near it."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native_module import native_module

MEASURE = """
import json, sys
from pathlib import Path
from tokenizer_core.engines import native
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import count_pretokens

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

corpus, engine, ceiling, output = sys.argv[1:]
count_pretokens([corpus + ".first"], pattern=PATTERNS["gpt2"], engine=engine)
before = memory("VmRSS")
counts = count_pretokens(
    [corpus], pattern=PATTERNS["gpt2"], engine=engine, num_workers=1,
    max_memory_bytes=int(ceiling) or None,
)
counts.save(output)
print(json.dumps({
    "took": memory("VmHWM") - before, "distinct": len(counts.counts), "spills": counts.n_spills,
    "n_bytes": counts.n_pre_token_bytes,
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's peak memory")
@pytest.mark.parametrize("engine_name", ["native", "python"])
def test_memory_stays_near_the_ceiling(engine_name, tmp_path):
    if engine_name == "native":
        native_module()
    ceiling = (16 if engine_name == "native" else 32) << 20
    rng = random.Random(1)
    corpus = tmp_path / "corpus.txt"
    with corpus.open("w") as file:
        for _ in range(150):  # 24 MB or 12 MB, nearly all of it distinct
            n_words = 10_000 if engine_name == "native" else 5_000
            file.write(" ".join(f"{rng.getrandbits(60):x}" for _ in range(n_words)).translate(
                str.maketrans("0123456789", "ghijklmnop")) + "\n")  # fmt: skip
    Path(f"{corpus}.first").write_text("what is needed once, whatever is counted")
    measured = {}
    for limit in (0, ceiling):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, corpus, engine_name, str(limit), tmp_path / f"{limit}"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        measured[limit] = json.loads(done.stdout)
    print(measured)
    plain, bounded = measured[0], measured[ceiling]
    assert bounded["spills"] > 1
    assert plain["n_bytes"] == bounded["n_bytes"] == corpus.stat().st_size
    assert (tmp_path / "0").read_bytes() == (tmp_path / f"{ceiling}").read_bytes()
    # After counting, the native engine holds the sum in packed form: text, length and count.
    packed = 24 * bounded["distinct"] if engine_name == "native" else 0
    assert bounded["took"] < max(ceiling, packed) + (16 << 20)
    assert bounded["took"] < plain["took"] / 2
