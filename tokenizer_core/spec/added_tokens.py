"""The added tokens of a vocabulary: their ids, and the checks of their content."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, starmap
from operator import add
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import InvalidSpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokenizer_core.spec import TokenizerSpec

ADDED_TOKEN_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized")
"""The flags of an added token that change where it is matched."""

MAX_ADDED_TOKEN_CHARS: Final = 1024
"""Longer special tokens are refused: a search takes time in proportion to the token's length at
every position where the text begins like the token."""

_SPECIAL_SHAPE: Final = re.compile(rb"<[!-;=?-~]*[A-Za-z][!-;=?-~]*>|\[[A-Z_]*[A-Z][0-9A-Z_]*\]")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token matched in the text before the split. `special: False` marks content tokens (Qwen's
    `<think>`): always matched, never skipped on decode.

    The flags of Hugging Face: `lstrip` and `rstrip` tokens include the white space before and after
    them, which gives no id; a `single_word` token is plain text next to a letter or digit. Tokens
    that are `normalized` are matched in the text that the other tokens leave. If the spec has
    `steps`, that is in its normalized form and by their normalized content, to which they also
    decode. A spec without other flags and steps, in which the order does not matter, has
    `normalized=False` throughout.
    """

    content: str
    id: int
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def flags(self) -> list[str]:
        """The names of the flags that are set."""
        return [name for name in ADDED_TOKEN_FLAGS if getattr(self, name)]

    def fields(self) -> dict[str, Any]:
        """The fields of the token in a manifest; `flags` only if any are set."""
        table = {"content": self.content, "id": self.id, "special": self.special}
        return table | {"flags": self.flags} if self.flags else table

    @classmethod
    def from_fields(cls, table: dict[str, Any]) -> AddedToken:
        """The token of such fields; raises KeyError, TypeError or AttributeError for malformed
        ones."""
        content, id_, special = table["content"], table["id"], table["special"]
        if (type(content), type(id_), type(special)) != (str, int, bool):
            raise TypeError(f"{table!r:.80} is no added token")
        return cls(content, id_, special, **dict.fromkeys(table.get("flags", ()), True))


def list_added_tokens(tokens: Iterable[str | AddedToken]) -> list[str | AddedToken]:
    """The tokens as a list; refuses those that are no text."""
    if isinstance(tokens, str | Mapping) or not hasattr(tokens, "__iter__"):
        raise InvalidSpecError(f"special tokens are a list of strings, not {tokens!r:.60}")
    listed: list[str | AddedToken] = list(tokens)
    for given in listed:
        check_content(given.content if isinstance(given, AddedToken) else given)
    return listed


def place_added_tokens(
    entries: dict[int, bytes],
    listed: list[str | AddedToken],
    spell: Callable[[AddedToken], bytes],
) -> tuple[AddedToken, ...]:
    """Give every added token its id in `entries`, appending new tokens.

    A new special token never shifts an id: it follows the largest one.
    """
    known: dict[bytes, int] = {}
    if any(isinstance(given, str) for given in listed):
        known = {entries[id_]: id_ for id_ in sorted(entries, reverse=True)}
    placed: list[AddedToken] = []
    named: set[int] = set()
    n_ids = max(entries, default=-1) + 1
    for given in listed:
        if isinstance(given, AddedToken):
            token = given
        else:
            content = given.encode()
            token = AddedToken(given, known.get(content, n_ids))
            known[content] = token.id
        spelt = spell(token)
        if token.normalized and entries.get(token.id) == spell(replace(token, normalized=False)):
            entries[token.id] = spelt
        is_its_own = entries.setdefault(token.id, spelt) == spelt
        if not is_its_own and token.id not in named:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} wants id {token.id}, "
                f"which belongs to {entries[token.id]!r:.60}; give it a free id"
            )
        n_ids = max(n_ids, token.id + 1)
        named.add(token.id)
        placed.append(token)
    return tuple(placed)


