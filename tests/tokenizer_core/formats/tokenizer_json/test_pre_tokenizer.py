"""Sequences of pre-tokenizers in a `tokenizer.json`, held against `tokenizers`."""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from tests.adversarial import class_borders_in_context, in_context
from tests.tokenizer_core.every_way import check_cuts
from tests.tokenizer_core.formats.small_specs import (
    bpe_file,
    check_against_tokenizers,
    check_refusal,
    check_round_trips,
    pair_of,
)
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.gpt2_files import byte_to_unicode, parse_token
from tokenizer_core.formats.tokenizer_json.pre_tokenizer import render_pattern
from tokenizer_core.spec import Alphabet
from tokenizer_core.splitting.patterns import SplitPattern

MERGES = [
    ("a", "b"), ("Ġ", "a"), ("Ġa", "b"), ("1", "2"), ("12", "3"), ("Ġ", "Ġ"), ("x", "a"),
    ("'", "s"), ("Ċ", "Ċ"), ("b", "1"), ("ä", "¸"), (".", "."), ("a", "."), (".", "a"),
]  # fmt: skip
TEXTS = [left + right for left, right in MERGES]
VOCAB = {text: id_ for id_, text in enumerate([*byte_to_unicode().values(), *TEXTS])}
EXPRESSIONS = [
    r"\p{N}{1,3}", r"\p{N}", "[A-Za-z]+", r"\s+(?!\S)|\s+", r" ?\p{L}+", r"[^\s\p{L}]+", "(?<=a)b",
    "[一-龥]+", "a|ab", r"\n+", "(?i:'s|'t)|x", r"\s*[\r\n]+|\s+", r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*", "x*", "(?=a)", r"(?=(\d{3})+(?!\d))", r"[\p{L}&&[^\p{Han}]]+|[\p{Han}]|\s$",
    r"[^\S\n]+",
    # tiktoken's spelling of cl100k, in which `{1,3}+` repeats a repetition here.
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
]  # fmt: skip
STRINGS = [" ", "ab", "a", "  ", ".", "[", "\n", "文", "a b", "-", "'s", "1", "\\", "#"]
BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]

patterns = st.one_of(
    st.fixed_dictionaries({"Regex": st.sampled_from(EXPRESSIONS)}),
    st.fixed_dictionaries({"String": st.sampled_from(STRINGS)}),
)
steps = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("Split"),
            "pattern": patterns,
            "behavior": st.sampled_from(BEHAVIORS),
            "invert": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"type": st.just("Digits"), "individual_digits": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("Punctuation"), "behavior": st.sampled_from(BEHAVIORS)}),
    st.sampled_from([{"type": "Whitespace"}, {"type": "WhitespaceSplit"}]),
)
texts = st.lists(
    st.sampled_from([*"ab1 x.[-#\n\r中文é\u0301!🙂\u3000\x85٣½\\", "ab", "23", "'s", "  "])
)


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
BYTE_LEVEL_ALONE = BYTE_LEVEL | {"use_regex": False}


def table_of(listed, *, use_regex=False):
    pretokenizers = [*listed, {**BYTE_LEVEL, "use_regex": use_regex}]
    sequence = {"type": "Sequence", "pretokenizers": pretokenizers}
    return bpe_file(VOCAB, MERGES, {}, pre_tokenizer=sequence)


@given(
    listed=st.lists(steps, min_size=1, max_size=4),
    use_regex=st.booleans(),
    samples=st.lists(texts.map("".join), min_size=1, max_size=8),
)
def test_any_sequence_gives_the_ids_of_tokenizers(listed, use_regex, samples):
    theirs, ours = pair_of(table_of(listed, use_regex=use_regex))
    spec = ours[0].spec
    again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    for text in samples:
        check_against_tokenizers(theirs, ours, text, has_offsets=False)
        assert again.encode(text).ids == theirs.encode(text).ids
        ids, offsets = ours[0].encode_with_offsets(text)
        assert [text.encode()[a:b] for a, b in offsets.tolist()] == [spec.vocab[i] for i in ids]


def isolated(expression):
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


DIGITS_EACH = {"type": "Digits", "individual_digits": True}
ONE_STEP = [{"type": "Punctuation"}, {"type": "Whitespace"}, DIGITS_EACH]


