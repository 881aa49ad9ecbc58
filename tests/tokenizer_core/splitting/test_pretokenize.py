"""Splitting whole, in windows, settled and at safe cuts: always the same pre-tokens. Patterns:
names, known spellings."""

import itertools
import sys
from types import SimpleNamespace

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from tests.adversarial import _FRAGMENTS, adversarial_texts, class_borders_in_context
from tokenizer_core.errors import SplitTooSlowError, UnknownPatternError
from tokenizer_core.splitting import pretokenize
from tokenizer_core.splitting.patterns import (
    ALIASES,
    PATTERNS,
    PUBLISHED_SPELLINGS,
    SplitPattern,
    resolve_pattern,
)
from tokenizer_core.splitting.possessive import compile_possessive
from tokenizer_core.splitting.pretokenize import (
    find_last_safe_cut,
    find_safe_cut,
    split,
    split_in_windows,
    split_settled,
)

NAMED = list(PATTERNS.values())
TEXTS = adversarial_texts(n_random=100, seed=7)
mixed_text = st.lists(st.sampled_from(_FRAGMENTS), max_size=25).map("".join)


@pytest.mark.parametrize("pattern", NAMED, ids=lambda p: p.name)
def test_settled_pre_tokens_stay_for_every_cut(pattern):
    for text in TEXTS:
        whole = split(text, pattern)
        assert "".join(whole) == text
        for cut in range(len(text)):
            pre_tokens, consumed = split_settled(text[:cut], pattern)
            assert pre_tokens == whole[: len(pre_tokens)], (text, cut)
            assert "".join(pre_tokens) == text[:consumed]


@pytest.mark.parametrize("pattern", NAMED, ids=lambda p: p.name)
@pytest.mark.parametrize("window", [1, 7, 64])
def test_windows_give_the_same_pre_tokens(pattern, window):
    long = "x" * 500 + " " + "中文" * 250 + "\n" * 300 + "tail"
    for text in [*TEXTS, long]:
        joined = [p for part in split_in_windows(text, pattern, window) for p in part]
        assert joined == split(text, pattern)


@pytest.mark.parametrize("pattern", NAMED, ids=lambda p: p.name)
def test_ordinary_text_is_settled_and_cut_soon(pattern):
    # Without this a splitter that settles nothing would pass every test above.
    for text in ("plain words only " * 4, "汉字，标点。" * 12, "f(x);\n" * 12, "1234 " * 12):
        _, consumed = split_settled(text, pattern)
        assert consumed > len(text) - 24, (pattern.name, text)
    assert find_safe_cut("some words", 1, pattern) == 4
    assert find_safe_cut("中文\n文字", 1, pattern) == 2
    assert find_safe_cut("nothing_here", 1, pattern) is None


@pytest.mark.parametrize("pattern", NAMED, ids=lambda p: p.name)
@given(before=mixed_text, after=mixed_text, around=mixed_text)
def test_a_safe_cut_changes_nothing_whatever_stands_around(pattern, before, after, around):
    text = before + after
    cut = find_safe_cut(text, len(before), pattern)
    if cut is None:
        return
    assert cut >= len(before)
    for head, tail in ((text, ""), (around + text, ""), (text, around)):
        place = len(head) - len(text) + cut
        before, after = (head + tail)[:place], (head + tail)[place:]
        assert split(head + tail, pattern) == split(before, pattern) + split(after, pattern)


def test_the_last_safe_cut_is_the_last_there_is():
    pattern = PATTERNS["o200k"]
    n_cut = 0
    for text in TEXTS:
        last = None
        cut = find_safe_cut(text, 1, pattern)
        while cut is not None:
            last = cut
            cut = find_safe_cut(text, cut + 1, pattern)
        assert find_last_safe_cut(text, pattern) == last, repr(text)
        n_cut += last is not None
    assert n_cut > 40
    assert find_last_safe_cut("ab " + "x" * 4000, pattern) == 2
    assert find_last_safe_cut("ab " + "x" * 5000, pattern) is None
    assert find_last_safe_cut("ab 12", resolve_pattern(r"(\d)+")) is None


EVERYTHING = "".join(map(chr, range(0x110000)))


def test_no_character_beyond_the_kinds_is_cut_otherwise():
    # Any white space allows a cut after a letter; after other visible characters only a space does.
    spaces = regex.findall(r"\s", EVERYTHING)
    for before, expected in (("a", spaces), (".", [" "])):
        text = "".join(f"{before}{character}." for character in EVERYTHING)
        found, cut = [], find_safe_cut(text, 1, PATTERNS["gpt2"])
        while cut is not None:
            found.append(text[cut])
            cut = find_safe_cut(text, cut + 1, PATTERNS["gpt2"])
        assert found == expected