def check_respelt(spec: TokenizerSpec, respelt: list[tuple[AddedToken, bytes]]) -> None:
    """Refuse `normalized` tokens whose entry of the vocabulary, before the normalizer changed its
    spelling, is a token of plain text as well (Llama 2 with `add_tokens(["x"])`)."""
    made = set(starmap(add, spec.merges)) if respelt else set()
    for token, entry in respelt:
        is_start = len(entry.decode() if spec.alphabet.has_characters else entry) == 1
        has_other = not spec.alphabet.has_characters and entry in spec.token_to_id
        if (is_start or entry in made) and not has_other:
            raise InvalidSpecError(
                f"the added token {token.content!r:.60} is searched in the normalized text, as "
                f"{spec.vocab[token.id].decode()!r:.60}, and its id {token.id} is also the token "
                f"{entry.decode()!r:.60} of plain text; give it normalized: false"
            )


def check_content(content: object) -> None:
    """Raise InvalidSpecError for what cannot be the text of a special token."""
    if not isinstance(content, str) or not content:
        raise InvalidSpecError(
            f"the special token {content!r:.60} must be a string that is not empty: an empty one "
            f"would match everywhere"
        )
    if len(content) > MAX_ADDED_TOKEN_CHARS:
        raise InvalidSpecError(
            f"the special token {content!r:.60} has {len(content)} characters, more than "
            f"{MAX_ADDED_TOKEN_CHARS}; give a shorter one"
        )
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidSpecError(
            f"the special token {content!r:.60} holds a lone surrogate, which is no text"
        ) from None


def check_as_given(spec: TokenizerSpec, *, stacklevel: int = 2) -> None:
    """Check a vocabulary of bytes and the merges that a caller put together. Warn if it has a token
    of special shape (`<|endoftext|>`, `<s>`, `[CLS]`) that is not an added token and that no merge
    makes: no text gives its id. Raise InvalidSpecError: there are no merges, and no text gives
    other tokens of several bytes either.

    Formats without a list of special tokens leave that list to the caller, who may forget it.
    `stacklevel` as in `warnings.warn`, counted from the caller.
    """
    added = {token.id for token in spec.added_tokens}
    shaped = [
        (id_, token)
        for id_, token in spec.vocab.items()
        if token[:1] in (b"<", b"[") and id_ not in added and _SPECIAL_SHAPE.fullmatch(token)
    ]
    if not spec.merges:
        known = added.union(id_ for id_, _ in shaped)
        others = [i for i, token in spec.vocab.items() if len(token) > 1 and i not in known]
        if others:
            raise InvalidSpecError(
                f"there are no merges, so no text gives the tokens of several bytes (first: id "
                f"{others[0]}, {spec.vocab[others[0]]!r:.60}). A vocabulary of ranks (a preset, a "
                f".tiktoken file) has no merges: TokenizerSpec.from_ranks takes it, and "
                f"Tokenizer.with_special_tokens adds special tokens to a tokenizer"
            )
    if not shaped:
        return
    made = set(starmap(add, spec.merges))
    unmarked = [(id_, token.decode()) for id_, token in sorted(shaped) if token not in made]
    if unmarked:
        first_id, first = unmarked[0]
        shown = [repr(token) for _, token in unmarked[:4]] + ["..."] * (len(unmarked) > 4)
        warnings.warn(
            f"the vocabulary has tokens that look special and are not declared ({len(unmarked)}), "
            f"so no text gives their ids; pass special_tokens=[{', '.join(shown)}], or on the "
            f"command line --special '{first}={first_id}'",
            stacklevel=stacklevel + 1,
        )


def first_cut_token(spec: TokenizerSpec) -> str | None:
    """The first token that a merge makes, that is no part of another one, and that the split
    pattern cuts; None without one. A part may be cut: `'l` of `'ll`."""
    search = spec.pattern.compile().match
    parts = set(chain.from_iterable(spec.merges))
    for token in starmap(add, spec.merges):
        with suppress(UnicodeDecodeError):
            text: str = token.decode()
            found = search(text)
            if (found is None or found.end() < len(text)) and token not in parts:
                return text
    return None
