"""Print how fast threads encode alone, and while a model trains on the GPU of the same machine.

    .venv/bin/python benchmarks/beside_training.py en_reuters_news --threads 1,4,16

The model is that of `examples/language_model/tinystories.toml`, on token files of the same text. It
needs a GPU, torch and a C++ compiler. Each figure is MB/s of `encode_batch_to_numpy` with GPT-2,
first pass and second pass over the documents, each time in a fresh process; medians of `--rounds`.
The last column has the training steps per second meanwhile; the note has those without other work,
before and after.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpora import REPOSITORY, SEPARATOR, label, text_path
from figures import Table, make_parser, report

EXAMPLE = REPOSITORY / "examples" / "language_model"
ENCODE = f"""
import sys, time
from tokenizer_core import Tokenizer
tokenizer, threads = Tokenizer.from_preset("gpt2"), int(sys.argv[2])
documents = open(sys.argv[1], encoding="utf-8").read().split({SEPARATOR!r})
n_bytes = sum(len(document.encode()) for document in documents)
tokenizer.encode_batch_to_numpy(documents[:20], num_threads=threads)
for _ in range(2):
    begin = time.perf_counter()
    tokenizer.encode_batch_to_numpy(documents, num_threads=threads)
    print(n_bytes / (time.perf_counter() - begin) / 1e6)
"""
STEPS_BEFORE = 150
"""Steps until the model is compiled and the GPU is warm."""

QUIET_SECONDS = 10


def encode(text, n_threads, rounds):
    """MB/s of the first and of the second pass."""
    command = [sys.executable, "-c", ENCODE, str(text), str(n_threads)]
    found = [
        list(map(float, subprocess.run(command, check=True, capture_output=True).stdout.split()))
        for _ in range(rounds)
    ]
    return [statistics.median(of_pass) for of_pass in zip(*found, strict=True)]


class Training:
    """A model that trains in a process of its own until the block ends."""

    def __init__(self, text, folder):
        self._metrics = folder / "run" / "metrics.jsonl"
        tokenizer = [sys.executable, "-m", "tokenizer_service.cli"]
        for words in (
            ["train", str(text), "--vocab-size", "10000", "--name", "text", "--quiet"],
            ["corpus", "encode", str(text), "--tokenizer", "text", "--quiet", "--output", "tokens",
             "--validation-share", "0.05"],
        ):  # fmt: skip
            subprocess.run([*tokenizer, *words], cwd=folder, check=True, capture_output=True)
        settings = ["training.n_steps=1000000", "report.every=1000000"]
        train = [str(EXAMPLE / "train.py"), str(EXAMPLE / "tinystories.toml"), *settings]
        self._process = subprocess.Popen(
            [sys.executable, *train], cwd=folder, stdout=subprocess.DEVNULL
        )

    def __enter__(self):
        while not self._metrics.exists() or self._n_steps() < STEPS_BEFORE:
            if self._process.poll() is not None:
                raise SystemExit("the training ended; its error is above")
            time.sleep(1)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def during(self, work):
        """The result of `work`, and the steps per second meanwhile."""
        n_steps, begin = self._n_steps(), time.perf_counter()
        result = work()
        return result, (self._n_steps() - n_steps) / (time.perf_counter() - begin)

    def _n_steps(self):
        with self._metrics.open() as file:
            return sum('"loss"' in line for line in file)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("text", type=text_path)
    parser.add_argument("--threads", default="1,2,4,8,16")
    arguments = parser.parse_args()
    counts = list(map(int, arguments.threads.split(",")))
    alone = [encode(arguments.text, n, arguments.rounds) for n in counts]
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Training(arguments.text, Path(folder)) as training,
    ):
        quiet = [training.during(lambda: time.sleep(QUIET_SECONDS))[1]]
        for n, speeds in zip(counts, alone, strict=True):
            beside, steps = training.during(lambda n=n: encode(arguments.text, n, arguments.rounds))
            rows.append([str(n), speeds, beside, steps])
        quiet.append(training.during(lambda: time.sleep(QUIET_SECONDS))[1])
    columns = ["threads", "alone", "beside the training", "training, steps/s"]
    gpu = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    steps = " and ".join(f"{one:.1f}" for one in quiet)
    note = f"{label(arguments.text)}, GPT-2; the training alone on one {gpu}: {steps} steps/s"
    report([Table(columns, rows)], arguments.json, note)


if __name__ == "__main__":
    main()
