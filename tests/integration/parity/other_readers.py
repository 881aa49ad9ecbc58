"""The original library of each format, as a reader of our files.

It loads the files of `tokenizer_core.conversion` as its users would: by the lines that the command
prints, and with the split pattern where a format leaves it to the reader.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiktoken
import tiktoken.load
import tokenizers
from tokenizers import Regex, models, pre_tokenizers

import tokenizer_core
from tests.integration.parity.transformers_reader import TransformersReader
from tokenizer_core import TokenizerSpec
from tokenizer_core.conversion import loading_lines
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.tokenizer_json_parts import SPELLINGS

Encode = Callable[[list[str]], list[list[int]]]

_LIBRARIES = {"tokenizer_core": tokenizer_core, "tokenizers": tokenizers, "tiktoken": tiktoken}


def readers_of(spec: TokenizerSpec, target: str, paths: list[Path]) -> dict[str, Encode]:
    """Name of the library -> a function that encodes texts with the files, special tokens
    recognised."""
    found: dict[str, Encode] = {}
    for line in loading_lines(spec, target, paths):
        library = line.partition(".")[0]
        if library in _LIBRARIES:
            found[library] = _encode_with(eval(line, dict(_LIBRARIES)))
    added = [token.content for token in spec.added_tokens]
    if target in ("tokenizer.json", "transformers"):
        (path,) = (path for path in paths if path.name == "tokenizer.json")
        found["tokenizers"] = _encode_with(tokenizers.Tokenizer.from_file(str(path)))
        if TransformersReader.is_there():
            reader = TransformersReader("PreTrainedTokenizerFast", str(path))
            found["transformers"] = reader.encode
    elif target == "gpt2":
        model = models.BPE.from_file(*map(str, paths))
        found["tokenizers"] = _encode_with(_in_tokenizers(model, spec, added))
        # That class splits by this pattern alone.
        if spec.pattern.name == "gpt2" and TransformersReader.is_there():
            reader = TransformersReader("GPT2Tokenizer", str(paths[0].parent), *added)
            found["transformers"] = reader.encode
    elif target == "pickle":
        vocab, merges = (pickle.loads(path.read_bytes()) for path in paths)
        model = models.BPE(
            vocab={render_token(token): id_ for id_, token in vocab.items()},
            merges=[(render_token(left), render_token(right)) for left, right in merges],
        )
        found["pickle and tokenizers"] = _encode_with(_in_tokenizers(model, spec, added))
    return found


def _in_tokenizers(model: Any, spec: TokenizerSpec, added: list[str]) -> tokenizers.Tokenizer:
    """A bare model, with the settings that its file does not carry."""
    tokenizer = tokenizers.Tokenizer(model)
    is_gpt2 = spec.pattern.name == "gpt2"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_gpt2)
    split = pre_tokenizers.Split(Regex(SPELLINGS[spec.pattern.name]), "isolated")
    tokenizer.pre_tokenizer = (
        byte_level if is_gpt2 else pre_tokenizers.Sequence([split, byte_level])
    )
    tokenizer.add_special_tokens(added)
    return tokenizer


def _encode_with(loaded: Any) -> Encode:
    if isinstance(loaded, tokenizers.Tokenizer):
        return lambda texts: [
            encoding.ids for encoding in loaded.encode_batch_fast(texts, add_special_tokens=False)
        ]
    if isinstance(loaded, tiktoken.Encoding):
        return lambda texts: [loaded.encode(text, allowed_special="all") for text in texts]
    return lambda texts: loaded.encode_batch(texts)