def test_a_custom_pattern_loses_nothing_and_is_cut_only_with_an_automaton():
    assert split_settled("ab12cd3 ", resolve_pattern(r"(\d)+|.")) == (
        ["a", "b", "12", "c", "d", "3"],
        7,
    )
    pattern = resolve_pattern(r"(?<!x)(\d)+")
    assert split("ab12cd3", pattern) == ["ab", "12", "cd", "3"]
    assert split_settled("ab12cd3 ", pattern) == ([], 0)
    assert find_safe_cut("ab 12", 0, pattern) is None
    assert list(split_in_windows("ab12" * 50, pattern, 8)) == [["ab", "12"] * 50]


CUSTOM = [
    SplitPattern("custom", r"\b|x*|(?<=a)"),  # empty matches, as `re.finditer` gives them
    SplitPattern("custom", r"\w+|\s+(?!\S)", "fancy-regex", "drop"),
    SplitPattern("custom", r"^.|[^\n]+$", "oniguruma", "keep"),
    SplitPattern("custom", r"(?=(\d{3})+(?!\d))|x*", "oniguruma", "keep"),
]


@pytest.mark.parametrize("pattern", CUSTOM, ids=lambda pattern: pattern.expression)
def test_a_search_that_is_stopped_goes_on_where_it_was(pattern, monkeypatch):
    texts = [*TEXTS[:60], "ax 1234567\n\nxxb 12345"]
    found = pattern.compile().finditer
    expected = [split(text, pattern) for text in texts]
    if pattern.dialect == "python":
        for text, pieces in zip(texts, expected, strict=True):
            ends = {match.end() for match in found(text)} | {match.start() for match in found(text)}
            cuts = [0, *sorted(ends - {0, len(text)}), len(text)]
            whole = [text[a:b] for a, b in itertools.pairwise(cuts) if b > a]
            assert pieces == whole
    # Stopped after one match, at a match in the middle of a list, and at the start.
    for n_matches in (1, 2, 7):
        with monkeypatch.context() as patch:
            patch.setattr(pretokenize, "_MATCHES_AT_ONCE", 2)
            patch.setattr(pretokenize, "_SEARCHES_AT_ONCE", 1)
            patch.setattr(pretokenize, "_find_from", stopping_after(n_matches))
            assert [split(text, pattern) for text in texts] == expected


def stopping_after(n_matches):
    search = pretokenize._find_from
    is_late = False

    def find(*arguments):
        nonlocal is_late
        is_late = not is_late
        for number, span in enumerate(search(*arguments)):
            if is_late and number == n_matches:
                raise TimeoutError
            yield span

    return find


def test_a_text_that_takes_too_long_is_an_error_in_bounded_time(monkeypatch):
    # Every start of the run looks at all of it: 10^9 steps. A tenth of a second does 10^7.
    pattern = resolve_pattern(r"(?:a|b)+[cd]", dialect="fancy-regex", unmatched="drop")
    monkeypatch.setattr(pretokenize, "MATCH_SECONDS", 0.1)
    monkeypatch.setattr(pretokenize, "MATCH_SECONDS_PER_CHAR", 0)
    assert split("ab" * 10 + "c", pattern) == ["ab" * 10 + "c"]
    with pytest.raises(SplitTooSlowError, match="try very many"):
        split("a" * 50_000, pattern)


def test_names_aliases_and_expressions_lead_to_the_same_pattern():
    for name, pattern in PATTERNS.items():
        assert resolve_pattern(name) is pattern
        assert resolve_pattern(pattern.expression) is pattern
        assert resolve_pattern(pattern) is pattern
    for alias, name in ALIASES.items():
        assert resolve_pattern(alias) is PATTERNS[name]
    assert resolve_pattern(openai_public.r50k_pat_str).name == "gpt2"


@pytest.mark.parametrize("spelling", sorted(PUBLISHED_SPELLINGS))
def test_a_spelling_in_circulation_splits_as_the_pattern_it_is_taken_for(spelling):
    named = PATTERNS[PUBLISHED_SPELLINGS[spelling]]
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
    monkeypatch.setattr(
        "tokenizer_core.splitting.possessive.sys", SimpleNamespace(version_info=version)
    )
    assert compile_possessive(expression).match(text).end() == end
    assert regex.match(expression, text).end() == end


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
        (b"gpt2", "bytes"),
        ("(" * 100_000, "does not compile"),
        (r"(?r)\w+", "searches backwards"),
        ("gpt-2", "Known names"),
        (SplitPattern("custom", "a b", unmatched="drop", behavior="removed"), "must be 'keep'"),
    ],
)
def test_a_wrong_pattern_is_refused(wrong, reason):
    with pytest.raises(UnknownPatternError, match=reason):
        resolve_pattern(wrong)
