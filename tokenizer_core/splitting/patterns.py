r"""The named split patterns: how text is cut into pre-tokens, and the source of each pattern.

`regex` matches a pattern on *text*. Unicode tables are part of the contract: `\p{L} \p{N} \p{M} \s`
differ between releases of `regex`, and a code point in another class gives another id. Every
expression is therefore compiled for the tables of `unicode_sets`, with any installed release.
The patterns here are possessive where the published ones are not. This changes no match (a letter
run never gives a letter back) and makes the splitter a third faster. They use `\Z` where the
sources use `$`: in the sources' engines `$` is the end of the text, but Python's `$` also matches
before a final newline.

No named pattern uses lookbehind, so a pre-token depends only on the text from its start on.
`pretokenize` describes how far a match looks ahead; streaming relies on that.

An expression has a dialect, because engines read the same expression differently: `regex` here and
in CS336 (`python`), Rust's fancy-regex in tiktoken, Oniguruma in Hugging Face's `tokenizers`.
`dialects` translates the other two exactly, or refuses. What becomes of text that no match
covers belongs to the pattern too: it is kept, or dropped as in tiktoken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting.unicode_data import RELEASE
from tokenizer_core.splitting.unicode_sets import compile_exactly, for_installed_regex

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import regex

    from tokenizer_core.splitting.dialects import SplitAutomaton, Translation

Dialect = Literal["python", "fancy-regex", "oniguruma"]
Unmatched = Literal["keep", "drop"]
Behavior = Literal["isolated", "removed", "contiguous", "merged-with-previous", "merged-with-next"]


UNICODE_TABLES: Final = f"regex {RELEASE}"
"""The tables that define `\\p{L}` and the other classes; every manifest records them."""


@dataclass(frozen=True, slots=True)
class SplitPattern:
    """A split pattern: its name (`custom` for an unnamed one), and the expression.

    - `dialect`: whose regular expressions it is written in: `python` (the module `regex`),
      `fancy-regex` (tiktoken) or `oniguruma` (a `tokenizer.json`).
    - `unmatched`: what becomes of text that no match covers: `keep` makes separate pre-tokens of
      it, `drop` leaves it out, as tiktoken does. Ids of dropped text do not exist, so decoding does
      not give it back.
    - `behavior`: what becomes of a match, as in a `Split` of Hugging Face: a pre-token
      (`isolated`), nothing (`removed`), one pre-token with the matches beside it (`contiguous`),
      or a part of the text before or after it. With `invert`, of the text between matches.
      Whatever is not `isolated` needs `unmatched` to be `keep`.
    - `before`: patterns that split first, in order (a Sequence of a `tokenizer.json`): each step
      sees each piece of the one before it as a whole text. A pattern with steps has no name.

    Example:
        >>> pattern = SplitPattern("custom", r"[a-z&&[^x]]+", "fancy-regex", unmatched="drop")
        >>> pattern.compile().findall("axb c")
        ['a', 'b', 'c']
    """

    name: str
    expression: str
    dialect: Dialect = "python"
    unmatched: Unmatched = "keep"
    before: tuple[SplitPattern, ...] = field(default=(), repr=False)
    behavior: Behavior = "isolated"
    invert: bool = False

    @property
    def is_named(self) -> bool:
        """Whether streaming and cutting rules are known for this pattern."""
        return self.name != CUSTOM

    @property
    def is_metaspace(self) -> bool:
        """Whether it is one of `metaspace_pattern`."""
        return self.name == METASPACE.name

    @property
    def joins_words(self) -> bool:
        """Whether its pre-tokens may be several words of a SentencePiece vocabulary."""
        return self.is_metaspace and self != METASPACE

    @property
    def has_cuts(self) -> bool:
        """Whether a text can be cut somewhere for this pattern, so that streams settle ids."""
        return self.is_named or (self.automaton is not None and bool(self.automaton.cuts.any()))

    @property
    def drops(self) -> bool:
        """Whether text that no match covers is left out."""
        is_dropping = self.unmatched == "drop" or self.behavior == "removed"
        return is_dropping or any(step.drops for step in self.before)

    @property
    def has_steps(self) -> bool:
        """Whether its pre-tokens are not simply its matches and the text between them."""
        return bool(self.before) or self.behavior != "isolated"

    def alone(self) -> SplitPattern:
        """The same without `before`."""
        return replace(self, before=())

    @property
    def is_plain(self) -> bool:
        """Whether its name and its expression say all."""
        return self.dialect == "python" and self.unmatched == "keep" and not self.has_steps

    @property
    def restarts_after_empty_matches(self) -> bool:
        """Whether a match may be empty, in a dialect that searches anew after each match."""
        return self.dialect != "python" and _translate(self.expression, self.dialect).matches_empty

    def compile(self) -> regex.Pattern[str]:
        """The compiled expression, without `before`; compiled once per expression and process."""
        return _compile(self.expression, self.dialect)

    @property
    def automaton(self) -> SplitAutomaton | None:
        """The automaton that splits alike in linear time; None if the pattern has none."""
        return _make_automaton(self)

    def fields(self) -> dict[str, object]:
        """The fields of the pattern in a file; others than name and expression only if needed."""
        table: dict[str, object] = {"name": self.name, "expression": self.expression}
        if not self.is_plain:
            table |= {"dialect": self.dialect, "unmatched": self.unmatched}
        if self.behavior != "isolated":
            table |= {"behavior": self.behavior, "invert": self.invert}
        if self.before:
            table["before"] = [step.fields() for step in self.before]
        return table

    @classmethod
    def from_fields(cls, table: dict[str, Any]) -> SplitPattern:
        """The pattern of such fields, not yet resolved; raises KeyError, TypeError or ValueError
        for malformed ones."""
        if not isinstance(table, dict):
            raise TypeError(f"{table!r:.60} is no table")
        dialect, unmatched = table.get("dialect", "python"), table.get("unmatched", "keep")
        if dialect not in get_args(Dialect) or unmatched not in get_args(Unmatched):
            raise ValueError(f"unknown dialect {dialect!r:.40} or rule {unmatched!r:.40}")
        behavior, invert = table.get("behavior", "isolated"), table.get("invert", False)
        if behavior not in get_args(Behavior) or type(invert) is not bool:
            raise ValueError(f"unknown behavior {behavior!r:.40} or invert {invert!r:.40}")
        name, expression = table["name"], table["expression"]
        if type(name) is not str or type(expression) is not str:
            raise TypeError(f"{name!r:.60} or {expression!r:.60} is no text")
        listed = table.get("before", [])
        if not isinstance(listed, list):
            raise TypeError(f"{listed!r:.60} is no list of steps")
        before = tuple(cls.from_fields(step) for step in listed)
        if any(step.before for step in before):
            raise ValueError("a step before a split pattern has steps of its own")
        return cls(name, expression, dialect, unmatched, before, behavior, invert)


@lru_cache(maxsize=32)
def _compile(expression: str, dialect: str) -> regex.Pattern[str]:
    import regex

    if dialect != "python":
        return compile_exactly(_translate(expression, dialect).expression, regex.VERSION1)
    if any(expression == named.expression for named in PATTERNS.values()):
        return compile_exactly(expression)
    return regex.compile(for_installed_regex(expression, has_nested_sets="(?V1)" in expression))


@lru_cache(maxsize=32)
def _translate(expression: str, dialect: str) -> Translation:
    # Imported here: few processes need it.
    from tokenizer_core.splitting.dialects import translate

    return translate(expression, dialect)


@lru_cache(maxsize=32)
def _make_automaton(pattern: SplitPattern) -> SplitAutomaton | None:
    # Imported here: few processes need it.
    from tokenizer_core.splitting.dialects import make_automaton

    return make_automaton(
        (step.expression, step.dialect, step.behavior, step.invert, step.unmatched == "drop")
        for step in (*pattern.before, pattern.alone())
    )


def sets_of_matches(pattern: SplitPattern) -> list[str] | None:
    """As `dialects.sets_of_matches`."""
    from tokenizer_core.splitting import dialects

    return dialects.sets_of_matches(pattern.expression, pattern.dialect)


CUSTOM: Final = "custom"

MAX_STEPS: Final = 64
"""Each step of a split pattern splits the whole text once more; DeepSeek has four."""

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

_MARK: Final = r"[^\s\p{L}\p{N}]"


def superword_pattern(pattern: SplitPattern) -> SplitPattern:
    """The named pattern with each run of words joined, and of single marks between or after them.

    Its pre-tokens are whole pre-tokens of the pattern, one or several. Numbers, runs of marks and
    white space other than the space before a word stay apart, so that none crosses a line. Raises
    UnknownPatternError: the pattern has no name, so its words are unknown.

    Example:
        >>> superword_pattern(PATTERNS["gpt2"]).compile().findall("on the way, 12 of us\\n")
        ['on the way,', ' 12', ' of us', '\\n']
    """
    if PATTERNS.get(pattern.name) != pattern:
        raise UnknownPatternError(
            f"superwords join words of a named split pattern ({', '.join(PATTERNS)}), not of one "
            f"of your own"
        )
    # In Oniguruma `{1,3}+` repeats a repetition, and `\Z` also matches before a last newline.
    expression = pattern.expression.replace("{1,3}+", "{1,3}").replace(r"\Z", r"\z")
    words, others = re.split(r"\|(?=(?: \?)?\\p\{N\})", expression, maxsplit=1)
    mark = rf" ?{_MARK}(?!{_MARK}|[\r\n])"
    return SplitPattern(CUSTOM, rf"(?:{words}|{mark})++|{others}", "oniguruma")


METASPACE: Final = SplitPattern("metaspace", r" *+[^ ]++| ++")
"""How text is cut for a SentencePiece vocabulary in which no merge joins a word to the spaces after
it: before each run of spaces. It belongs to these vocabularies and has no name for users."""

PUBLISHED: Final[Mapping[str, SplitPattern]] = {
    # tokenization_kimi.py of Kimi K2, which tiktoken runs.
    "kimi_k2": SplitPattern(
        CUSTOM,
        "|".join(
            (
                r"[\p{Han}]+",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
        "fancy-regex",
        "drop",
    ),
    # tokenizer.json of Qwen 3.5 and 3.6: Qwen 2's with marks among the letters.
    "qwen3_5": SplitPattern(
        CUSTOM,
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "oniguruma",
    ),
    # tekken.json of Mistral, version 240911, which tiktoken runs.
    "tekken": SplitPattern(
        CUSTOM,
        "|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
                r"\p{N}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
        "fancy-regex",
        "drop",
    ),
}
"""Custom patterns of published models, by a name that stands for the expression; a tokenizer keeps
the expression."""
# Digits splits by Rust's `char::is_numeric`: 13 characters of Unicode 17 more than `\p{N}` here,
# which ByteLevel does not count among the digits.
_NEW_NUMERIC: Final = r"\U00011DE0-\U00011DE9\U00016FF4-\U00016FF6"
NUMERIC: Final = rf"\p{{N}}{_NEW_NUMERIC}"


def _after_digits(digits: str) -> SplitPattern:
    """GPT-2's pattern on the text between `digits`, which Digits has cut out before.

    There a run of white space ends with the text before a digit, so that none of it is kept for the
    next word; and a digit never takes a space.
    """
    return SplitPattern(
        CUSTOM,
        rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}++|{digits}| ?[^\s\p{{L}}{NUMERIC}]++"
        rf"|\s++(?=[{NUMERIC}]|\Z)|\s+(?!\S)|\s",
    )


DIGITS_THEN_GPT2: Final = MappingProxyType(
    {True: _after_digits(f"[{NUMERIC}]"), False: _after_digits(rf"\p{{N}}++|[{_NEW_NUMERIC}]++")}
)
"""Whether Digits isolates each digit -> the pattern of Digits followed by ByteLevel (StarCoder,
SmolLM, Granite, Command R)."""

# DeepSeek's second Split isolates runs of kana and ideographs. The third splits each run, and each
# text between runs, by itself. A run has letters and marks, punctuation and symbols, and three
# unassigned code points; one of these may begin a word.
_KANA: Final = r"ぁ-ゖ\u3099\u309Aゝ-ゟァ-ヺー-ヿ一-龥"
_HOLES: Final = r"\u3040\u3097\u3098"
_CUT_OUT: Final = r"一-龥\u3040-ヿ"

DEEPSEEK: Final = SplitPattern(
    CUSTOM,
    "|".join(
        (
            r"\p{N}{1,3}+",
            rf"[{_HOLES}]?[{_KANA}]++",
            r"[゛゜゠・]++",
            rf"[{_HOLES}]++(?![{_KANA}])|[{_HOLES}]+(?=[{_HOLES}])",
            r"[!-/:-@\[-`{-~][A-Za-z]++",
            rf"[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}{_CUT_OUT}]?"
            rf"[^\p{{N}}\p{{P}}\p{{S}}\p{{Z}}\p{{C}}{_CUT_OUT}]+",
            rf" ?[^\p{{L}}\p{{M}}\p{{N}}\p{{Z}}\p{{C}}{_CUT_OUT}]++[\r\n]*+",
            r"\s*[\r\n]+",
            rf"\s++(?=[\p{{N}}{_CUT_OUT}]|\Z)|\s+(?!\S)|\s+",
        )
    ),
)
"""The Splits of DeepSeek V3 and R1 in one expression. A run of white space before a digit or an
ideograph ends its piece, so that none of it is kept for the next word."""

CLIP: Final = replace(
    PATTERNS["gpt2"],
    name=CUSTOM,
    before=(
        SplitPattern(
            CUSTOM,
            r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]"
            r"|[^\s\p{L}\p{N}]+",
            "oniguruma",
            "drop",
        ),
    ),
)
"""The Split of CLIP, which keeps its matches alone, and ByteLevel."""

RULES: Final[Mapping[SplitPattern, str]] = {
    METASPACE: "metaspace",
    DIGITS_THEN_GPT2[True]: "digits",
    DIGITS_THEN_GPT2[False]: "digit_runs",
    DEEPSEEK: "deepseek_v3",
    **{pattern: name for name, pattern in PUBLISHED.items()},
}
"""Custom patterns for whose blocks the native engine has rules, with the names of these."""

MAX_JOINED_CHARACTERS: Final = 1000
"""After more characters than these, a text is not cut at all."""

_ALL_JOINED: Final = SplitPattern("metaspace", "(?s:.)++")
_JOINED: Final = re.compile(r" \*\+\(\?:\[\^ ((?:\\U[0-9a-f]{8})+)\]\|\[\1\] \*\+\)\+\+\| \+\+")


def metaspace_pattern(joined: Collection[str]) -> SplitPattern:
    """How text is cut for a SentencePiece vocabulary in which merges join some characters to the
    spaces after them: before each run of spaces that follows another character.
    """
    if not joined:
        return METASPACE
    if len(joined) > MAX_JOINED_CHARACTERS:
        return _ALL_JOINED
    body = "".join(f"\\U{ord(character):08x}" for character in sorted(joined))
    return SplitPattern(METASPACE.name, f" *+(?:[^ {body}]|[{body}] *+)++| ++")


def is_as_named(pattern: SplitPattern) -> bool:
    """Whether the pattern has a name whose rules hold for it."""
    if not pattern.is_metaspace:
        return PATTERNS.get(pattern.name) == pattern
    is_joined = _JOINED.fullmatch(pattern.expression) is not None
    is_plain = pattern == SplitPattern(pattern.name, pattern.expression)
    return pattern in (METASPACE, _ALL_JOINED) or (is_joined and is_plain)


@cache
def metaspace_cut(pattern: SplitPattern, flags: str) -> regex.Pattern[str] | None:
    """What matches where a pattern of `metaspace_pattern` always cuts a text; None if nowhere.
    `flags` begin the expression."""
    import regex

    found = _JOINED.fullmatch(pattern.expression)
    body = found[1] if found else ""
    return None if pattern == _ALL_JOINED else regex.compile(f"{flags}(?<=[^ {body}])(?= )")


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

PATTERN_NAMES: Final = (*PATTERNS, *PUBLISHED, *ALIASES)
"""What `resolve_pattern` takes beside expressions."""

# Published spellings that match exactly what a named pattern matches. Files contain the expression,
# not a name; a known expression gets the exact streaming rules of its name. The last one of a name
# is what Hugging Face's files have.
PUBLISHED_SPELLINGS: Final[Mapping[str, str]] = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "llama3",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2",
}


def resolve_pattern(
    pattern: str | SplitPattern, *, dialect: Dialect = "python", unmatched: Unmatched = "keep"
) -> SplitPattern:
    """The split pattern of a name, an alias, or an expression.

    A string that is neither a name nor a published spelling is a custom expression if it contains a
    character that no name has. A misspelt name is an error, never an expression. `dialect` and
    `unmatched` are those of a string; a SplitPattern has its own. Raises UnknownPatternError: the
    name is unknown, or the expression does not compile or cannot be translated exactly.

    Example:
        >>> resolve_pattern("qwen3").name
        'qwen2'
        >>> resolve_pattern(r"\\s+|\\S+").name
        'custom'
    """
    if isinstance(pattern, SplitPattern):
        if is_as_named(pattern):
            return pattern
        # The exact rules of a name apply only to its own expression.
        if pattern.name != CUSTOM:
            raise UnknownPatternError(
                f"the expression of this SplitPattern is not that of {pattern.name!r:.60}; give "
                f"the expression alone, or a name alone"
            )
        if pattern.has_steps:
            return _resolve_steps(pattern)
        dialect, unmatched = pattern.dialect, pattern.unmatched
        pattern = pattern.expression
    if dialect not in get_args(Dialect) or unmatched not in get_args(Unmatched):
        raise UnknownPatternError(
            f"the dialect of a split pattern is one of {', '.join(get_args(Dialect))}, and text "
            f"without a match is one of {', '.join(get_args(Unmatched))}; given: {dialect!r:.40} "
            f"and {unmatched!r:.40}"
        )
    if not isinstance(pattern, str):
        raise UnknownPatternError(
            f"a split pattern is a name or an expression, not {type(pattern).__name__}"
        )
    name = ALIASES.get(pattern, pattern)
    if name in PATTERNS or name in PUBLISHED:
        return PATTERNS.get(name) or PUBLISHED[name]
    return _resolve_expression(SplitPattern(CUSTOM, pattern, dialect, unmatched))


def _resolve_steps(pattern: SplitPattern) -> SplitPattern:
    """The pattern itself, if each of its steps can run."""
    if len(pattern.before) >= MAX_STEPS:
        raise UnknownPatternError(
            f"a split pattern has {len(pattern.before) + 1} steps, more than {MAX_STEPS}; join "
            f"some of its expressions"
        )
    for step in (*pattern.before, pattern.alone()):
        if step.name != CUSTOM or step.before:
            raise UnknownPatternError(
                f"a step of a split pattern is a custom pattern without steps, not {step!r:.120}"
            )
        if step.behavior != "isolated" and step.unmatched != "keep":
            raise UnknownPatternError(
                f"the behavior {step.behavior} of a split pattern keeps text without a match; "
                f"unmatched must be 'keep'"
            )
        resolve_pattern(replace(step, behavior="isolated", invert=False))
    return pattern


def _resolve_expression(custom: SplitPattern) -> SplitPattern:
    expression = custom.expression
    # Oniguruma reads `{1,3}+` otherwise; `formats.tokenizer_json` knows its spellings.
    if custom.dialect != "oniguruma":
        for named in PATTERNS.values():
            if named.expression == expression:
                return named
        if expression in PUBLISHED_SPELLINGS:
            return PATTERNS[PUBLISHED_SPELLINGS[expression]]
    import regex

    is_given_as_expression = custom.dialect == "oniguruma"
    if not is_given_as_expression and not regex.search(r"[^\w.-]", expression):
        raise UnknownPatternError(
            f"there is no split pattern named {expression!r:.60}. Known names: "
            f"{', '.join(PATTERN_NAMES)}; or give a regular expression of your own."
        )
    try:
        if custom.compile().flags & regex.REVERSE:
            raise UnknownPatternError(
                "the split pattern searches backwards, which gives pre-tokens in the wrong order; "
                "leave out the flag (?r)"
            )
    except (regex.error, RecursionError, AttributeError) as error:  # `regex` has faults of its own
        raise UnknownPatternError(
            f"the split pattern does not compile with {UNICODE_TABLES}: {error}"
        ) from None
    return custom
