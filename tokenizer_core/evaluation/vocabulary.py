"""What a vocabulary holds, whatever text comes: bytes of each id, the longest tokens, tokens that
are no whole characters.

Which tokens no text can give is `unreachable.py`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from tokenizer_core.blobs.atomic_files import write_whole_file

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from tokenizer_core.spec import TokenizerSpec


def token_byte_lengths(spec: TokenizerSpec) -> NDArray[np.int32]:
    """The number of bytes of each id: shape (largest id + 1,), int32; 0 for special tokens and for
    ids without a token.

    It is what turns a model's loss into bits per byte, which does not depend on the tokenizer:
    `loss_in_nats.sum() / (log(2) * token_bytes[targets].sum())`, the loss of special tokens left
    out as well, as nanochat evaluates. Added tokens that are content count with their bytes.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
        >>> token_byte_lengths(Tokenizer(vocab, [(b"a", b"b")], ["<|end|>"]).spec)[254:].tolist()
        [1, 1, 2, 0]
    """
    lengths = np.zeros(spec.largest_id + 1, dtype=np.int32)
    for id_, token in spec.vocab.items():
        lengths[id_] = len(token)
    for id_ in spec.special_tokens.values():
        lengths[id_] = 0
    return lengths


def save_token_bytes(spec: TokenizerSpec, path: str | os.PathLike[str]) -> None:
    """Write `token_byte_lengths` as a `.npy` file, under exactly this name, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    data = io.BytesIO()
    np.save(data, token_byte_lengths(spec))
    write_whole_file(path, data.getvalue())


def longest_tokens(spec: TokenizerSpec, n: int = 10) -> list[tuple[int, bytes]]:
    """`(id, bytes)` of the `n` longest tokens, in bytes, special tokens left out; the smaller id
    first among equals.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
        >>> longest_tokens(Tokenizer(vocab, [(b"a", b"b")], ["<|end|>"]).spec, 1)
        [(256, b'ab')]
    """
    special = set(spec.special_tokens.values())
    ordinary = (item for item in spec.vocab.items() if item[0] not in special)
    return sorted(ordinary, key=lambda item: (-len(item[1]), item[0]))[: max(n, 0)]


def partial_utf8_tokens(spec: TokenizerSpec) -> list[int]:
    """The ids, rising, whose bytes are not UTF-8 by themselves, so that alone they decode to
    U+FFFD: "partial UTF-8 sequences" in Land and Bartolo (2024), "Fishing for Magikarp". The 128
    single bytes above 0x7F are always among them.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> len(partial_utf8_tokens(Tokenizer({i: bytes([i]) for i in range(256)}, []).spec))
        128
    """
    return [id_ for id_, token in sorted(spec.vocab.items()) if not is_utf8(token)]


def is_utf8(token: bytes) -> bool:
    """Whether the bytes are whole characters.

    Example:
        >>> is_utf8("é".encode()), is_utf8(b"\\xc3")
        (True, False)
    """
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True
