"""The small tokenizer that the targets use, and whose files are seeds; `taken`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from tokenizer_core import Tokenizer
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.http.problem import Problem
from tokenizer_service.jobs.errors import JobsError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

BYTES = {byte: bytes([byte]) for byte in range(256)}
MERGES = [(b"a", b"b"), (b"ab", b"c"), (b" ", b"ab"), (b"\xf0", b"\x9f")]
VOCAB = BYTES | {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
SPECIAL = "<|endoftext|>"


@cache
def small_spec() -> TokenizerSpec:
    return TokenizerSpec.from_merges(VOCAB, MERGES, [SPECIAL])


@cache
def live() -> LiveTokenizer:
    """As the service holds it, on the fastest available engine."""
    ref = ArtifactRef("small", "20260101T000000Z-00000000", small_spec().fingerprint)
    return LiveTokenizer.of(ref, Tokenizer.from_spec(small_spec()))


@contextmanager
def taken() -> Iterator[None]:
    """The reader has accepted its input; nothing inside this block may refuse it."""
    try:
        yield
    except (TokenizerCoreError, Problem, JobsError) as error:
        raise AssertionError("what was taken is refused afterwards") from error