SPLITS_OF_DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def test_class_borders_are_those_of_tokenizers():
    two = [{"type": "Punctuation", "behavior": "Contiguous"}, DIGITS_EACH]
    punctuation = [*range(0x600), *range(0x2000, 0x2070), *range(0x3000, 0x3040)]
    samples = [*class_borders_in_context(), in_context(punctuation)]
    deepseek = [isolated(expression) for expression in SPLITS_OF_DEEPSEEK]
    for listed in [two, *([step] for step in ONE_STEP), deepseek]:
        theirs, (ours, *_) = pair_of(table_of(listed, use_regex=listed is two))
        check_round_trips(ours.spec)
        for text in samples:
            assert ours.encode(text) == theirs.encode(text).ids, repr(text[:40])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"behavior": "Other"}, "behavior is 'Other', none of Isolated"),
        ({"behavior": ["Isolated"]}, r"behavior is \['Isolated'\], none of Isolated"),
        ({"invert": 1}, "invert is 1, not true or false"),
        ({"pattern": {"String": ""}}, "pattern.String is empty"),
        ({"pattern": {"String": 5}}, "pattern.String is no text"),
        ({"pattern": {"Regex": "a", "String": "b"}}, "a Regex or a String"),
        ({"type": "Metaspace"}, "is 'Metaspace'"),
    ],
)
def test_a_malformed_step_is_refused_by_name(step, message):
    listed = [isolated("a") | step, isolated("a")]
    check_refusal(table_of(listed), message)


FALCON_DIGITS = {"type": "Digits", "individual_digits": False}
THREE_DIGITS = isolated("[0-9][0-9][0-9]")
FALCON_TEXTS = [
    "in 2023: 12345678, \u00f2\u00bd5\u00b23 x123\u066333 \u4e72\u4e7312 $$$!! 1234\u00b2",
    "\u00f2\u00f2123 \u00e4\u00b2\u00b3\u00b9 \u00bc12\u00be3456 don't   \n\n12.34",
    "".join(map(chr, range(0x600))),
    "".join(f"{chr(0x4E00 + 7 * i)}{i}" for i in range(500)),
]


def falcon(after, *, use_regex=True, **model):
    """A file in the shape of Falcon's, whose merges `tokenizers` learns with its pre-tokenizer."""
    table = table_of([{"type": "Punctuation", "behavior": "Contiguous"}], use_regex=use_regex)
    table["model"] |= {"vocab": {}, "merges": []}
    table["pre_tokenizer"]["pretokenizers"] += after
    learning = tokenizers.Tokenizer.from_str(json.dumps(table))
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, show_progress=False
    )
    learning.train_from_iterator(FALCON_TEXTS * 3, trainer)
    learned = json.loads(learning.to_str())
    learned["model"] |= model
    return learned


@pytest.mark.parametrize(
    ("after", "use_regex"),
    [
        ([FALCON_DIGITS, THREE_DIGITS], True),
        ([THREE_DIGITS, FALCON_DIGITS], False),
        ([THREE_DIGITS], True),
        ([DIGITS_EACH], False),
    ],
    ids=str,
)
def test_falcon_has_the_ids_of_tokenizers(after, use_regex):
    theirs, both = pair_of(falcon(after, use_regex=use_regex))
    again = tokenizers.Tokenizer.from_str(check_round_trips(both[0].spec).decode())
    borders = class_borders_in_context() if after[1:] == [THREE_DIGITS] else []
    for text in [*FALCON_TEXTS, *borders]:
        ids = theirs.encode(text).ids
        assert ids == again.encode(text).ids == both[0].encode(text), text[:40]
    for ours in both:
        for text in FALCON_TEXTS:
            assert ours.encode(text) == theirs.encode(text).ids
        check_cuts(ours, FALCON_TEXTS[0], theirs.encode(FALCON_TEXTS[0]).ids)


@pytest.mark.parametrize(
    ("merge", "individually"),
    [("\u00c3 \u00b2", False), ("\u00b2 \u00c3", False), ("1 a", False), ("1 2", True)],
)
def test_merges_that_join_across_a_cut_are_refused(merge, individually):
    table = falcon([{"type": "Digits", "individual_digits": individually}])
    model = table["model"]
    model["merges"] = [*map(" ".join, model["merges"]), merge]
    model["vocab"].setdefault(merge.replace(" ", ""), 900)
    left, right = map(parse_token, merge.split(" "))
    words = f"the merge of {left!r} and {right!r} joins across such a place"
    check_refusal(table, re.escape(words))


