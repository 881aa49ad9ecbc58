"""Split patterns: names, known spellings, and the pinned tables."""

import sys
from types import SimpleNamespace

import pytest
import regex
from tiktoken_ext import openai_public

from tests.adversarial import adversarial_texts, class_borders_in_context
from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.patterns import (
    _PUBLISHED_SPELLINGS,
    ALIASES,
    PATTERNS,
    PUBLISHED,
    SplitPattern,
    resolve_pattern,
)
from tokenizer_core.possessive import compile_possessive
from tokenizer_core.pretokenize import split


def test_names_aliases_and_expressions_lead_to_the_same_pattern():
    for name, pattern in PATTERNS.items():
        assert resolve_pattern(name) is pattern
        assert resolve_pattern(pattern.expression) is pattern
        assert resolve_pattern(pattern) is pattern
    for alias, name in ALIASES.items():
        assert resolve_pattern(alias) is PATTERNS[name]
    assert resolve_pattern(openai_public.r50k_pat_str).name == "gpt2"


@pytest.mark.parametrize("spelling", sorted(_PUBLISHED_SPELLINGS))
def test_a_spelling_in_circulation_splits_as_the_pattern_it_is_taken_for(spelling):
    named = PATTERNS[_PUBLISHED_SPELLINGS[spelling]]
    # `$` in these means the end of the text, as in their own engines.
    as_published = resolve_pattern("(?:" + spelling.replace("$", r"\Z") + ")")
    assert as_published.name == "custom"
    texts = adversarial_texts(n_random=100, seed=21)
    for text in [*texts, *class_borders_in_context()]:
        assert split(text, as_published) == split(text, named), repr(text[:60])


@pytest.mark.parametrize("version", [sys.version_info, (3, 11, 2)])
@pytest.mark.parametrize(
    ("expression", "text", "end"),
    [
        (rb"(?:ab?c|d)++", b"ddab", 2),
        (rb"(?:[\x00-\x7f]++|[\xe1-\xec][\x80-\xbf]{2})++", b"xx\xe6\xbc a", 2),
        (r"(?:[^\\]++|\\(?:n|u[0-9a-f]{4}))*+", "an\\u12", 2),
    ],
)
def test_a_failed_possessive_group_gives_back_its_text(expression, text, end, version, monkeypatch):
    monkeypatch.setattr("tokenizer_core.possessive.sys", SimpleNamespace(version_info=version))
    assert compile_possessive(expression).match(text).end() == end
    assert regex.match(expression, text).end() == end


def test_llama3_and_cl100k_are_not_the_same():
    assert split("a\n ", PATTERNS["cl100k"]) == ["a", "\n "]
    assert split("a\n ", PATTERNS["llama3"]) == ["a", "\n", " "]


@pytest.mark.parametrize("name", ["gpt2", "digits"])
def test_a_name_with_another_expression_is_refused(name):
    # Under a name, the exact streaming rules would apply to it, and text would be lost.
    with pytest.raises(UnknownPatternError, match="expression"):
        resolve_pattern(SplitPattern(name, r"\d+"))
    assert resolve_pattern(SplitPattern("custom", r"\d+")).name == "custom"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (None, "NoneType"),
        (5, "int"),
        (b"gpt2", "bytes"),
        ("(" * 100_000, "does not compile"),
        (r"(?r)\w+", "searches backwards"),
        ("gpt-2", "Known names"),
    ],
)
def test_a_wrong_pattern_is_refused(wrong, reason):
    with pytest.raises(UnknownPatternError, match=reason):
        resolve_pattern(wrong)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_name_of_a_published_expression_stands_for_it(name):
    pattern = resolve_pattern(name)
    assert pattern == resolve_pattern(PUBLISHED[name])
    assert (pattern.name, pattern.is_named, pattern.has_cuts) == ("custom", False, True)
