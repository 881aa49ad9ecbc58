"""Each construct of the foreign dialects splits as in its library, or is refused by name."""

import contextlib
import time
from itertools import product

import pytest

from tests.tokenizer_core.splitting.dialects.foreign_expressions import (
    split_by_tiktoken,
    split_by_tokenizers,
)
from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting.dialects import translate
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.splitting.pretokenize import split

TEXTS = [
    "",
    "abcxyz dw-z&&az~~^]",
    "it's IT'S it'\u017f \u212aelvin sS\u017fs kK\u212a",
    "a\nb\n\nc\r\n\n",
    "\na \n",
    "fFaA09 \u0660\u0661 \u00b2\u00bd\u216b\u24d0",
    "Hello, \u6f22\u5b57\u304b\u306a\u30ab\u30ca \u0416\u0436 \u00c9\u00e9 e\u0301!",
    "\t\x0b\x0c\x85\u00a0\u2028\u3000 x\u200dy\u200cz",
    "aaaaaaaa 12345678 {2} a{3}",
    "\U0001f600\U00020000\U0001d7ce\ufb01\u00df ss st ff",
]

BOTH = [
    r"a|b|c",
    r"(ab|a)c?|(?:x)(?<name>y)",
    r"[a-cx]+|[^a-z\n]",
    r"[\p{L}&&[^\p{Han}]]+|\p{Han}",
    r"[a-z&&[^aeiou]&&[^x-z]]",
    r"[^a[x-z]]+",
    r"[x[a-c&&[^b]]]+|.",
    r"[a[^a-z\n]]+",
    r"[-a]+|[a\-z]+|[a-]",
    r"[\b\n]|[\x{61}-\x{63}\u0064]",
    r"\h+|\H",
    r"[\h]+[^\h]",
    r"\w+|\W",
    r"[[:alpha:]]+|[[:^alpha:]]",
    r"[[:punct:][:digit:]]+",
    r"[[:space:]]|[[:blank:]]+|[[:cntrl:]]|[[:graph:]]|[[:print:]]",
    r"\b.|.\B",
    r"^.|.$",
    r"(?m:.+)|.",
    r"\Aa|c\z|.",
    r"a\Z|\n\Z|\s\Z|.",
    r"(?i:'s|'d|k)|.",
    r"(?i)[a-k]+|[^s]",
    r"a+?|x*?y|a??b",
    r"a++|(?>a|ab)c|.",
    r"a{2}|a{,3}b|a{1,2}?|1{3,}",
    r"a(?=b)|b(?!c)|(?<=a)b|(?<!a)c",
    r"\p{Lu}|\p{^Lu}|\P{L}",
    r"\x41|\x{1F600}|\u6f22",
    r"a(?#a comment)+|b",
    r"[\d\D]|a",
]
FANCY = [
    r"[a-z--[aeiou]]+",
    r"[^a-c--[b]]+|a",
    r"[\w--\d--_]+",
    r"[a-z&&b-y--c~~d]",
    r"a{1,3}+a|a{2}+",
    r"(?m:^.|.$)|(?s:.)",
    r"\pL+|\PL|\pN",
    r"\p{script=Han}|\p{sc=Latin}+|\p{gc=Nd}|\p{IsGreek}|\p{isl}",
    r"\x61|\u{62}|\U00000063|\xe9",
    r"(?P<n>a)|(?'m'b)",
]
ONIGURUMA = [
    r"a{1,3}+|.",
    r"a{3}?|.",
    r"(?m:.)|x",
    r"(?=(\d{3})+(?!\d))",
    r"\b",
    r"x*",
    r"(?=a)|a|\n*",
    r"^|$",
    r"\n(?!^)|.",  # `^` is not at the end of the text, also after a newline
]


def ours(expression, dialect):
    unmatched = "drop" if dialect == "fancy-regex" else "keep"
    pattern = resolve_pattern(SplitPattern("custom", expression, dialect, unmatched))
    return [split(text, pattern) for text in TEXTS]


@pytest.mark.parametrize("expression", BOTH + FANCY + ONIGURUMA)
def test_an_expression_splits_as_in_the_library_of_its_dialect(expression):
    if expression not in ONIGURUMA:
        assert ours(expression, "fancy-regex") == split_by_tiktoken(expression, TEXTS)
    if expression not in FANCY:
        assert ours(expression, "oniguruma") == split_by_tokenizers(expression, TEXTS)


