"""Exact byte-level BPE: encode, decode, train.

    from tokenizer_core import Tokenizer, train_bpe

A library: no web, no settings, no database. The names below are its public surface; a test holds
them against the documentation.
"""

from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.patterns import PATTERNS, SplitPattern
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.streaming import StreamingDecoder, StreamingEncoder
from tokenizer_core.text_cuts import TextPart, chunk_text, truncate_text
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_core.training import train_bpe

__all__ = [
    "PATTERNS",
    "AddedToken",
    "SplitPattern",
    "StreamingDecoder",
    "StreamingEncoder",
    "TextPart",
    "Tokenizer",
    "TokenizerCoreError",
    "TokenizerSpec",
    "chunk_text",
    "train_bpe",
    "truncate_text",
]
