r"""Expressions of fancy-regex and of Oniguruma -> the syntax tree.

A parser accepts the part of its dialect whose meaning is certain, and refuses everything else by
name and offset. What the two have in common is in `_Parser`; each subclass holds its own grammar:
fancy-regex 0.19 with regex-syntax 0.8 (tiktoken 0.14), and Oniguruma 6.9 with its default syntax
(`tokenizers` 0.23).
"""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import Final, NoReturn

import regex

from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting.dialects.properties import (
    CATEGORIES,
    POSIX_FANCY,
    POSIX_ONIGURUMA,
    PROPERTIES,
    SCRIPTS,
    SHORTHANDS,
    WORD_FANCY,
    WORD_ONIGURUMA,
)
from tokenizer_core.splitting.dialects.syntax import (
    LINE_END,
    Alternatives,
    Assertion,
    Atomic,
    Characters,
    CharacterSet,
    Complement,
    Item,
    Look,
    Node,
    Operation,
    Repeat,
    Sequence,
    Union,
    lengths,
    literal_text,
    range_item,
    set_text,
    union,
)
from tokenizer_core.splitting.unicode_sets import loose

MAX_EXPRESSION_CHARS: Final = 20_000
MAX_REPEATS: Final = 1000
_MAX_DEPTH: Final = 50
_MAX_OPERATIONS: Final = 50
_MAX_SYMMETRIC_DIFFERENCES: Final = 4  # each doubles the text of its sides
_DIGITS: Final = frozenset("0123456789")
_QUANTIFIERS: Final = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_CONTROLS: Final = {
    "a": "\x07", "e": "\x1b", "f": "\x0c", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b",
}  # fmt: skip
_ANY: Final = Complement(Union(()))
_EXCEPT_NEWLINE: Final = Complement(Item(r"\n"))
_LINE_START: Final = r"(?<![^\n])"
_LINE_START_ONIGURUMA: Final = r"(?:\A|(?<=\n)(?!\Z))"
_STARTS: Final = (Assertion(r"\A"), Assertion(_LINE_START_ONIGURUMA))

# Folding joins these to `s` and `k`; no other ASCII letter has a partner outside ASCII.
_FOLDED_BEYOND_ASCII: Final = {"s": "\u017f", "k": "\u212a"}
_CASED = regex.compile(
    r"[\p{Changes_When_Casefolded}\p{Changes_When_Casemapped}\p{Lowercase}\p{Uppercase}]"
)
# `(?i)` in Oniguruma also matches one character for several: these pairs of letters for a ligature.
_LIGATURES: Final = frozenset({"ss", "st", "ff", "fi", "fl"})


