"""Exact byte-level BPE: encode, decode, train.

    from tokenizer_core import Tokenizer, train_bpe

A library without web, settings or database. The names below are its public interface; a test
compares them with the documentation. Python imports each on first use, so that `--help` does not
import numpy, and encoding does not import training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizer_core.errors import TokenizerCoreError
    from tokenizer_core.spec import AddedToken, TokenizerSpec
    from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern
    from tokenizer_core.text.alignment import Alignment, align
    from tokenizer_core.text.decode_streams import DecodeStreams, StreamingDecoder
    from tokenizer_core.text.streaming import StreamingEncoder
    from tokenizer_core.text.truncate_and_chunk import TextPart, chunk_text, truncate_text
    from tokenizer_core.tokenizer import Tokenizer
    from tokenizer_core.training import TrainingOptions, train, train_bpe, train_from_iterator

    __version__: str

__all__ = [
    "PATTERNS",
    "AddedToken",
    "Alignment",
    "DecodeStreams",
    "SplitPattern",
    "StreamingDecoder",
    "StreamingEncoder",
    "TextPart",
    "Tokenizer",
    "TokenizerCoreError",
    "TokenizerSpec",
    "TrainingOptions",
    "align",
    "chunk_text",
    "train",
    "train_bpe",
    "train_from_iterator",
    "truncate_text",
]

_HOMES: Final = {
    "PATTERNS": "splitting.patterns",
    "AddedToken": "spec",
    "Alignment": "text.alignment",
    "DecodeStreams": "text.decode_streams",
    "SplitPattern": "splitting.patterns",
    "StreamingDecoder": "text.decode_streams",
    "StreamingEncoder": "text.streaming",
    "TextPart": "text.truncate_and_chunk",
    "Tokenizer": "tokenizer",
    "TokenizerCoreError": "errors",
    "TokenizerSpec": "spec",
    "TrainingOptions": "training",
    "align": "text.alignment",
    "chunk_text": "text.truncate_and_chunk",
    "train": "training",
    "train_bpe": "training",
    "train_from_iterator": "training",
    "truncate_text": "text.truncate_and_chunk",
}


if not TYPE_CHECKING:  # else a misspelt name has a type

    def __getattr__(name: str) -> object:
        """Import a public name, or a module of the package, on first use."""
        if name in _HOMES:
            found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = found
            return found
        if name == "__version__":
            from importlib.metadata import version

            return version("tokenizer-service")
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__", "__path__", "__version__"])
