"""Small tokenizers whose tokens are easy to follow by hand."""

from tests.native_module import native_module
from tokenizer_core import Tokenizer, TokenizerSpec

BYTES = {i: bytes([i]) for i in range(256)}


def merging(merges, *, pattern="gpt2", special=(), extra=(), engine="auto", normalizer="none"):
    """A tokenizer of these merges; `extra` are tokens that no merge produces."""
    if engine == "native":
        native_module()
    tokens = dict.fromkeys([*(left + right for left, right in merges), *extra])
    vocab = BYTES | {256 + i: token for i, token in enumerate(tokens)}
    spec = TokenizerSpec.from_merges(vocab, merges, special, pattern=pattern, normalizer=normalizer)
    return Tokenizer.from_spec(spec, engine=engine)


THE = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the")]
