"""Encodings that are killed and resume from their checkpoint, in real processes."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tests.tokenizer_core.corpus.small_corpora import NARROW, content
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import CorpusFormat, can_resume, encode_corpus, plan_token_files

# The kill ends the process that encodes, and with the Python engine its workers. The process sends
# the signal to itself, from the thread that writes or from one that waits a moment, so that it
# makes progress each time, however slow the machine is.
PROGRAM = """
import json, os, random, signal, sys, threading
from tests.integration.tokenizer_core.corpus import test_corpus_resume as here
from tokenizer_core.corpus import corpus_encoding, encoding_run

what, seed, seconds, most_batches, corpus_encoding.BATCH_BYTES = json.loads(sys.argv[1])
encoding_run.CHECKPOINT_SECONDS = 0
draws = random.Random(seed)
left = draws.randint(2, most_batches) if seed else 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def count(progress):
    global left
    left -= 1
    if not left:
        threading.Timer(draws.uniform(0, seconds), die).start() if seconds else die()

here.encode_whole(*what, progress=count)
"""


def encode_whole(
    corpora: str, vocab: str, engine: str, workers: int, folder: str, progress: Any = None
) -> None:
    """Encode all text in a folder, resuming from a checkpoint if one exists."""
    if vocab:
        tokenizer = Tokenizer.from_tokenizer_json(vocab)
    else:
        tokenizer = Tokenizer.from_spec(NARROW.spec, engine=engine)
    encode_corpus(
        tokenizer,
        sorted(Path(corpora).glob("*.txt")),
        folder,
        plan_token_files(tokenizer, end_of_document=max(tokenizer.spec.special_tokens), seed=1),
        corpus_format=CorpusFormat(separator="<|endoftext|>"),
        validation_share=0.1,
        workers=workers,
        resume=True,
        progress=progress,
    )


def kill_and_resume(what: list[Any], n_kills: int, *how: float) -> int:
    """Encode in processes that are killed after some batches, and a last one that is not; return
    how many were killed."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    statuses = []
    for seed in [*range(1, n_kills + 1), 0]:
        command = [sys.executable, "-c", PROGRAM, json.dumps([what, seed, *how])]
        done = subprocess.run(command, env=environment, cwd=REPOSITORY, timeout=600, check=False)
        statuses.append(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL)
        if done.returncode == 0:
            break
        assert can_resume(what[-1])
    assert statuses[-1] == 0
    return len(statuses) - 1


def test_killed_and_resumed(tmp_path):
    native_module()
    draws = random.Random(5)
    words = ["".join(draws.choices("abcdeé東 .\n", k=draws.randint(1, 9))) for _ in range(500)]
    for name in ("a", "b"):
        texts = (" ".join(draws.choices(words, k=300)) for _ in range(60))
        (tmp_path / f"{name}.txt").write_text("<|endoftext|>".join(texts))
    encode_whole(str(tmp_path), "", "native", 1, str(tmp_path / "expected"))
    what = [str(tmp_path), "", "native", 2, str(tmp_path / "killed")]
    assert kill_and_resume(what, 2, 0, 20, 3000) == 2
    assert content(tmp_path / "killed") == content(tmp_path / "expected")


@pytest.mark.slow
def test_killed_twenty_times_over_all_corpora(shared_data, tmp_path):
    native_module()
    corpora, vocab = str(shared_data / "corpora"), str(shared_data / "vocab/gpt2.tokenizer.json")
    encode_whole(corpora, vocab, "native", 1, str(tmp_path / "expected"))
    what = [corpora, vocab, "native", 2, str(tmp_path / "killed")]
    assert kill_and_resume(what, 20, 0.03, 5, 1 << 20) == 20
    assert content(tmp_path / "killed") == content(tmp_path / "expected")
