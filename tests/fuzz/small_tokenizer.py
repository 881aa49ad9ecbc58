"""The small tokenizer that targets answer with and that seeds are files of."""

from __future__ import annotations

from functools import cache

from app.serving.live_tokenizer import LiveTokenizer
from tokenizer_core import Tokenizer
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.spec import TokenizerSpec

BYTES = {byte: bytes([byte]) for byte in range(256)}
MERGES = [(b"a", b"b"), (b"ab", b"c"), (b" ", b"ab"), (b"\xf0", b"\x9f")]
VOCAB = BYTES | {256 + rank: left + right for rank, (left, right) in enumerate(MERGES)}
SPECIAL = "<|endoftext|>"


@cache
def small_spec() -> TokenizerSpec:
    return TokenizerSpec.from_merges(VOCAB, MERGES, [SPECIAL])


@cache
def slow_tokenizer() -> Tokenizer:
    """On the Python engine: what the fast one is compared with."""
    return Tokenizer.from_spec(small_spec(), engine="python")


@cache
def live() -> LiveTokenizer:
    """As the service holds it, on the fastest engine there is."""
    ref = ArtifactRef("small", "20260101T000000Z-00000000", small_spec().fingerprint)
    return LiveTokenizer.of(ref, Tokenizer.from_spec(small_spec()))