class _Parser:
    dialect: str
    word: CharacterSet
    posix: dict[str, CharacterSet]
    flags: str
    dot_flag: str
    last_newlines: str
    """What `\\Z` stands for."""
    name_openings: tuple[str, ...]
    set_operators: tuple[str, ...]
    repeats_quantifiers: bool

    def __init__(self, expression: str) -> None:
        self.text = expression
        self.at = 0
        self.depth = self.set_depth = 0
        self.on: frozenset[str] = frozenset()
        self.operators: list[str] = []

    def parse(self) -> Node:
        """The tree of the whole expression; raises UnknownPatternError."""
        if len(self.text) > MAX_EXPRESSION_CHARS:
            self.refuse(f"an expression of more than {MAX_EXPRESSION_CHARS} characters")
        if any("\ud800" <= character <= "\udfff" for character in self.text):
            self.refuse("a lone surrogate")
        self.skip_comments()
        if self.text.startswith("(?", self.at) and (found := self.leading_flags()):
            self.on = self.flags_of(found)
        node = self.alternatives()
        if self.at < len(self.text):
            self.refuse("an unopened `)`", self.at, "write `\\)`")
        return node

    def refuse(self, what: str, offset: int | None = None, remedy: str = "") -> NoReturn:
        """Raise UnknownPatternError; without an offset, for the expression as a whole."""
        # A line break in a quoted part would break the log.
        what = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in what)
        where = "" if offset is None else f" at offset {offset}"
        remedy = remedy or "rewrite that part, or give the expression as Python's `regex` reads it"
        raise UnknownPatternError(
            f"the split pattern cannot be translated exactly from {self.dialect}: "
            f"{what}{where}; {remedy}"
        )

    def leading_flags(self) -> str | None:
        """The flags of a group `(?i)` here, read past it; None if there is no such group."""
        end = self.text.find(")", self.at)
        found = self.text[self.at + 2 : max(end, self.at + 2)]
        if not found or not set(found) <= set(self.flags + "-"):
            return None
        self.at = end + 1
        return found

    def flags_of(self, letters: str) -> frozenset[str]:
        """The flags that hold after `(?letters`."""
        added, _, removed = letters.partition("-")
        for letter in added + removed:
            if letter not in self.flags:
                self.refuse(f"the flag `{letter}`", self.at, f"only {self.flags} are translated")
        return (self.on | set(added)) - set(removed)

    def skip_comments(self) -> None:
        while self.text.startswith("(?#", self.at):
            start = self.at
            self.at += 3
            while self.at < len(self.text) and self.text[self.at] != ")":
                self.at += 2 if self.text[self.at] == "\\" else 1
            if self.at >= len(self.text):
                self.refuse("a comment without an end", start)
            self.at += 1

    def peek(self) -> str:
        """The next character, or an empty string at the end."""
        return self.text[self.at : self.at + 1]

    def alternatives(self) -> Node:
        parts = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Node:
        begin = self.at
        parts: list[Node] = []
        while True:
            self.skip_comments()
            if self.peek() in ("", "|", ")"):
                break
            start = self.at
            part = self.quantified(self.atom(), start)
            parts += part.parts if isinstance(part, Sequence) else [part]
        self.check_sequence(parts, begin)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def check_sequence(self, parts: list[Node], start: int) -> None:
        """Refuse neighbours whose meaning together is not their meaning one by one."""

    def atom(self) -> Node:
        start, character = self.at, self.text[self.at]
        if character == "(":
            return self.group()
        if character == "[":
            return Characters(self.character_set())
        if character == "\\":
            return self.escape()
        self.at += 1
        if character == ".":
            everything = self.dot_flag in self.on
            return Characters(_ANY if everything else _EXCEPT_NEWLINE)
        if character == "^":
            return Assertion(self.caret())
        if character == "$":
            return Assertion(self.dollar())
        if character in "*+?":
            self.refuse(f"`{character}` without anything to repeat", start)
        if character == "{":
            self.refuse("an unescaped `{`", start, "write `\\{`")
        return self.literal(character, start)

    def caret(self) -> str:
        raise NotImplementedError

    def dollar(self) -> str:
        raise NotImplementedError

    def literal(self, character: str, start: int) -> Node:
        if "i" not in self.on:
            return Characters(Item(literal_text(character)), character)
        folded = self.folded(character, start)
        if len(folded) == 1:
            return Characters(Item(literal_text(character)), character, character)
        return Characters(Item("".join(map(literal_text, folded))), folded=character.lower())

    def folded(self, character: str, start: int) -> str:
        """The characters that `character` matches under `(?i)`."""
        if character.isascii():
            if not character.isalpha():
                return character
            lower = character.lower()
            return lower + lower.upper() + _FOLDED_BEYOND_ASCII.get(lower, "")
        if _CASED.match(character):
            self.refuse("`(?i)` over a letter outside ASCII", start, "write both cases in brackets")
        return character

    def group(self) -> Node:
        start = self.at
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.refuse(f"groups nested more than {_MAX_DEPTH} deep", start)
        outer = self.on
        self.at += 1
        kind = "("
        if self.peek() == "*":
            self.refuse("a verb or callout `(*`", start)
        if self.peek() == "?":
            kind = self.group_kind(start)
        body = self.alternatives()
        if self.peek() != ")":
            self.refuse("a group without an end", start)
        self.at += 1
        self.depth -= 1
        self.on = outer
        if kind == ">":
            return Atomic(body)
        if kind in ("=", "!", "<=", "<!"):
            return self.look(body, kind, start)
        return body

    def look(self, body: Node, kind: str, start: int) -> Look:
        if kind[0] == "<":
            for part in body.parts if isinstance(body, Alternatives) else (body,):
                least, most = lengths(part)
                if least != most:
                    self.refuse("a lookbehind of variable length", start)
        return Look(body, kind[0] == "<", kind[-1] == "!")

    def group_kind(self, start: int) -> str:
        """Read `?:` and its like; sets the flags that it names."""
        text, at = self.text, self.at + 1
        for kind in ("<=", "<!", "=", "!", ">", ":"):
            if text.startswith(kind, at):
                self.at = at + len(kind)
                return kind
        for opening in self.name_openings:
            if text.startswith(opening, at):
                closing = "'" if opening[-1] == "'" else ">"
                end = text.find(closing, at + len(opening))
                name = text[at + len(opening) : end] if end > 0 else ""
                if not (name.isascii() and name.isidentifier()):
                    self.refuse("a group name that is no identifier", start)
                self.at = end + 1
                return "("
        end = at
        while end < len(text) and text[end] in self.flags + "-":
            end += 1
        if text[end : end + 1] == ":" and end > at:
            self.on = self.flags_of(text[at:end])
            self.at = end + 1
            return ":"
        what, remedy = f"the group `{text[start : start + 4]}`", ""
        if text[end : end + 1] == ")" and end > at:
            what, remedy = "flags in the middle of the expression", "write `(?i:...)` there"
        return self.refuse(what, start, remedy)

    def quantified(self, node: Node, start: int) -> Node:
        """The atom with the quantifiers after it."""
        while True:
            self.skip_comments()
            at = self.at
            bounds = self.quantifier()
            if bounds is None:
                return node
            least, most, is_lazy, is_atomic = bounds
            shortest, longest = lengths(node)
            if isinstance(node, Assertion | Look) or longest == 0:
                self.refuse("a quantifier after something that covers no text", at)
            if shortest == 0 and most != 1:
                self.refuse(
                    "a repeated part that may match nothing", at, "repeat what it matches instead"
                )
            if least > MAX_REPEATS or (most or 0) > MAX_REPEATS:
                self.refuse(f"a quantifier above {MAX_REPEATS}", at)
            if most is not None and least > most:
                self.refuse("a quantifier whose bounds fall", at)
            self.check_repeated(node, least, most, start)
            if (least, most) != (1, 1):
                node = Repeat(node, least, most, is_lazy)
            if is_atomic:
                node = Atomic(node)
            if not self.repeats_quantifiers:
                self.skip_comments()
                if self.peek() and self.peek() in "*+?{":
                    self.refuse("a quantifier after a quantifier", self.at)
                return node

    def check_repeated(self, node: Node, least: int, most: int | None, start: int) -> None:
        """Refuse a repetition whose meaning is not certain."""

    def quantifier(self) -> tuple[int, int | None, bool, bool] | None:
        """Least, most, lazy, atomic of the quantifier here, read past it; None without one."""
        sign = self.peek()
        is_single = False
        if sign == "{":
            least, most, is_single = self.interval()
        elif sign and sign in _QUANTIFIERS:
            least, most = _QUANTIFIERS[sign]
            self.at += 1
        else:
            return None
        # Where quantifiers are repeated, `{1,3}+`, `{3}?` and `??+` are two of them.
        is_lazy = self.peek() == "?" and not (is_single and self.repeats_quantifiers)
        self.at += is_lazy
        is_atomic = self.peek() == "+"
        is_atomic = is_atomic and not (self.repeats_quantifiers and (is_lazy or sign == "{"))
        self.at += is_atomic
        return least, most, is_lazy, is_atomic

    def interval(self) -> tuple[int, int | None, bool]:
        """Least and most of `{2,3}`, read past it, and whether it is a single number."""
        start = self.at
        end = self.text.find("}", start)
        least, comma, most = self.text[start + 1 : max(end, start + 1)].partition(",")
        is_number = [len(one) <= 6 and set(one) <= _DIGITS for one in (least, most)]
        if end < 0 or not all(is_number) or not (least or most):
            self.refuse("a `{` that begins no quantifier", start, "write `\\{`")
        self.at = end + 1
        if not comma:
            return int(least), int(least), True
        return int(least or 0), int(most) if most else None, False

    def escape(self) -> Node:
        start = self.at
        letter = self.text[start + 1 : start + 2]
        anchor = self.anchor(letter)
        if anchor is not None:
            self.at += 2
            return Assertion(anchor)
        found = self.escaped_characters(start)
        return self.literal(found, start) if isinstance(found, str) else Characters(found)

    def anchor(self, letter: str) -> str | None:
        if letter == "A":
            return r"\A"
        if letter == "z":
            return r"\Z"
        if letter == "Z":
            return self.last_newlines
        if letter in ("b", "B"):
            if self.text.startswith("{", self.at + 2):
                self.refuse("a word boundary with a name", self.at)
            word = set_text(self.word)
            if letter == "b":
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
        return None

    def escaped_characters(self, start: int) -> str | CharacterSet:
        r"""What `\` and the next characters stand for, inside and outside brackets: a character
        or a set; reads past it."""
        letter = self.text[start + 1 : start + 2]
        self.at = start + 2
        if letter in ("p", "P"):
            return self.property(start, is_negative=letter == "P")
        lower = letter.lower()
        if lower == "w" or lower in SHORTHANDS:
            found = self.shorthand(lower)
            self.check_folding_of(found, lower, start)
            return found if letter == lower else Complement(found)
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in ("x", "u", "U"):
            return self.hexadecimal(letter, start)
        if not letter or not letter.isascii() or letter.isalnum():
            self.refuse(f"the escape `\\{letter}`", start)
        return self.escaped_sign(letter, start)

    def escaped_sign(self, letter: str, start: int) -> str:
        return letter

    def check_folding_of(self, found: CharacterSet, name: str, start: int) -> None:
        """Under `(?i)`, refuse a class of characters with case."""
        if "i" in self.on and name not in ("s", "d", "nd", "z", "zs", "whitespace", "han"):
            self.refuse(
                "a class of characters under `(?i)`", start, "put `(?i:...)` around letters alone"
            )

    def hexadecimal(self, letter: str, start: int) -> str:
        raise NotImplementedError

    def code_point(self, digits: str, start: int) -> str:
        number = int(digits, 16) if regex.fullmatch(r"[0-9A-Fa-f]{1,8}", digits) else 0x110000
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self.refuse("an escape that names no character", start)
        return chr(number)

    def braced_digits(self, start: int) -> str:
        end = self.text.find("}", self.at)
        digits = self.text[self.at + 1 : max(end, self.at + 1)]
        self.at = end + 1
        return self.code_point(digits, start)

    def fixed_digits(self, n_digits: int, start: int) -> str:
        digits = self.text[self.at : self.at + n_digits]
        self.at += n_digits
        return self.code_point(digits if len(digits) == n_digits else "", start)

    def shorthand(self, letter: str) -> CharacterSet:
        return self.word if letter == "w" else SHORTHANDS[letter]

    def property(self, start: int, *, is_negative: bool) -> CharacterSet:
        if self.peek() == "{":
            end = self.text.find("}", self.at)
            name = self.text[self.at + 1 : max(end, self.at + 1)]
            self.at = end + 1
        else:
            name = self.peek()
            self.at += 1
        if name.startswith("^"):
            name, is_negative = name[1:], not is_negative
        key = loose(name) if name.isascii() else ""
        written = PROPERTIES.get(self.property_key(key))
        if written is None:
            self.refuse(f"the property `{name:.40}`", start, "write a general category or a script")
        self.check_folding_of(Item(written), key, start)
        return Complement(Item(written)) if is_negative else Item(written)

    def property_key(self, key: str) -> str:
        return key

    def character_set(self) -> CharacterSet:
        """The set in the brackets here."""
        start = self.at
        self.at += 1
        self.set_depth += 1
        if self.set_depth > _MAX_DEPTH:
            self.refuse(f"brackets nested more than {_MAX_DEPTH} deep", start)
        is_negative = self.peek() == "^"
        if is_negative:
            self.at += 1
        made: CharacterSet | None = None
        operator = ""
        while True:
            members = self.members(start)
            made = Operation(operator, made, members) if made is not None else members  # type: ignore[arg-type]
            sign = self.text[self.at : self.at + 2]
            if sign in self.set_operators:
                self.check_set_part(None)
                self.operators.append(sign)
                if (
                    len(self.operators) > _MAX_OPERATIONS
                    or self.operators.count("~~") > _MAX_SYMMETRIC_DIFFERENCES
                ):
                    self.refuse("too many set operations", self.at)
                operator = sign
                self.at += 2
                continue
            self.at += 1  # the bracket that ends the set
            self.set_depth -= 1
            if is_negative:
                self.check_negative(made, start)
            return Complement(made) if is_negative else made

    def members(self, start: int) -> CharacterSet:
        """The members up to an operator or the end of the set, which is not read."""
        sets: list[CharacterSet] = []
        is_first = True
        while True:
            character = self.peek()
            if not character:
                self.refuse("brackets without an end", start)
            if self.text[self.at : self.at + 2] in self.set_operators:
                break
            if character == "]":
                if not is_first:
                    break
                self.refuse("a `]` as the first member of brackets", self.at, "write `\\]`")
            if character == "[":
                sets.append(self.inner_set())
            else:
                sets.append(self.single_or_range(is_first=is_first))
            self.check_set_part(sets[-1])
            is_first = False
        if is_first:
            self.refuse("a set operation without a side", self.at)
        return union(sets)

    def check_set_part(self, part: CharacterSet | None) -> None:
        """Refuse a member of brackets, or an operator (None), whose folding is not certain."""

    def check_negative(self, inner: CharacterSet, start: int) -> None:
        """Refuse negative brackets whose meaning is not certain."""

    def inner_set(self) -> CharacterSet:
        start = self.at
        if self.text.startswith("[:", start):
            end = self.text.find(":]", start)
            name = self.text[start + 2 : max(end, start + 2)]
            is_negative = name.startswith("^")
            found = self.posix.get(name.removeprefix("^"))
            if found is None:
                self.refuse("brackets that begin with `[:`", start, "write `[\\:`")
            self.check_folding_of(found, name, start)
            self.at = end + 2
            return Complement(found) if is_negative else found
        if "i" in self.on and self.text.startswith("[^", start):
            self.refuse("nested negative brackets under `(?i)`", start)
        return self.character_set()

    def single_or_range(self, *, is_first: bool) -> CharacterSet:
        start = self.at
        first = self.member(is_first=is_first)
        following = self.text[self.at : self.at + 2]
        if following[:1] != "-" or following == "-]":
            return first if not isinstance(first, str) else self.one(first, start)
        if following in self.set_operators:
            return first if not isinstance(first, str) else self.one(first, start)
        self.at += 1
        is_operator = self.text[self.at : self.at + 2] in self.set_operators
        if not isinstance(first, str) or is_operator or self.peek() in ("[", "-", ""):
            self.refuse("a `-` in brackets that makes no range", self.at - 1, "write `\\-`")
        last = self.member(is_first=False)
        if not isinstance(last, str) or last < first:
            self.refuse("a range that does not rise", start)
        if "i" in self.on:
            return self.folded_range(first, last, start)
        return range_item(first, last)

    def member(self, *, is_first: bool) -> str | CharacterSet:
        start, character = self.at, self.peek()
        if character == "\\":
            if self.text[start + 1 : start + 2] == "b":
                self.at += 2
                return "\b"
            return self.escaped_characters(start)
        if character == "-" and not is_first and self.text[start + 1 : start + 2] != "]":
            self.refuse("a `-` in brackets that makes no range", start, "write `\\-`")
        if character == "-" and is_first and self.text[start + 1 : start + 2] == "-":
            self.refuse("`--` in brackets", start, "write `\\-`")
        self.at += 1
        return character

    def one(self, character: str, start: int) -> CharacterSet:
        if "i" not in self.on:
            return Item(literal_text(character))
        return Item("".join(map(literal_text, self.folded(character, start))))

    def folded_range(self, first: str, last: str, start: int) -> CharacterSet:
        if not last.isascii():
            self.refuse("a range outside ASCII under `(?i)`", start)
        characters = map(chr, range(ord(first), ord(last) + 1))
        folded = dict.fromkeys("".join(self.folded(one, start) for one in characters))
        return Item("".join(map(literal_text, folded)))


