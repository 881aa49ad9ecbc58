"""Tokens that no text encodes to. Each costs a row of the model's embedding that is never trained.

Land and Bartolo (2024), "Fishing for Magikarp", call a token unreachable if its own text encodes to
something else. That is a test, not a proof: `"\\n\\n "` alone is split unless another line break
follows it. This module distinguishes proven tokens from those that were merely not found.

The proof: no merge crosses the ends of a token in an encoded text, so the merges inside it are
those of its bytes alone. If these do not produce the token, no text does (except in tokenizers that
look up a whole pre-token first). The same holds if no UTF-8 text contains the bytes, if the
normalizer changes them, or if another id with the same bytes takes precedence.

Special tokens count as plain text; added tokens are not examined.
"""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.spec.alphabet import is_utf8
from tokenizer_core.text.merge_trees import MergeTrees

if TYPE_CHECKING:
    from tokenizer_core.tokenizer import Tokenizer

Reason = Literal["bytes", "normalizer", "same_bytes", "merges", "not_found"]

PROVEN: Final[frozenset[Reason]] = frozenset({"bytes", "normalizer", "same_bytes", "merges"})
"""The reasons that are proofs; `not_found` means only that no tried text produced the token."""

_TRIES: Final = 4096  # all two-byte continuations of a three-byte character's first byte
_BEFORE: Final = ("", " ", "a", "1", "\n", " \n", "a'", *".?!);}:,*/'-#\"")
_AFTER: Final = (
    *("", " ", "a", "1", ".", "\n", " \n", "\r\n", "a\n", "A", "/", "/\n"),
    *("s", "t", "m", "d", "ll", "re", "ve"),  # after an apostrophe
)
_CONTINUATIONS: Final = range(0x80, 0xC0)
_LEADS: Final[Mapping[int, range]] = {
    2: range(0xC2, 0xE0),
    3: range(0xE0, 0xF0),
    4: range(0xF0, 0xF5),
}


@dataclass(frozen=True, slots=True)
class UnreachableToken:
    """A token that no text produces, and the reason.

    - `bytes`: no UTF-8 text contains its bytes (for example 0xFF);
    - `normalizer`: the normalizer changes its text;
    - `same_bytes`: another id with the same bytes takes precedence;
    - `merges`: the merges of its bytes do not produce it;
    - `not_found`: merging produces it, but in every tried text the split pattern cuts it or its
      neighbours merge with it.
    """

    id: int
    token: bytes
    reason: Reason


def unreachable_tokens(tokenizer: Tokenizer) -> list[UnreachableToken]:
    """The tokens that no text produces, by ascending id; the module docstring has the proofs.

    For most tokens, encoding their own text once shows that they are reachable. The others take up
    to some milliseconds each; o200k takes some seconds.
    """
    spec = tokenizer.spec
    added = {token.id for token in spec.added_tokens}
    if spec.alphabet.unk_id is not None:
        added.add(spec.alphabet.unk_id)  # missing bytes give it
    # An empty token has no text that could give it.
    ids = [id_ for id_ in sorted(spec.vocab) if id_ not in added and spec.vocab[id_]]
    texts = {id_: spec.alphabet.bytes_in_text(spec.vocab[id_]) for id_ in ids}
    whole = [id_ for id_ in ids if is_utf8(texts[id_])]
    given, offsets = tokenizer.encode_batch_to_numpy(
        [texts[id_].decode() for id_ in whole], allowed_special=()
    )
    # If the first token of the token's text is the token, it covers the whole text.
    # Encoding may lose a whole text, even the last one.
    firsts = np.append(given.astype(np.int64), -1)[offsets[:-1].astype(np.int64)]
    is_itself = firsts == np.array(whole)
    reached = {id_ for id_, is_it in zip(whole, is_itself.tolist(), strict=True) if is_it}
    trees = MergeTrees(spec)
    found = []
    for id_ in ids:
        reason = None if id_ in reached else _reason(tokenizer, trees, id_)
        if reason is not None:
            found.append(UnreachableToken(id_, spec.vocab[id_], reason))
    return found


