"""Compare `DecodeStreams` with the `DecodeStream` of Hugging Face's `tokenizers`.

    .venv/bin/python benchmarks/decode_streams.py --vocab llama3_1 en_reuters_news

As a server that generates text: each step gives every stream one id. The streams decode different
parts of a text. The contenders take turns in one process. Our texts must equal `decode` of
`tokenizers`, and theirs must begin ours: a `DecodeStream` has no end, and holds a token back that
ends inside a character. A figure is the median of the rounds, in processor time of the thread, so
that other load on the machine counts less.
"""

import statistics
import time

import numpy as np
import tokenizers
from corpora import label, text_path, vocab_path
from figures import Table, make_parser, report
from tokenizers.decoders import DecodeStream

from tokenizer_core import DecodeStreams, Tokenizer

STOPS = ["<|im_end|>", "\n\nUser:", "###", "</answer>"]


def ours(tokenizer, steps, stop):
    """The seconds of all `steps`, of shape (n_steps, n_streams), and the text of each stream."""
    streams = DecodeStreams(tokenizer, stop=stop)
    numbers = [streams.open() for _ in range(steps.shape[1])]
    parts = []
    started = time.thread_time()
    for ids in steps:
        parts.append(streams.append(numbers, ids))
    seconds = time.thread_time() - started
    parts.append(streams.finish(numbers))
    return seconds, ["".join(texts) for texts in zip(*parts, strict=True)]


def huggingface(tokenizer, steps):
    """As `ours`; a text lacks what the stream still holds at its end."""
    streams = [DecodeStream(skip_special_tokens=False) for _ in range(steps.shape[1])]
    rows = steps.tolist()
    parts = []
    started = time.thread_time()
    for ids in rows:
        parts.append([s.step(tokenizer, id_) for s, id_ in zip(streams, ids, strict=True)])
    seconds = time.thread_time() - started
    return seconds, ["".join(map(str, filter(None, texts))) for texts in zip(*parts, strict=True)]


def compare(tokenizer, reference, steps, rounds):
    """Million ids a second: ours, ours with stop strings, theirs."""
    seconds = [[], [], []]
    for _ in range(rounds):
        plain, texts = ours(tokenizer, steps, [])
        stopping, _ = ours(tokenizer, steps, STOPS)
        one_by_one, begun = huggingface(reference, steps)
        for taken, one in zip(seconds, (plain, stopping, one_by_one), strict=True):
            taken.append(one)
    wholes = reference.decode_batch(steps.T.tolist(), skip_special_tokens=False)
    if texts != wholes or not all(map(str.startswith, texts, begun)):
        raise SystemExit("the texts differ")
    return [steps.size / statistics.median(taken) / 1e6 for taken in seconds]


def main():
    parser = make_parser(__doc__, rounds=7)
    parser.add_argument("texts", type=text_path, nargs="+", metavar="TEXT")
    parser.add_argument("--vocab", type=vocab_path, required=True, help="a tokenizer.json")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--ids", type=int, default=200_000, help="ids of all streams together")
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.vocab)
    reference = tokenizers.Tokenizer.from_file(str(options.vocab))
    rows = []
    for text in options.texts:
        with text.open(encoding="utf-8") as file:
            ids = tokenizer.encode_to_numpy(file.read(8 * options.ids), allowed_special="none")
        for n_streams in options.streams:
            n_steps = min(options.ids, len(ids)) // n_streams
            steps = np.ascontiguousarray(ids[: n_steps * n_streams].reshape(n_streams, n_steps).T)
            rates = compare(tokenizer, reference, steps, options.rounds)
            rows.append([n_streams, label(text), *rates, rates[0] / rates[2]])
    columns = ["streams", "text", "`DecodeStreams`", "with four stop strings",
               "`DecodeStream` of tokenizers", "ratio"]  # fmt: skip
    note = (
        f"{tokenizer.engine_name} engine, {label(options.vocab)}, one thread, medians of "
        f"{options.rounds} rounds in processor time"
    )
    report([Table(columns, rows)], options.json, note)


if __name__ == "__main__":
    main()