class _FancyRegexParser(_Parser):
    """The dialect of tiktoken's patterns."""

    dialect = "fancy-regex"
    word = WORD_FANCY
    posix = POSIX_FANCY
    flags = "ims"
    dot_flag = "s"
    last_newlines = r"(?=\n*\Z)"
    name_openings = ("P<", "<", "'")
    set_operators: tuple[str, ...] = ("&&", "--", "~~")
    repeats_quantifiers = False

    def caret(self) -> str:
        return _LINE_START if "m" in self.on else r"\A"

    def dollar(self) -> str:
        return LINE_END if "m" in self.on else r"\Z"

    def hexadecimal(self, letter: str, start: int) -> str:
        if self.peek() == "{":
            return self.braced_digits(start)
        return self.fixed_digits({"x": 2, "u": 4, "U": 8}[letter], start)

    def escaped_sign(self, letter: str, start: int) -> str:
        if letter in "<>":
            self.refuse(f"the word boundary `\\{letter}`", start)
        return letter

    def property_key(self, key: str) -> str:
        """Rust also takes `script=han`, `sc=han`, `gc=lu`, and `is` before a name."""
        kind, equals, value = key.partition("=")
        if not equals:
            return key if key in PROPERTIES else key.removeprefix("is")
        if kind in ("sc", "script") and value in SCRIPTS:
            return value
        return value if kind in ("gc", "generalcategory") and value in CATEGORIES else ""


