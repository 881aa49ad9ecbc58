"""Encodes many texts in worker processes, for an engine without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizer_core.parallel import run_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer

    Options = tuple[str | tuple[str, ...], str | tuple[str, ...]]

BATCH_BLOCK_BYTES = 1 << 17
"""Worker processes get texts in blocks of at least this size; sending a smaller block takes longer
than encoding it."""


def plain_policy(policy: Allowed | Disallowed) -> str | tuple[str, ...]:
    """Convert a special-token policy to a value that can be pickled."""
    return policy if isinstance(policy, str) else tuple(policy)


def encode_batch_over_processes(
    tokenizer: Tokenizer, texts: Sequence[str], options: Options, num_workers: int
) -> list[list[int]]:
    """The ids of each text, in order, computed by this process and `num_workers - 1` others."""
    blocks = list(_blocks_of(texts))
    if num_workers <= 1 or len(blocks) <= 1:
        return encode_block(tokenizer, (options, texts))
    tasks = ((options, texts[start:end]) for start, end in blocks)
    results: list[list[list[int]]] = [[]] * len(blocks)
    for index, encoded in run_tasks(
        encode_block, tasks, num_workers=num_workers, state=tokenizer, caller_takes_part=True
    ):
        results[index] = encoded
    return [ids for block in results for ids in block]


def encode_block(tokenizer: Tokenizer, task: tuple[Options, Sequence[str]]) -> list[list[int]]:
    """The ids of each text, in order."""
    (allowed, disallowed), texts = task
    return [
        tokenizer.encode(text, allowed_special=allowed, disallowed_special=disallowed)  # type: ignore[arg-type]
        for text in texts
    ]


def _blocks_of(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges of texts that together have at least BATCH_BLOCK_BYTES characters."""
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_BLOCK_BYTES:
            yield start, index + 1
            start, size = index + 1, 0
    if start < len(texts):
        yield start, len(texts)
