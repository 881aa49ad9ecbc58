"""The parts of a `tokenizer.json` that merges characters, as SentencePiece's BPE does: Llama 2,
Mistral 7B, Gemma.

Such a file writes a space as U+2581 and has a token for each byte, `<0x00>` to `<0xFF>`, for
characters that are no tokens. In a spec, tokens hold the space itself and the byte itself: the
normalizer reads U+2581 in a text as a space, which is all that the file's normalizer and
pre-tokenizer do, except for the space that some put before a text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json_parts import check_fields, is_byte_level, is_vocab
from tokenizer_core.normalizers.normalize import METASPACE_CHARACTER, strips_space
from tokenizer_core.spec import NEVER_IN_UTF8

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokenizer_core.formats.tokenizer_json_parts import Entries
    from tokenizer_core.spec import Normalizer, TokenizerSpec

_BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE_TO_META: Final = {
    "type": "Replace",
    "pattern": {"String": " "},
    "content": METASPACE_CHARACTER,
}
_PREPEND: Final = {"type": "Prepend", "prepend": METASPACE_CHARACTER}
_META_TO_SPACE: Final[dict[str, object]] = {
    "type": "Replace",
    "pattern": {"String": METASPACE_CHARACTER},
    "content": " ",
}
_DECODERS: Final[list[dict[str, object]]] = [
    _META_TO_SPACE,
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP: Final[dict[str, object]] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
# They change and split after spaces, of which the normalizer has left none.
_IDLE_STEPS: Final[list[dict[str, object]]] = [
    {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    },
    {
        "type": "Metaspace",
        "replacement": METASPACE_CHARACTER,
        "prepend_scheme": "never",
        "split": False,
    },
]
# transformers 5 writes add_dummy_prefix of a tokenizer.model so: a space before every text, also
# before one that begins with a space.
_DOUBLE_FIRST: Final = {
    "type": "Replace",
    "pattern": {"Regex": rf"\A{METASPACE_CHARACTER}"},
    "content": METASPACE_CHARACTER * 2,
}
_ALWAYS: Final = _IDLE_STEPS[1] | {"prepend_scheme": "always"}
_SCHEMES: Final[dict[object, Normalizer]] = {
    "never": "metaspace",
    "first": "metaspace-first",
    "always": "metaspace-always",
}


def is_metaspace(root: Mapping[str, Any]) -> bool:
    """Whether a file has BPE of characters with byte fallback."""
    model = root["model"]
    return (
        isinstance(model, dict)
        and model.get("byte_fallback") is True
        and is_vocab(model.get("vocab"))
        and "<0x00>" in model["vocab"]
        and not is_byte_level(root)
    )


def parse_metaspace_steps(root: Mapping[str, Any]) -> Normalizer:
    """The normalizer of a spec, from a file's normalizer, pre-tokenizer and decoder.

    Raises:
        FormatError: they do anything else than to write a space as U+2581 and back, and to put one
            before a text.
    """
    normalizers = _steps_of(root.get("normalizer"), "normalizers")
    rule = _parse_rule(normalizers, root.get("pre_tokenizer"))
    if normalizers == [_SPACE_TO_META, _DOUBLE_FIRST]:
        refuse_normalized_tokens(root.get("added_tokens"), "normalizer doubles the first U+2581")
    decoders = _steps_of(root["decoder"], "decoders")
    expected = [*_DECODERS, _STRIP] if strips_space(rule) else _DECODERS
    if decoders != expected:
        raise FormatError(
            f"tokenizer.json: the decoder of this vocabulary must be the Sequence "
            f"{', '.join(str(step['type']) for step in expected)}; no other can be read exactly"
        )
    return rule


def _parse_rule(normalizers: object, pre_tokenizer: object) -> Normalizer:
    if normalizers == [_PREPEND, _SPACE_TO_META] and pre_tokenizer is None:
        return "metaspace-prepend"
    steps = _steps_of(pre_tokenizer, "pretokenizers")
    are_idle = isinstance(steps, list) and all(step in _IDLE_STEPS for step in steps)
    if normalizers == [_SPACE_TO_META] and are_idle:
        return "metaspace"
    if normalizers == [_SPACE_TO_META, _DOUBLE_FIRST] and steps == [_ALWAYS]:
        return "metaspace-prepend"
    if normalizers == [] and isinstance(pre_tokenizer, dict):
        table = check_fields(
            pre_tokenizer,
            "pre_tokenizer",
            {
                "type": ("Metaspace",),
                "replacement": (METASPACE_CHARACTER,),
                "prepend_scheme": ("first", "always", "never"),
                "split": (False,),
            },
            required=("type", "replacement", "prepend_scheme", "split"),
        )
        return _SCHEMES[table["prepend_scheme"]]
    raise FormatError(
        "tokenizer.json: the normalizer and the pre-tokenizer of a vocabulary of characters must "
        "write spaces as U+2581, by Prepend and Replace or by Metaspace; others cannot be read "
        "exactly"
    )


def refuse_normalized_tokens(added: object, why: str) -> None:
    """Refuse tokens that are searched in the normalized text; `why` is said of the file."""
    for index, token in enumerate(added if isinstance(added, list) else []):
        if isinstance(token, dict) and token.get("normalized") is True:
            raise FormatError(
                f"tokenizer.json: {why}, and added_tokens[{index}].normalized is True; only one of "
                f"them can be read exactly: set normalized to false"
            )


def _steps_of(value: object, field: str) -> object:
    """The steps of a Sequence, or of a single step; none for null."""
    if value is None:
        return []
    if isinstance(value, dict) and value.get("type") == "Sequence" and len(value) == 2:
        return value.get(field)
    return [value]


def check_metaspace_model(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check settings of the model that a vocabulary of bytes may have and this one may not."""
    if model.get("ignore_merges") is True:
        raise FormatError(
            "tokenizer.json: model.ignore_merges is True; in a vocabulary of characters only False "
            "can be read exactly"
        )
    return model