@pytest.mark.parametrize(
    ("after", "model", "words"),
    [
        ([DIGITS_EACH, THREE_DIGITS], {}, "step after a ByteLevel"),
        ([THREE_DIGITS | {"behavior": "Removed"}], {}, "step after a ByteLevel"),
        ([{"type": "Punctuation"}], {}, r"\[2\] is a step after a ByteLevel"),
        ([BYTE_LEVEL_ALONE], {}, "step after a ByteLevel"),
        ([FALCON_DIGITS], {"ignore_merges": True}, "Digits after a ByteLevel"),
        ([FALCON_DIGITS], {"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
    ],
)
def test_where_the_proof_for_falcon_does_not_hold_is_refused(after, model, words):
    check_refusal(falcon(after, **model), words)


def test_digits_after_bytes_alone_are_refused():
    bare = {"type": "Sequence", "pretokenizers": [BYTE_LEVEL_ALONE, FALCON_DIGITS]}
    table = {**falcon([FALCON_DIGITS]), "pre_tokenizer": bare}
    check_refusal(table, "between the bytes of characters alone")


# What Falcon's file lacks, and U+B2000 to U+B3FFF begin with, whose second byte is a digit.
FALCON_LACKS = (0x03, 0x04, 0x1C, 0xF2)


@cache
def falcon_without_bytes():
    """The file in the shape of Falcon's, without bytes, and with merges of digits that only meet
    where such a byte is left out."""
    table = falcon([FALCON_DIGITS, THREE_DIGITS])
    model = table["model"]
    joining = [["\u00b9", "\u00b3"], ["\u00bc", "\u00b2"], ["\u00be", "\u00b9"], ["1", "2"]]
    lacking = {byte_to_unicode()[byte] for byte in FALCON_LACKS}
    merges = dict.fromkeys(map(tuple, [*model["merges"], *joining]))
    model["merges"] = [list(pair) for pair in merges if lacking.isdisjoint("".join(pair))]
    names = dict.fromkeys([*model["vocab"], *map("".join, joining)])
    kept = [name for name in names if lacking.isdisjoint(name)]
    model["vocab"] = {name: id_ for id_, name in enumerate(kept)}
    return table, *pair_of(table)


FALCON_ALPHABET = (
    "\u2039\U00080039\U000b3000\U000b2c80\U00080cb2\U000bdfff\x03\x1c12a \u00bd!\u6f7d"
)


@given(text=st.text(alphabet=FALCON_ALPHABET, max_size=12))
@example(text="\U00080039\U000b3000")
@example(text="1\x032")
def test_digits_do_not_meet_where_falcon_lacks_a_byte(text):
    _, theirs, ours = falcon_without_bytes()
    ids = theirs.encode(text).ids
    assert [tokenizer.encode(text) for tokenizer in ours] == [ids] * len(ours)


def test_the_rule_for_falcon_s_missing_bytes_is_needed_and_kept():
    table, theirs, (ours, *_) = falcon_without_bytes()
    spec = ours.spec
    missing = spec.alphabet.missing
    assert missing
    assert missing.ends == (*range(0x30, 0x3A), 0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE)
    again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    without = replace(spec, alphabet=Alphabet(missing=replace(missing, ends=())))
    text = "\U00080039\U000b3000 1\x032"
    assert Tokenizer.from_spec(without).encode(text) != ours.encode(text)
    assert again.encode(text).ids == theirs.encode(text).ids
    for ends in ((3,), (50, 49), (256,)):
        with pytest.raises(InvalidSpecError, match="the ends must be bytes"):
            replace(spec, alphabet=Alphabet(missing=replace(missing, ends=ends))).check()
    names = [name for name in table["model"]["vocab"] if "9" not in name]
    vocab = {name: id_ for id_, name in enumerate(names)}
    merges = [merge for merge in table["model"]["merges"] if "9" not in "".join(merge)]
    table |= {"model": table["model"] | {"vocab": vocab, "merges": merges}}
    check_refusal(table, "only with all digits in")


@pytest.mark.parametrize(
    ("dialect", "unmatched", "expression", "is_written"),
    [
        ("python", "keep", r"\p{L}+|\d|[^\p{L}\d]+", True),
        ("fancy-regex", "drop", r"[\p{L}&&[^\p{Han}]]+|\h\s*", True),
        ("python", "keep", r"\w+|\W", False),  # other letters
        ("fancy-regex", "drop", r"\p{N}{1,3}+|\D", False),  # Oniguruma repeats twice
        ("python", "keep", r"a{,3}|[^a]+", False),  # may match nothing
    ],
)
def test_an_expression_is_written_if_oniguruma_reads_it_alike(
    dialect, unmatched, expression, is_written
):
    pattern = SplitPattern("custom", expression, dialect, unmatched)
    if not is_written:
        with pytest.raises(FormatError, match="might split otherwise"):
            render_pattern(pattern)
        return
    split, _ = render_pattern(pattern)["pretokenizers"]
    behavior, written = split["behavior"].lower(), tokenizers.Regex(split["pattern"]["Regex"])
    theirs = tokenizers.pre_tokenizers.Split(written, behavior, split["invert"])
    for text in class_borders_in_context():
        pieces = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert pattern.compile().findall(text) == pieces
