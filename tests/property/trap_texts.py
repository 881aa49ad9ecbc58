"""Texts and tiny vocabularies for Hypothesis, with the traps that other engines failed on."""

import random

from hypothesis import strategies as st

from tests.adversarial import _FRAGMENTS
from tests.tokenizer_core.engines.random_specs import (
    random_character_merges,
    random_merges,
    random_ranks,
    spec_of,
)
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import PATTERNS

SPECIALS = ["<|a|>", "<|a|><|a|>", "'s", "  ", "中", "\n\n"]

# Keys of tables end at 15 and 16 bytes, vectors at 8, 16, 32 and 64.
_EDGES = [0, 1, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 127, 128, 1200]
_FILLERS = [*"aZ1 .^\n\r\u3000", "é", "中", "\u0301", "🙂", "\u200d", "\u0301"]


def _filled(filler, n_bytes, behind):
    """About `n_bytes` of one character, and the text at the edge after it."""
    return filler * (n_bytes // len(filler.encode())) + behind


fragments = st.sampled_from(_FRAGMENTS) | st.characters(codec="utf-8") | st.sampled_from(SPECIALS)
edges = st.builds(_filled, st.sampled_from(_FILLERS), st.sampled_from(_EDGES), fragments)
trap_texts = st.lists(fragments | edges, max_size=30).map("".join)
short_trap_texts = st.lists(fragments, max_size=14).map("".join)

KINDS = ["merges", "whole merges", "ranks"]


def tiny_spec(seed, kind, pattern, normalizer="none", specials=SPECIALS):
    """Merges that overlap, repeat and contradict each other, within characters and across them;
    with kind `ranks`, their ids in any order and with gaps. `specials` that no merge produces are
    special."""
    rng = random.Random(seed)
    merges = random_merges(rng, b"as' \n", rng.randrange(40))
    merges += random_character_merges(rng, "中ſ🙂\u0301é's ", rng.randrange(1, 25))
    merges = list(dict.fromkeys(merges))
    if rng.random() < 0.3:
        rng.shuffle(merges)
    products = {left + right for left, right in merges}
    specials = [token for token in specials if token.encode() not in products]
    if kind == "ranks":
        ranks = random_ranks(rng, b"as' \n", 20)
        for left, right in merges:
            ranks.setdefault(left + right, max(ranks.values()) + rng.randrange(1, 4))
        specials = [token for token in specials if token.encode() not in ranks]
        top = max(ranks.values()) + 10
        return TokenizerSpec.from_ranks(
            ranks, {token: top + i for i, token in enumerate(specials)}, pattern=pattern
        )
    return spec_of(
        merges,
        special_tokens=specials,
        pattern=pattern,
        ignore_merges=kind == "whole merges",
        normalizer=normalizer,
    )


seeds = st.integers(0, 10**9)
kinds = st.sampled_from(KINDS)
patterns = st.sampled_from(sorted(PATTERNS))
