"""Small specs whose merges overlap, repeat and contradict each other, for tests of engines."""

from itertools import pairwise

from tokenizer_core.spec import TokenizerSpec

BYTES = {i: bytes([i]) for i in range(256)}


def random_merges(rng, alphabet, n):
    """Merges over a tiny alphabet, so that they overlap, repeat and contradict each other."""
    tokens = [bytes([b]) for b in alphabet]
    merges = []
    for _ in range(n):
        pair = (rng.choice(tokens), rng.choice(tokens))
        if pair not in merges and len(pair[0] + pair[1]) <= 12:
            merges.append(pair)
            if pair[0] + pair[1] not in tokens:
                tokens.append(pair[0] + pair[1])
    return merges


def spec_of(merges, **options):
    products = dict.fromkeys(left + right for left, right in merges)
    return TokenizerSpec.from_merges(
        BYTES | {256 + i: product for i, product in enumerate(products)}, merges, **options
    )


def random_ranks(rng, alphabet, n):
    """Ranks over a tiny alphabet in no order: parts may rank after their product, tokens may have
    no parts at all, and ids have gaps."""
    tokens = {left + right for left, right in random_merges(rng, alphabet, n)}
    tokens |= {
        bytes(rng.choices(alphabet, k=rng.randrange(2, 7))) for _ in range(rng.randrange(0, 6))
    }
    ordered = sorted(tokens)
    rng.shuffle(ordered)
    ids = rng.sample(range(4 * len(ordered) + 256), len(ordered) + 256)
    singles = [bytes([byte]) for byte in range(256)]
    return dict(zip([*singles, *ordered], ids, strict=True))


def random_character_merges(rng, characters, n):
    """Merges of `n` random strings, within and across characters of several bytes."""
    merges = {}
    for _ in range(n):
        data = "".join(rng.choices(characters, k=rng.randrange(1, 4))).encode()
        parts = [bytes([byte]) for byte in data]
        for _ in range(rng.randrange(1, len(parts) + 1)):
            if len(parts) > 1:
                known = [i for i, pair in enumerate(pairwise(parts)) if pair in merges]
                at = rng.choice(known) if known else rng.randrange(len(parts) - 1)
                merges[parts[at], parts[at + 1]] = None
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return list(merges)
