"""TokenizerSpec: its repr is short for tables of any size."""

from tokenizer_core.spec import AddedToken, TokenizerSpec


def test_the_repr_of_a_large_spec_is_short():
    vocab = {i: bytes([i]) for i in range(256)}
    merges = []
    for left in range(256):
        for right in range(128):
            vocab[len(vocab)] = bytes([left, right])
            merges.append((bytes([left]), bytes([right])))
    spec = TokenizerSpec.from_merges(
        vocab, merges, [AddedToken("<|end|>", len(vocab))], pattern=r"\s+|\S+" * 50
    )
    shown = repr(spec)
    assert len(shown) < 200
    for part in ("merges: 33025 tokens (1 added)", "32768 merges", "pattern custom", "none"):
        assert part in shown
    assert spec.fingerprint[:12] in shown
