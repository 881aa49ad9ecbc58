"""Automata split as `regex` does, also on both sides of every cut that they allow."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.adversarial import adversarial_texts, every_code_point_in_context
from tests.native_module import native_module
from tests.tokenizer_core.splitting.dialects.foreign_expressions import (
    Grammar,
    random_text,
    split_by_tokenizers,
)
from tokenizer_core.engines.native_stages import compiled_pattern
from tokenizer_core.errors import SplitTooSlowError, UnknownPatternError
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import SPELLINGS
from tokenizer_core.splitting.dialects.automaton import (
    MATCHED,
    NoAutomatonError,
    Step,
    build_automaton,
)
from tokenizer_core.splitting.dialects.parsing import PARSERS
from tokenizer_core.splitting.patterns import (
    DEEPSEEK,
    DIGITS_THEN_GPT2,
    METASPACE,
    PATTERNS,
    PUBLISHED,
    SplitPattern,
    resolve_pattern,
)
from tokenizer_core.splitting.pretokenize import (
    find_last_safe_cut,
    find_safe_cut,
    split,
    split_settled,
)


@pytest.fixture(scope="module")
def native():
    """The compiled module."""
    return native_module()


BEHAVIORS = ["isolated", "removed", "contiguous", "merged-with-previous", "merged-with-next"]


ALL = {
    **PATTERNS,
    **PUBLISHED,
    "metaspace": METASPACE,
    "o200k in Hugging Face": SplitPattern("custom", SPELLINGS["o200k"], "oniguruma"),
    "two steps": replace(DEEPSEEK, before=DEEPSEEK.before[:1]),
    "digits": DIGITS_THEN_GPT2[True],
    "runs of digits": DIGITS_THEN_GPT2[False],
    "deepseek_v3": DEEPSEEK,
    "words alone": SplitPattern("custom", r"\w+", "fancy-regex", "drop"),
    "spaces removed": SplitPattern("custom", r"\s+", "oniguruma", behavior="removed"),
}


def compiled_automaton(pattern):
    """The compiled automaton, also of a pattern that has a scanner."""
    return compiled_pattern(
        replace(pattern, name="custom") if pattern.name in PATTERNS else pattern
    )


def check(pattern, texts, module):
    """Compare with `regex` and on both sides of each cut; returns the number of cuts."""
    compiled = compiled_automaton(pattern)
    n_cuts = 0
    for text in texts:
        expected = split(text, pattern)
        assert module.split(text, compiled) == expected, (pattern, text)
        cuts = pattern.automaton.cuts_in(text).tolist()
        for cut in cuts:
            both = split(text[:cut], pattern) + split(text[cut:], pattern)
            assert both == expected, (pattern, text, cut)
        if not pattern.is_named:
            assert find_safe_cut(text, 1, pattern) == (cuts[0] if cuts else None)
            assert find_last_safe_cut(text, pattern) == (cuts[-1] if cuts else None)
            settled, n_chars = split_settled(text, pattern)
            assert n_chars == (cuts[-1] if cuts else 0)
            assert settled == expected[: len(settled)]
        n_cuts += len(cuts)
    return n_cuts


@pytest.mark.parametrize("name", ALL)
def test_a_published_pattern_splits_alike_and_has_cuts(native, name):
    assert check(ALL[name], adversarial_texts(300, 60), native) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_compiled_automaton_splits_every_code_point_alike(native, name):
    compiled = compiled_automaton(ALL[name])
    for text in every_code_point_in_context():
        assert native.split(text, compiled) == split(text, ALL[name])


@given(random=st.randoms(use_true_random=False))
def test_a_random_pattern_splits_alike_or_has_no_automaton(native, random):
    for _ in range(4):  # most are refused
        steps = []
        for _ in range(random.choice([1, 1, 2, 3])):
            dialect = random.choice(["fancy-regex", "oniguruma", "python"])
            step = SplitPattern("custom", Grammar(random).expression(), dialect)
            if random.random() < 0.3:
                step = replace(step, unmatched="drop")
            else:
                behavior, invert = random.choice(BEHAVIORS), random.random() < 0.5
                step = replace(step, behavior=behavior, invert=invert)
            steps.append(step)
        try:
            pattern = resolve_pattern(replace(steps[-1], before=tuple(steps[:-1])))
        except UnknownPatternError:
            event("refused")
            continue
        if pattern.automaton is None or pattern.is_named:
            event("no automaton")
            continue
        event("compared")
        texts = [random_text(random, n_chars) for n_chars in (3, 8, 30)]
        with contextlib.suppress(SplitTooSlowError):
            check(pattern, texts, native)


def build(expression, dialect="fancy-regex"):
    return build_automaton([Step(PARSERS[dialect](expression).parse(), "isolated", False, False)])


@pytest.mark.parametrize(
    ("expression", "dialect", "why"),
    [
        (r"(?<=a)b", "fancy-regex", "lookbehind"),
        (r"\bx+", "fancy-regex", "lookbehind"),
        (r"^x", "fancy-regex", "lookbehind"),
        (r"a(?=bc)", "fancy-regex", "several characters"),
        (r"(?>a|ab)c", "fancy-regex", "atomic"),
        (r"(?:a|b)++c", "fancy-regex", "atomic"),
        ("(?:" + "|".join(f"a{{{n}}}b" for n in range(1, 90)) + ")c", "fancy-regex", "too many"),
        (r"a*", "oniguruma", "match nothing"),
    ],
)
def test_expressions_without_an_automaton(expression, dialect, why):
    with pytest.raises(NoAutomatonError, match=why):
        build(expression, dialect)
    assert resolve_pattern(SplitPattern("custom", expression, dialect)).automaton is None


@pytest.mark.parametrize("expression", [r"x$", r"[a[b]]", r"(?i)[h-j]", r"\hx", r"a\z", r"^x"])
def test_python_reads_these_otherwise_so_they_have_no_automaton(expression):
    assert SplitPattern("custom", expression).automaton is None


def test_the_first_way_wins_not_the_longest(native):
    for expression, text, pieces in (
        ("a|ab|b", "abab", ["a", "b", "a", "b"]),
        ("ab|a|b", "aba", ["ab", "a"]),
        ("a+?b?|c", "aab", ["a", "ab"]),
        ("a++b|a", "aaab", ["aaab"]),
        ("a++ab|a", "aab", ["a", "a", "b"]),
        ("a?+ab|a", "ab", ["a", "b"]),
        ("a{1,2}+ab|a", "aab", ["a", "a", "b"]),
        ("a{2}+a|a", "aaaa", ["aaa", "a"]),
        ("[abc--b]+|b", "acb", ["ac", "b"]),
        ("[ab~~bc]+|b", "acb", ["ac", "b"]),
        (r"(?m:a$)|b|\n", "a\nab", ["a", "\n", "a", "b"]),
    ):
        compiled = compiled_pattern(SplitPattern("custom", expression, "fancy-regex"))
        assert native.split(text, compiled) == pieces, expression


def test_a_cut_needs_a_certain_match():
    # After `a`, a `b` may still belong to it, and without `c` it does not.
    cuts = build("abc|a|x").cuts_in
    assert cuts("axab").tolist() == [1, 2]
    # At the end of a text, `xa` would be no match.
    assert build("xa(?=b)|x|a|b").cuts_in("xab").tolist() == []
    # `q` is in no match, so the text between matches would be cut in two.
    assert cuts("qq").tolist() == []
    dropping = SplitPattern("custom", "abc|a|x", "fancy-regex", "drop").automaton
    assert dropping.cuts_in("qqa").tolist() == [1, 2]


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_joining_behaviors_split_as_in_tokenizers_and_have_no_cuts(behavior):
    texts = ["baab aa", "aab", "b", "aa"]
    pattern = SplitPattern("custom", "a", "oniguruma", behavior=behavior)
    expected = split_by_tokenizers("a", texts, behavior.replace("-", "_"))
    assert [split(text, pattern) for text in texts] == expected
    has_cuts = behavior in BEHAVIORS[:2]
    assert (pattern.automaton.cuts.any(), pattern.has_cuts) == (has_cuts, has_cuts)


def test_a_pattern_that_reads_a_text_again_and_again_is_too_slow(native):
    compiled = compiled_pattern(SplitPattern("custom", "a+b|a", "fancy-regex"))
    assert native.split("a" * 1000, compiled) == ["a"] * 1000
    with pytest.raises(SplitTooSlowError, match="break the text"):
        native.split("a" * 1_000_000, compiled)


STATES = [0, 0, 0, 0]
MALFORMED = [
    ([1], [0], [(STATES, "isolated", False, False)], [True]),
    ([0, 0], [0, 0], [(STATES, "isolated", False, False)], [True]),
    ([0], [0, 1], [(STATES, "isolated", False, False)], [True]),
    ([0, 0x110000], [0, 0], [(STATES, "isolated", False, False)], [True]),
    ([0], [0], [], [True]),
    ([0], [0], [(STATES, "isolated", False, False)], []),
    ([0], [0], [([0, 0, 0], "isolated", False, False)], [True]),
    ([0], [0], [([0, 0, 2, 0], "isolated", False, False)], [True]),
    ([0], [0], [([0, 0, 0, 1], "isolated", False, False)], [True]),
    ([0], [0], [([0, 0, MATCHED, 0], "isolated", False, False)], [True]),
    ([0], [0], [(STATES, "scattered", False, False)], [True]),
]


def test_tables_that_do_not_fit_are_refused(native):
    for tables in MALFORMED:
        with pytest.raises(ValueError, match=r"malformed|no behavior"):
            native.NativeAutomaton(*tables)


def test_classes_are_few_and_cover_all_code_points():
    automaton = PATTERNS["o200k"].automaton
    assert automaton.cuts.shape[0] < 40
    assert automaton.class_table.shape == (0x110000,)
    assert np.unique(automaton.class_table).tolist() == list(range(automaton.cuts.shape[0]))
