"""Run the commands of examples/language_model/README.md: from a text to a story, interrupted once.

`make test-language-model` installs torch and runs this."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("torch", reason="torch is not installed: make test-language-model")

pytestmark = pytest.mark.torch

README = (REPOSITORY / "examples" / "language_model" / "README.md").read_text(encoding="utf-8")
STORY = (
    "Once upon a time there was a {}. The {} liked to play in the sun. The end.\n<|endoftext|>\n"
)
ANIMALS = ("cat", "dog", "bird", "fox", "cow", "duck", "frog", "mouse", "bear", "pig")
SMALL = [
    "model.context_length=32",
    "model.width=32",
    "model.n_layers=1",
    "training.batch_size=8",
    "training.n_warmup_steps=2",
    "report.every=10",
    "report.validation_batches=2",
]


def commands():
    """The commands of the README after the installation, as lists of words."""
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    return [shlex.split(line) for line in blocks[1].splitlines()]


@pytest.fixture
def run(tmp_path):
    """Run a command in a folder with a text; `python` and `tokenizer` are those of the tests."""
    text = "".join(STORY.format(animal, animal) for animal in ANIMALS * 60)
    (tmp_path / "stories.txt").write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")

    def run(words, *more, code=0):
        program = {
            "python": [sys.executable],
            "tokenizer": [sys.executable, "-m", "tokenizer_service.cli"],
        }
        done = subprocess.run(
            [*program[words[0]], *words[1:], *more],
            cwd=tmp_path,
            env=os.environ
            | {
                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout + done.stderr

    return run


def metrics(folder, name):
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(row) for row in rows]
    return [(row["step"], row[name]) for row in found if name in row]


@pytest.mark.timeout(600)
def test_the_readme_leads_to_a_story(run, tmp_path):
    train_tokenizer, encode, train, sample = commands()
    vocab_size = train_tokenizer.index("--vocab-size") + 1
    train_tokenizer[vocab_size] = "300"
    run(train_tokenizer)
    run(encode)
    shown = run(train, *SMALL, "training.n_steps=40")
    bits = metrics(tmp_path / "run", "bits_per_byte")
    assert [step for step, _ in bits] == [10, 20, 30, 40]
    assert bits[-1][1] < bits[0][1] < 8
    assert f"{bits[-1][1]:.3f} bits per byte" in shown
    assert (tmp_path / "run" / "loss.svg").read_text().count("<polyline") == 2

    # Stopped after 15 of 40 steps, between two reports, with its last line cut off; then continued:
    # the same losses.
    run(train, *SMALL, "training.n_steps=40", "out=whole")
    first = [*SMALL, "out=halves", "training.n_steps=40"]
    assert "continuing" not in run(train, *first, "report.stop_after=15")
    with (tmp_path / "halves" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "lo')
    assert "continuing halves after step 15" in run(train, *first)
    assert metrics(tmp_path / "halves", "loss") == metrics(tmp_path / "whole", "loss")

    story = run(sample, "--seed", "1")
    assert story.startswith("Once upon a time")
    assert story == run(sample, "--seed", "1") != run(sample, "--seed", "2")

    # Another tokenizer's ids are refused.
    train_tokenizer[vocab_size] = "290"
    run(train_tokenizer)
    run([*encode[:-1], "others"])
    refused = run(train, *SMALL, "tokens=others", code=1)
    assert "another tokenizer" in refused


def test_wrong_settings_are_named(run):
    train = ["python", "examples/language_model/train.py"]
    config = "examples/language_model/small.toml"
    assert "no setting" in run([*train, config, "loud"], code=1)
    assert "speed" in run([*train, config, "speed=3"], code=1)
    assert "No such file" in run([*train, "absent.toml"], code=1)
    assert "usage" not in run([*train, "--help"])