REFUSED = [
    (r"ab(c)\1", "both", r"the escape `\\1` at offset 5"),
    (r"(?(1)a|b)", "both", r"the group `\(\?\(1`"),
    (r"(*FAIL)", "both", "a verb or callout"),
    (r"a(?i)b", "both", "flags in the middle of the expression at offset 1; write `"),
    (r"(?i:é)", "both", "a letter outside ASCII"),
    (r"(?i:\p{L})", "both", "a class of characters under"),
    (r"\p{Greek_Extended}", "both", "the property `Greek_Extended` at offset 0"),
    ("\\p{a\n\u2028b}", "both", r"the property `a.n.u2028b`"),
    (r"[z-a]", "both", "a range that does not rise"),
    (r"[\d-z]", "both", "a `-` in brackets"),
    (r"[a", "both", "brackets without an end"),
    (r"[]a]", "both", "a `]` as the first member"),
    (r"[a&&&&b]", "both", "a set operation without a side"),
    ("[" + "a-z&&" * 60 + "a]", "both", "too many set operations"),
    (r"[a~~b~~c~~d~~e~~f]", "fancy-regex", "too many set operations"),
    (r"[[:foo:]]", "both", r"begin with `\[:`"),
    (r"a{x}", "both", "a `{` that begins no quantifier"),
    (r"{", "both", "an unescaped"),
    (r"*a", "both", "without anything to repeat"),
    (r"a)", "both", "an unopened"),
    (r"(a", "both", "a group without an end"),
    (r"a\\(?#", "both", "a comment without an end"),
    (r"(a*)*b", "both", "may match nothing"),
    (r"(?=a)*b", "both", "covers no text"),
    (r"a{5,2}", "both", "bounds fall"),
    (r"a{2000}", "both", "above 1000"),
    (r"(?:(?:a{1000}b){1000}c){1000}d", "both", "repetitions of more than 50000 characters"),
    (r"(?<=a+)b", "both", "variable length"),
    ("a|" * 11_000 + "b", "both", "more than 20000 characters"),
    ("(" * 60 + "a" + ")" * 60, "both", "nested more than 50"),
    ("[" * 60 + "a" + "]" * 60, "both", "nested more than 50"),
    ("a\ud800", "both", "lone surrogate"),
    ("\\", "both", "the escape"),
    (r"a**", "fancy-regex", "a quantifier after a quantifier"),
    (r"\<a", "fancy-regex", "the word boundary"),
    (r"a*", "fancy-regex", "can match nothing, on which tiktoken stops"),
    (r"(?i:ss)", "oniguruma", "ligature"),
    (r"(?i:s{2})", "oniguruma", "ligature"),
    (r"(?i:[a-é])", "both", "a range outside ASCII"),
    (r"a\b{start}", "both", "a word boundary with a name"),
    (r"(?i:[\S])", "oniguruma", "set operations under"),
    (r"(?i:[a-z&&[^s]])", "oniguruma", "under"),
    (r"[a-z--[aeiou]]", "oniguruma", "a `-` in brackets"),
    (r"\pL", "oniguruma", "without braces"),
    (r"\xe9", "oniguruma", "a single byte outside ASCII"),
    (r"[^[^\H\D]]", "oniguruma", "nested negative brackets"),
    (r"a(?:\B(.+))", "oniguruma", "a run of `.` after an assertion"),
    (r"[ -&&a]", "both", "a `-` in brackets"),
]


@pytest.mark.parametrize(
    ("expression", "dialect", "message"), REFUSED, ids=[one[:20] for one, *_ in REFUSED]
)
def test_what_has_no_certain_equal_is_refused_by_name(expression, dialect, message):
    dialects = ["fancy-regex", "oniguruma"] if dialect == "both" else [dialect]
    for name in dialects:
        with pytest.raises(UnknownPatternError, match=message) as caught:
            translate(expression, name)
        assert f"from {name}: " in str(caught.value)
        assert ";" in str(caught.value)  # a remedy follows


EXPONENTIAL = [
    r"(a|aa)*b",
    r"(?:\w+)+x",
    r"(?:a+)+?b",
    r"(?:a(?:|)b)*c",
    r"(?:[a-z]{1,100})*1",
    r"x(?!(?:\d+\d*)+y)",
    r"(?>(?:a|aa)*b)",
    r"(?:a|aa){3,}b",
    r"(?:(?:ab?)+c?)*d",
]
HARMLESS = [
    r"(?:\w+\s)*x",
    r"(?:\w++\s?)*x",
    r"\p{N}{1,3}|(?:\d{1,3})+",  # nothing follows the loop, so it never goes back
    r"(?:[^\\\"]|\\.)*\"",
    r"\s+(?!\S)|\s*[\r\n]+",
]


def test_only_an_expression_that_takes_exponential_time_is_refused():
    for expression, dialect in product(EXPONENTIAL, ("fancy-regex", "oniguruma")):
        with pytest.raises(UnknownPatternError, match=r"exponential time|may match nothing"):
            translate(expression, dialect)
    for expression in HARMLESS:
        translate(expression, "oniguruma")


@pytest.mark.parametrize(
    "expression",
    [
        "(?:" * 40 + "a" + "{1,8})" * 40,
        "(" + "|".join(f"[{chr(97 + i % 26)}-z]+x{i}" for i in range(900)) + ")*y",
        "(?:" + "a?" * 2000 + "b)*c",
        "[" + "a-z&&" * 3000 + "a]",
        r"\p{L}" * 3000,
    ],
    ids=["nested-counts", "many-ways", "many-options", "many-sets", "many-classes"],
)
def test_the_check_of_a_hostile_expression_takes_little_time(expression):
    started = time.process_time()
    with contextlib.suppress(UnknownPatternError):
        translate(expression, "oniguruma")
    # Two orders of magnitude above what it takes; without limits these take minutes.
    assert time.process_time() - started < 60
