"""Added tokens: their ids."""

from tokenizer_core.spec import AddedToken, TokenizerSpec


def test_new_special_tokens_go_one_by_one_behind_the_largest_id():
    vocab = {byte: bytes([byte]) for byte in range(256)} | {300: b"ab"}
    tokens = ("<|a|>", AddedToken("<|far|>", 900), "<|b|>", "ab", "<|c|>")
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], tokens)
    assert [token.id for token in spec.added_tokens] == [301, 900, 901, 300, 902]