def parse_byte_ids(texts: Entries, contents: Collection[str]) -> tuple[int, ...]:
    """The ids of the 256 bytes, -1 for one that no text needs. `contents`: of the added tokens.

    Raises:
        FormatError: a byte has no token, or a token means two things.
    """
    contents = frozenset(contents)
    for content in sorted(contents):
        if len(content) == 1 and content not in texts:
            raise FormatError(
                f"tokenizer.json: model.vocab lacks the added token {content!r:.60}; put that "
                f"character there, from which merging starts"
            )
        # It would decode like the token with U+2581, and only one of them can be what merges make.
        if " " in content and content.replace(" ", METASPACE_CHARACTER) in texts:
            raise FormatError(
                f"tokenizer.json: the added token {content!r:.60} and an entry of model.vocab "
                f"differ in U+2581 and a space alone, which cannot be told apart exactly"
            )
    if METASPACE_CHARACTER not in texts:
        raise FormatError(
            "tokenizer.json: model.vocab has no U+2581, as which a vocabulary of characters writes "
            "a space"
        )
    names = [f"<0x{value:02X}>" for value in range(256)]
    byte_ids = tuple(
        texts[name] if name in texts and name not in contents else -1 for name in names
    )
    # No fallback gives the byte of a character that is a token: Gemma has a tab and no <0x09>.
    needless = {value for value in range(0x80) if chr(value) in texts} | NEVER_IN_UTF8 | {0x20}
    missing = [value for value in range(256) if byte_ids[value] < 0 and value not in needless]
    if missing:
        raise FormatError(
            f"tokenizer.json: model.vocab has no token <0x{missing[0]:02X}>, so that characters "
            f"would become the unknown token; add it"
        )
    return byte_ids


def parse_metaspace_vocab(texts: Mapping[str, int], contents: Collection[str]) -> dict[int, bytes]:
    """id -> bytes of the model's entries; `contents` as in `parse_byte_ids`.

    Raises:
        FormatError: a token holds a space, which no text gives.
    """
    vocab: dict[int, bytes] = {}
    contents = frozenset(contents)
    for text, id_ in texts.items():
        if text not in contents and (byte := _BYTE.fullmatch(text)):
            vocab[id_] = bytes([int(byte[1], 16)])
        elif text not in contents and (" " in text or not text):
            raise FormatError(
                f"tokenizer.json: the entry {text!r:.60} of model.vocab holds a space or nothing; "
                f"a vocabulary of characters writes a space as U+2581"
            )
        else:
            vocab[id_] = text.replace(METASPACE_CHARACTER, " ").encode()
    return vocab


def parse_metaspace_merges(sides: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """The merges, of their left and right sides in turn."""
    for text in dict.fromkeys(sides):
        if not text or " " in text or _BYTE.fullmatch(text):
            raise FormatError(
                f"tokenizer.json: a merge has the side {text!r:.60}, which is no text of characters"
            )
    tokens = (text.replace(METASPACE_CHARACTER, " ").encode() for text in sides)
    return list(zip(tokens, tokens, strict=True))


def render_piece(token: bytes) -> str:
    """The spelling of a token of characters in a file."""
    return token.decode().replace(" ", METASPACE_CHARACTER)


def render_byte_tokens(spec: TokenizerSpec) -> dict[int, str]:
    """The spelling of the tokens in `byte_ids`, by id."""
    return {id_: f"<0x{byte:02X}>" for byte, id_ in enumerate(spec.byte_ids) if id_ >= 0}


def render_metaspace_vocab(spec: TokenizerSpec) -> dict[str, int]:
    """The model's vocabulary of a spec with `byte_ids`, by rising id."""
    known = {token.id: token.content for token in spec.added_tokens} | render_byte_tokens(spec)
    texts: dict[str, int] = {}
    for id_, token in sorted(spec.vocab.items()):
        text = known.get(id_) or render_piece(token)
        if texts.setdefault(text, id_) != id_:
            raise FormatError(
                f"ids {texts[text]} and {id_} stand for the same characters {token!r:.60}, which "
                f"tokenizer.json cannot hold"
            )
    return texts


def render_metaspace_steps(rule: str) -> dict[str, object]:
    """The normalizer, pre-tokenizer and decoder of such a file.

    Raises:
        FormatError: a rule that no such file has.
    """
    normalizer: object = None
    pre_tokenizer: object = None
    if rule == "metaspace-prepend":
        normalizer = {"type": "Sequence", "normalizers": [_PREPEND, _SPACE_TO_META]}
    elif rule == "metaspace":
        normalizer = _SPACE_TO_META
    elif rule not in _SCHEMES.values():
        raise FormatError(
            "remove_extra_whitespaces of SentencePiece, and add_dummy_prefix beside user-defined "
            "pieces, are not written to a tokenizer.json; publish the tokenizer as an artifact"
        )
    else:
        pre_tokenizer = {
            "type": "Metaspace",
            "replacement": METASPACE_CHARACTER,
            "prepend_scheme": next(scheme for scheme, name in _SCHEMES.items() if name == rule),
            "split": False,
        }
    decoders = [*_DECODERS, _STRIP] if strips_space(rule) else _DECODERS
    decoder = {"type": "Sequence", "decoders": decoders}
    return {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder}
