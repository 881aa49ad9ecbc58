"""Compare `DecodeStreams` with the `DecodeStream` of Hugging Face's `tokenizers`.

    python benchmarks/decode_streams.py --vocab tokenizer.json news.txt

As a server that generates text: each step gives every stream one id. The streams decode different
parts of a text. The contenders take turns in one process. Our texts must equal `decode` of
`tokenizers`, and theirs must begin ours: a `DecodeStream` has no end, and holds a token back that
ends inside a character. A figure is the median of the rounds, in processor time of the thread, so
that other load on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers.decoders import DecodeStream

from tokenizer_core import DecodeStreams, Tokenizer

STOPS = ["<|im_end|>", "\n\nUser:", "###", "</answer>"]
Steps = NDArray[np.uint32]
"""Shape (n_steps, n_streams)."""


def ours(tokenizer: Tokenizer, steps: Steps, stop: list[str]) -> tuple[float, list[str]]:
    """The seconds of all steps, and the text of each stream."""
    streams = DecodeStreams(tokenizer, stop=stop)
    numbers = [streams.open() for _ in range(steps.shape[1])]
    parts = []
    started = time.thread_time()
    for ids in steps:
        parts.append(streams.append(numbers, ids))
    seconds = time.thread_time() - started
    parts.append(streams.finish(numbers))
    return seconds, ["".join(texts) for texts in zip(*parts, strict=True)]


def huggingface(tokenizer: tokenizers.Tokenizer, steps: Steps) -> tuple[float, list[str]]:
    """As `ours`; a text lacks what the stream still holds at its end."""
    streams = [DecodeStream(skip_special_tokens=False) for _ in range(steps.shape[1])]
    rows = steps.tolist()
    parts = []
    started = time.thread_time()
    for ids in rows:
        parts.append([s.step(tokenizer, id_) for s, id_ in zip(streams, ids, strict=True)])
    seconds = time.thread_time() - started
    return seconds, ["".join(map(str, filter(None, texts))) for texts in zip(*parts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--vocab", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--ids", type=int, default=200_000, help="ids of all streams together")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.vocab)
    reference = tokenizers.Tokenizer.from_file(str(options.vocab))
    with options.text.open(encoding="utf-8") as file:
        ids = tokenizer.encode_to_numpy(file.read(8 * options.ids), allowed_special="none")
    print(f"{tokenizer.engine_name} engine, tokenizers {tokenizers.__version__}; million ids/s")
    print(f"{'streams':>8}{'ours':>8}{'with stop strings':>19}{'tokenizers':>12}{'ratio':>7}")
    for n_streams in options.streams:
        n_steps = min(options.ids, len(ids)) // n_streams
        steps = np.ascontiguousarray(ids[: n_steps * n_streams].reshape(n_streams, n_steps).T)
        seconds: list[list[float]] = [[], [], []]
        for _ in range(options.rounds):
            plain, texts = ours(tokenizer, steps, [])
            stopping, _ = ours(tokenizer, steps, STOPS)
            one_by_one, begun = huggingface(reference, steps)
            for taken, one in zip(seconds, (plain, stopping, one_by_one), strict=True):
                taken.append(one)
        wholes = reference.decode_batch(steps.T.tolist(), skip_special_tokens=False)
        if texts != wholes or not all(map(str.startswith, texts, begun)):
            raise SystemExit("the texts differ")
        rates = [n_steps * n_streams / statistics.median(taken) / 1e6 for taken in seconds]
        print(
            f"{n_streams:>8}{rates[0]:>8.2f}{rates[1]:>19.2f}{rates[2]:>12.2f}"
            f"{rates[0] / rates[2]:>7.1f}"
        )


if __name__ == "__main__":
    main()