def _reason(tokenizer: Tokenizer, trees: MergeTrees, id_: int) -> Reason | None:
    spec = tokenizer.spec
    token = spec.vocab[id_]
    in_text = spec.alphabet.bytes_in_text(token)
    is_text = is_utf8(in_text)
    # Where merging leaves out bytes, those around them meet.
    missing = spec.alphabet.missing
    is_of_text = missing is None or missing.unk_id is not None
    if is_of_text and not _may_stand_in_text(in_text):
        return "bytes"
    found = spec.token_to_id.get(token)
    if found != id_:
        return "merges" if found is None else "same_bytes"
    is_in_nfc = not is_text or normalize_nfc(token.decode()) == token.decode()
    if is_of_text and spec.normalizer.name == "nfc" and not is_in_nfc:
        return "normalizer"  # every substring of an NFC text is in NFC
    if not trees.is_made(id_):
        takes_whole = spec.kind == "ranks" or spec.ignore_merges
        # Part of a character is never a pre-token, so it is never looked up whole.
        if not takes_whole or not is_text:
            return "merges"
    texts = _completions(in_text)
    if is_text:
        whole = in_text.decode()
        texts = (before + whole + after for before, after in product(_BEFORE, _AFTER))
    for text in islice(texts, _TRIES):
        if id_ in tokenizer.encode_ordinary(text):
            return None
    return "not_found"


def _may_stand_in_text(token: bytes) -> bool:
    """Whether a UTF-8 text can contain these bytes: at most three continuation bytes, then complete
    characters, then the beginning of one."""
    begin = _leading_continuations(token)
    if begin > 3:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(token[begin:])
    except UnicodeDecodeError:
        return False
    missing = _missing_at_end(token[begin:])
    # The decoder accepts the beginning of a surrogate as that of a character. After its first two
    # bytes, either every continuation completes a character or none does.
    return not missing or token[-1] & 0xC0 != 0x80 or is_utf8(token[begin:] + b"\x80" * missing)


def _leading_continuations(token: bytes) -> int:
    return next((i for i, byte in enumerate(token) if byte & 0xC0 != 0x80), len(token))


def _completions(token: bytes) -> Iterator[str]:
    """The shortest texts of complete characters that contain the bytes: all if they are few,
    otherwise a random selection that is the same in every run."""
    begin = _leading_continuations(token)
    missing = _missing_at_end(token[begin:])
    shapes: list[tuple[int, int, int]] = []  # length of the first character, bytes before, after
    for length in (2, 3, 4) if begin else (0,):
        free = length - 1 - begin
        if not begin:
            shapes.append((0, 0, missing))
        elif begin < len(token):
            shapes += [(length, free, missing)] if free >= 0 else []
        else:  # continuation bytes only: the middle or the end of one character
            shapes += [(length, before, free - before) for before in range(free + 1)]
    chooser = random.Random(0)
    for length, before, after in shapes:
        choices = [_LEADS[length]] if length else []
        choices += [_CONTINUATIONS] * (before + after)
        n_lead = before + (1 if length else 0)
        for parts in _some_of(choices, chooser):
            data = bytes(parts[:n_lead]) + token + bytes(parts[n_lead:])
            if is_utf8(data):
                yield data.decode()


def _some_of(choices: list[range], chooser: random.Random) -> Iterator[tuple[int, ...]]:
    if prod(map(len, choices)) <= _TRIES:
        yield from product(*choices)
        return
    for _ in range(_TRIES // 4):
        yield tuple(map(chooser.choice, choices))


def _missing_at_end(data: bytes) -> int:
    """The number of bytes that the last character lacks."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = next((n for n, leads in _LEADS.items() if byte in leads), 1)
            return max(length - back, 0)
    return 0
