"""Prepare training data with the service: from corpus files to a tokenizer and mapped ids.

    TOKENIZER_URL=http://127.0.0.1:8000 TOKENIZER_API_KEY=... \
        python examples/journeys/data_engineer.py news.jsonl.gz books.parquet more.txt \
        --tokens tokens --name stories --vocab-size 10000

The script uploads every file as a corpus of its name, which says its format, trains a tokenizer on
all of them, encodes them with that version to token files, downloads these, and reads a batch like
a training loop. It needs no tokenizer and little memory. After an interruption it uploads and
trains again, and downloads only missing files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tokenizer_client import Client, ClientError
from tokenizer_client.schemas.jobs import AnyJobView

END_OF_TEXT = "<|endoftext|>"


def main() -> int:
    """Run the script; return 0 on success."""
    arguments = parse_arguments()
    try:
        with Client() as client:
            prepare(client, arguments)
    except (ClientError, OSError, ValueError) as error:
        print(f"data_engineer: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(client: Client, arguments: argparse.Namespace) -> None:
    """Do all steps, from files to a batch."""
    corpora = upload(client, arguments.corpora)
    tokenizer = train(client, corpora, arguments)
    print(f"trained {tokenizer}")
    if arguments.promote:
        client.tokenizers.promote(tokenizer)
        print("promoted: the service uses it for requests that name no tokenizer")

    # Pin the version: somebody else may promote another tokenizer meanwhile.
    pinned = client.pinned(tokenizer)
    dtype = encode(pinned, corpora, arguments)
    show_batch(pinned, arguments.tokens / "train.bin", dtype, arguments.seed)


def upload(client: Client, files: list[Path]) -> list[str]:
    """Upload each file as a corpus and return the ids of the corpora."""
    n_bytes = sum(file.stat().st_size for file in files)
    n_before = 0
    with tqdm(total=n_bytes, unit="B", unit_scale=True, desc="upload") as bar:
        for file in files:
            client.corpora.upload(
                file.name,
                file,
                on_progress=lambda n_done, _, n_before=n_before: bar.update(
                    n_before + n_done - bar.n
                ),
            )
            n_before += file.stat().st_size
    return [file.name for file in files]


def train(client: Client, corpora: list[str], arguments: argparse.Namespace) -> str:
    """Train on the corpora and return `name@version`."""
    job = client.train(
        corpus_ids=corpora,
        field=arguments.field,
        name=arguments.name,
        vocab_size=arguments.vocab_size,
        special_tokens=[END_OF_TEXT],
        promote="manual",
    )
    published = wait(client, job.id, "train").result
    return f"{published.name}@{published.version}"


def encode(client: Client, corpora: list[str], arguments: argparse.Namespace) -> str:
    """Encode the corpora to token files, download them, and return the dtype of the ids."""
    first, *others = corpora
    job = client.corpora.encode(
        first,
        further_corpora=others,
        field=arguments.field,
        validation_share=arguments.validation_share,
        seed=arguments.seed,
    )
    token_files_id = wait(client, job.id, "encode").result.id
    with tqdm(unit="B", unit_scale=True, desc="download") as bar:

        def show(n_done: int, n_total: int | None) -> None:
            bar.total = n_total
            bar.update(n_done - bar.n)

        view = client.token_files.download(token_files_id, arguments.tokens, on_progress=show)
    for name, split in view.splits.items():
        print(
            f"{name}: {split.documents} documents, {split.tokens} tokens, "
            f"{split.bytes_per_token:.2f} bytes per token"
        )
    return view.dtype


def wait(client: Client, job_id: str, title: str) -> AnyJobView:
    """Show a bar until the job is done, and return the job."""
    with tqdm(total=100, unit="%", desc=title) as bar:

        def show(job: AnyJobView) -> None:
            bar.set_postfix_str(job.phase)
            bar.update(round(100 * job.progress) - bar.n)

        job = client.jobs.wait(job_id, on_progress=show)
    for warning in job.result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return job


def show_batch(client: Client, path: Path, dtype: str, seed: int) -> None:
    """Print a batch: windows of the mapped ids, and targets one id later."""
    ids = np.memmap(path, dtype=dtype, mode="r")
    batch_size, context_length = 4, min(32, len(ids) - 1)
    starts = np.random.default_rng(seed).integers(0, len(ids) - context_length, batch_size)
    inputs = np.stack([ids[start : start + context_length] for start in starts]).astype(np.int64)
    targets = np.stack([ids[start + 1 : start + 1 + context_length] for start in starts])
    print(f"a batch {inputs.shape} of {len(ids)} mapped ids; its first row, and its text:")
    print(inputs[0])
    print(repr(client.decode(inputs[0])))
    print(f"its target: {client.decode(targets[0])!r}")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "corpora", nargs="+", type=Path, help="text, JSON lines or Parquet, also .gz and .zst"
    )
    parser.add_argument("--field", help="field of JSON lines and Parquet (default: text)")
    parser.add_argument("--tokens", type=Path, default="tokens", help="folder for the token files")
    parser.add_argument("--name", default="prepared", help="name of the tokenizer")
    parser.add_argument("--vocab-size", type=int, default=10_000)
    parser.add_argument("--validation-share", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--promote", action="store_true", help="serve the new tokenizer by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
