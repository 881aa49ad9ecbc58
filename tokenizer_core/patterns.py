r"""The named split patterns: how text is cut into pre-tokens, and the source of each pattern.

The pinned `regex` release matches a pattern on *text*. Its Unicode tables are part of the contract:
`\p{L} \p{N} \p{M} \s` differ between releases, and a code point in another class gives another id.
The patterns here are possessive where the published ones are not. This changes no match (a letter
run never gives a letter back) and makes the splitter a third faster. They use `\Z` where the
sources use `$`: in the sources' engines `$` is the end of the text, but Python's `$` also matches
before a final newline.

No pattern uses lookbehind, so a pre-token depends only on the text from its start on. `pretokenize`
describes how far a match looks ahead; streaming relies on that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import regex

from tokenizer_core.errors import UnknownPatternError

if TYPE_CHECKING:
    from collections.abc import Mapping


def _version_of_regex() -> str:
    """The version of the installed `regex`, from the name of its metadata folder.

    `importlib.metadata` gives the same version but takes 40 ms to import, so it is only the
    fallback. (`regex.__version__` is another number.)
    """
    if regex.__file__ is not None:
        beside = Path(regex.__file__).parent.parent
        names = os.listdir(beside) if beside.is_dir() else []  # noqa: PTH208 - names alone, once
        found = [name for name in names if name[:6] == "regex-" and name.endswith(".dist-info")]
        if len(found) == 1:
            return found[0].removeprefix("regex-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("regex")


UNICODE_TABLES: Final = f"regex {_version_of_regex()}"
"""The tables that define `\\p{L}` and the other classes; every manifest records them."""


@dataclass(frozen=True, slots=True)
class SplitPattern:
    """A split pattern: its name (`custom` for an unnamed one), and the expression for `regex`."""

    name: str
    expression: str

    @property
    def is_named(self) -> bool:
        """Whether streaming and cutting rules are known for this pattern."""
        return self.name != CUSTOM

    def compile(self) -> regex.Pattern[str]:
        """The compiled expression; compiled once per expression and process."""
        return _compile(self.expression)


@lru_cache(maxsize=32)
def _compile(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression)


CUSTOM: Final = "custom"

# GPT-2's release, in the form tiktoken 0.14 uses for r50k_base and p50k_base.
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\Z|\s+(?!\S)|\s"
# tiktoken 0.14, cl100k_base. Note `\s*[\r\n]`: in "\n " at the end of a text, one match covers the
# newline and the space (`\s++\Z` comes first). Llama 3 and Qwen write `\s*[\r\n]+` and differ.
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++\Z|\s*[\r\n]|\s+(?!\S)|\s"
)
# tokenizer.json of Llama 3.
_LLAMA3 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# tokenizer.json of Qwen 2, 2.5 and 3: Llama 3's with digits one by one.
_QWEN2 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# tiktoken 0.14, o200k_base. The upper-case run must be able to give characters back (\p{Lo} and
# \p{M} are in both classes), so it stays as published.
_O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

PATTERNS: Final[Mapping[str, SplitPattern]] = {
    name: SplitPattern(name, expression)
    for name, expression in {
        "gpt2": _GPT2,
        "cl100k": _CL100K,
        "o200k": _O200K,
        "llama3": _LLAMA3,
        "qwen2": _QWEN2,
    }.items()
}
"""The named patterns, by name."""

ALIASES: Final[Mapping[str, str]] = {
    "r50k": "gpt2",
    "r50k_base": "gpt2",
    "p50k": "gpt2",
    "p50k_base": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "o200k_harmony": "o200k",
    "qwen3": "qwen2",
}
"""Other names for the same patterns."""

# Published spellings that match exactly what a named pattern matches. Files contain the expression,
# not a name; a known expression gets the exact streaming rules of its name.
_PUBLISHED_SPELLINGS: Final[Mapping[str, str]] = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "llama3",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2",
}


def resolve_pattern(pattern: str | SplitPattern) -> SplitPattern:
    """The split pattern of a name, an alias, or an expression.

    A string that is neither a name nor a published spelling is a custom expression if it contains
    a character that no name has. A misspelt name is an error, never an expression.

    Raises:
        UnknownPatternError: the name is unknown, or the expression does not compile.

    Example:
        >>> resolve_pattern("qwen3").name
        'qwen2'
        >>> resolve_pattern(r"\\s+|\\S+").name
        'custom'
    """
    if isinstance(pattern, SplitPattern):
        if PATTERNS.get(pattern.name) == pattern:
            return pattern
        # The exact rules of a name apply only to its own expression.
        if pattern.name != CUSTOM:
            raise UnknownPatternError(
                f"the expression of this SplitPattern is not that of {pattern.name!r:.60}; give "
                f"the expression alone, or a name alone"
            )
        pattern = pattern.expression
    if not isinstance(pattern, str):
        raise UnknownPatternError(
            f"a split pattern is a name or an expression, not {type(pattern).__name__}"
        )
    name = ALIASES.get(pattern, pattern)
    if name in PATTERNS:
        return PATTERNS[name]
    return _resolve_expression(pattern)


def _resolve_expression(expression: str) -> SplitPattern:
    for named in PATTERNS.values():
        if named.expression == expression:
            return named
    if expression in _PUBLISHED_SPELLINGS:
        return PATTERNS[_PUBLISHED_SPELLINGS[expression]]
    if not regex.search(r"[^\w.-]", expression):
        known = ", ".join([*PATTERNS, *ALIASES])
        raise UnknownPatternError(
            f"there is no split pattern named {expression!r:.60}. Known names: {known}; "
            f"or give a regular expression of your own."
        )
    try:
        _compile(expression)
    except (regex.error, RecursionError) as error:
        raise UnknownPatternError(
            f"the split pattern does not compile with {UNICODE_TABLES}: {error}"
        ) from None
    return SplitPattern(CUSTOM, expression)