def _is_run_of_any(node: Node) -> bool:
    while isinstance(node, Atomic):
        node = node.body
    if not isinstance(node, Repeat) or node.most is not None:
        return False
    return isinstance(node.body, Characters) and node.body.set in (_ANY, _EXCEPT_NEWLINE)


class _OnigurumaParser(_Parser):
    """The dialect of `Split` in a `tokenizer.json`."""

    dialect = "oniguruma"
    word = WORD_ONIGURUMA
    posix = POSIX_ONIGURUMA
    flags = "im"
    dot_flag = "m"
    last_newlines = r"(?=\n?\Z)"
    name_openings = ("<", "'")
    set_operators = ("&&",)
    repeats_quantifiers = True

    def caret(self) -> str:
        # Not after the last newline of the text.
        return _LINE_START_ONIGURUMA

    def dollar(self) -> str:
        return LINE_END

    def hexadecimal(self, letter: str, start: int) -> str:
        if letter == "U":
            self.refuse("the escape `\\U`", start, "write `\\x{...}`")
        if letter == "x" and self.peek() == "{":
            return self.braced_digits(start)
        character = self.fixed_digits(2 if letter == "x" else 4, start)
        if letter == "x" and not character.isascii():
            self.refuse("a single byte outside ASCII", start, "write `\\x{...}`")
        return character

    def shorthand(self, letter: str) -> CharacterSet:
        if letter == "w" and self.set_depth:
            return POSIX_ONIGURUMA["word"]
        return super().shorthand(letter)

    def property(self, start: int, *, is_negative: bool) -> CharacterSet:
        if self.peek() != "{":
            self.refuse("a property without braces", start, "write `\\p{L}`")
        return super().property(start, is_negative=is_negative)

    def check_sequence(self, parts: list[Node], start: int) -> None:
        for one, other in pairwise(parts):
            if isinstance(one, Characters) and isinstance(other, Characters):
                self.check_ligature(one.folded or "", other.folded or "", start)
        # A search for `.+` starts at the beginnings of lines alone, also after `\B`.
        is_behind_assertion = False
        for part in parts:
            if isinstance(part, Look | Assertion):
                is_behind_assertion |= part not in _STARTS
                continue
            if is_behind_assertion and _is_run_of_any(part):
                self.refuse("a run of `.` after an assertion", start, "write `[^\\n]`")
            is_behind_assertion = False

    def check_ligature(self, one: str, other: str, start: int) -> None:
        """Under `(?i)`, Oniguruma reads `ss` as `ß` too, and likewise other ligatures."""
        if not (one and other):
            return
        both = one + other
        if both in _LIGATURES or (not both.isascii() and (one.isalpha() or other.isalpha())):
            self.refuse("letters under `(?i)` that also match a ligature", start)

    def check_negative(self, inner: CharacterSet, start: int) -> None:
        r"""Oniguruma 6.9 loses characters beyond ASCII from `[^[^\H\D]]`."""
        if self.set_depth and not isinstance(inner, Item):
            self.refuse("nested negative brackets that hold more than plain members", start)

    def check_set_part(self, part: CharacterSet | None) -> None:
        """Folding comes after the operations here, and adds `ss` to a set that holds `ß`."""
        if "i" in self.on and (part is None or isinstance(part, Complement)):
            self.refuse("set operations under `(?i)`", self.at)

    def check_repeated(self, node: Node, least: int, most: int | None, start: int) -> None:
        if isinstance(node, Characters) and node.folded in ("s", "f") and least > 1:
            self.refuse("letters under `(?i)` that also match a ligature", start)


class _PythonParser(_FancyRegexParser):
    """The part of version 0 of `regex` that reads like fancy-regex."""

    dialect = "python"
    flags = "is"
    last_newlines = r"\Z"
    set_operators = ()

    def folded(self, character: str, start: int) -> str:
        if character in "iI":
            self.refuse("`i` under `(?i)`, which also matches the Turkish letters", start)
        return super().folded(character, start)

    def caret(self) -> str:
        return r"\A"

    def dollar(self) -> str:
        return self.refuse("`$`, which also matches before a last line break", self.at - 1)

    def anchor(self, letter: str) -> str | None:
        if letter == "z":
            self.refuse(r"the assertion `\z`", self.at)
        return super().anchor(letter)

    def inner_set(self) -> CharacterSet:
        return self.refuse("a bracket within brackets", self.at)

    def shorthand(self, letter: str) -> CharacterSet:
        if letter == "h":
            self.refuse(r"the escape `\h`", self.at)
        return super().shorthand(letter)


PARSERS: Final = MappingProxyType(
    {parser.dialect: parser for parser in (_FancyRegexParser, _OnigurumaParser, _PythonParser)}
)
"""Dialect -> its parser, made with an expression."""
