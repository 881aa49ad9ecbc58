"""Trusted segments: a control token counts only where all its characters are trusted. In a
conversation, those that are not special count in the assistant's messages too.

Two definitions to compare with. The first reads a text character by character and writes a private
character for each token that counts; a tokenizer whose tokens are these characters then gives the
ids. The second writes untrusted characters in another alphabet, in which no special token is
spelt, so that the search without trust gives the tokens, flags included.
"""

import itertools
import json
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer_core import Tokenizer
from tokenizer_core.chat.renderer import RenderedChat
from tokenizer_core.chat.traced_text import FIRST_MESSAGE, TRUSTED
from tokenizer_core.engines import JSON
from tokenizer_core.errors import SpecialTokenReachedError
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.normalizers.steps import Steps
from tokenizer_core.spec import AddedToken, Alphabet, TokenizerSpec
from tokenizer_core.spec.alphabet import pattern_of_characters
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.specials.flags import FlaggedTokenMatcher
from tokenizer_core.specials.matcher import SpecialTokenMatcher
from tokenizer_core.specials.policy import Policy
from tokenizer_core.specials.segments import Trust, join_segments

BYTES = {byte: bytes([byte]) for byte in range(256)}
MERGES = [
    (b"a", b"b"), (b"<", b"|"), (b"ab", b"a"), (b"\xc3", b"\xa9"), (b" ", b"a"), (b"|", b">")
]  # fmt: skip
TOKENS = [
    AddedToken("<a>", 1000),
    AddedToken("<a><a>", 1001),
    AddedToken("a>", 1002),
    AddedToken("<", 1003, special=False),
    AddedToken("><a", 1004, special=False),
    AddedToken("bé", 1005),
    AddedToken("b", 1006, special=False),
]
PARTS = ["<a>", "<a>", "<", "a", ">", "b", "é", "e\u0301", "中", " ", "\u2581", "\n"]

texts = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
segments = st.lists(st.tuples(st.text("<a>bé 中\n", max_size=7) | texts, st.booleans()), max_size=9)


def spec_of(tokens, **options):
    products = dict.fromkeys(left + right for left, right in MERGES)
    vocab = BYTES | {300 + i: product for i, product in enumerate(products)}
    return TokenizerSpec.from_merges(vocab, MERGES, tokens, **options)


def spec_of_characters(normalizer):
    """A vocabulary of characters with byte fallback, as SentencePiece's."""
    pieces = [" ", "<", "a", ">", "b", "é", " a", " <"]
    vocab = BYTES | {256 + i: piece.encode() for i, piece in enumerate(pieces)}
    merges = [(b" ", b"a"), (b" ", b"<")]
    options = {"pattern": pattern_of_characters(merges), "alphabet": Alphabet(tuple(range(256)))}
    return TokenizerSpec.from_merges(vocab, merges, TOKENS, normalizer=normalizer, **options)


CONTROL = ("><a",)
"""Of TOKENS, named as control tokens."""
USER, ASSISTANT, TEMPLATE = 0, 1, 2


def trust_of(parts):
    """The joined text, and who wrote each of its characters."""
    return "".join(t for t, _ in parts), [
        TEMPLATE if trusted else USER for t, trusted in parts for _ in t
    ]


def find_slowly(text, writers, tokens, control=CONTROL):
    """The definition: (start, token), the leftmost that counts, then the longest."""

    def least(token):
        return TEMPLATE if token.special else ASSISTANT if token.content in control else USER

    found, position = [], 0
    while position < len(text):
        counting = [
            token
            for token in tokens
            if text.startswith(token.content, position)
            and min(writers[position : position + len(token.content)]) >= least(token)
        ]
        if counting:
            token = max(counting, key=lambda token: len(token.content))
            found.append((position, token))
            position += len(token.content)
        else:
            position += 1
    return found


def written_privately(text, writers, tokens, control=CONTROL):
    """The text with a private character for each token that counts."""
    parts, end = [], 0
    for start, token in find_slowly(text, writers, tokens, control):
        parts += [text[end:start], private(token)]
        end = start + len(token.content)
    return "".join([*parts, text[end:]])


def private(token):
    return chr(0xE000 + token.id)


SPECS = {
    "none": spec_of(TOKENS),
    "nfc": spec_of(TOKENS, normalizer="nfc", pattern="qwen2"),
    "prefix-space": spec_of(TOKENS, normalizer="prefix-space"),
    "steps": spec_of(
        TOKENS,
        normalizer=Steps("steps", (NormalizerStep("NFD"), NormalizerStep("Strip"))),
    ),
    "ranks": TokenizerSpec.from_ranks(
        {token: id_ for id_, token in BYTES.items()} | {b"ab": 300, b"<a": 301},
        {token.content: token.id for token in TOKENS if token.special},
        pattern="cl100k",
    ),
    **{name: spec_of_characters(name) for name in ("metaspace-first", "metaspace-prepend")},
    "any expression": spec_of(TOKENS, pattern=r"a+|\s+|[^a\s]+"),
}
SPECS = {
    name: spec if name == "ranks" else spec.with_chat(ChatTemplates(control_tokens=CONTROL))
    for name, spec in SPECS.items()
}


def privately(spec):
    """The same tokenizer with private characters for its added tokens."""
    names = {token.id: private(token).encode() for token in spec.added_tokens}
    tokens = tuple(replace(token, content=private(token)) for token in spec.added_tokens)
    return replace(spec, vocab={**spec.vocab, **names}, added_tokens=tokens)


_made = {}


def tokenizers_of(spec, engine):
    key = spec.fingerprint, engine
    if key not in _made:
        _made[key] = [Tokenizer.from_spec(s, engine=engine) for s in (spec, privately(spec))]
    return _made[key]


@pytest.mark.parametrize("name", SPECS)
@given(parts=segments)
def test_ids_are_those_of_the_definition(engine, name, parts):
    spec = SPECS[name]
    tokenizer, oracle = tokenizers_of(spec, engine)
    text, writers = trust_of(parts)
    expected = oracle.encode(written_privately(text, writers, spec.added_tokens))
    assert tokenizer.encode_segments(parts) == expected
    array = tokenizer.encode_segments_to_numpy(iter(parts))
    assert array.dtype == np.uint32
    assert array.tolist() == expected
    rendered, n_ids = tokenizer.encode_source(parts, Policy(), JSON)
    assert (json.loads(rendered), n_ids) == (expected, len(expected))
    assert tokenizer.count_segments(parts) == len(expected)
    assert tokenizer.count_segments(parts, limit=len(expected)) == len(expected)
    ids, offsets = tokenizer.encode_segments_with_offsets(parts)
    assert ids == expected
    assert offsets.shape == (len(ids), 2)
    special = {token.id: token.content for token in spec.added_tokens}
    data = text.encode()
    for id_, (start, end) in zip(ids, offsets.tolist(), strict=True):
        assert id_ not in special or data[start:end].decode() == special[id_]


@pytest.mark.parametrize("name", SPECS)
@given(
    parts=st.lists(
        st.tuples(st.text("<a>b\u00e9 ", max_size=7) | texts, st.sampled_from([0, 1, 2])),
        max_size=9,
    )
)
def test_ids_of_conversations_are_those_of_the_definition(engine, name, parts):
    spec = SPECS[name]
    tokenizer, oracle = tokenizers_of(spec, engine)
    text, writers = "".join(t for t, _ in parts), [writer for t, writer in parts for _ in t]
    origins = {USER: FIRST_MESSAGE, ASSISTANT: FIRST_MESSAGE + 1, TEMPLATE: TRUSTED}
    messages = [{"role": "user"}, {"role": "assistant"}]
    rendered = RenderedChat(
        text,
        np.array([len(t) for t, _ in parts], np.int32),
        np.array([origins[writer] for _, writer in parts], np.int32),
        messages=messages,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenizer_core.chat.renderer.render_chat", lambda *_, **__: rendered)
        found = tokenizer.encode_chat(messages, chat_template="{{ 1 }}")
    pairs = zip(text, writers, strict=True)
    by_template = "".join(c if writer == TEMPLATE else "\0" for c, writer in pairs)
    found_there = (t.content for t in spec.added_tokens if t.content in by_template)
    # A single letter is no control token.
    control = [*CONTROL, *(content for content in found_there if content != "b")]
    expected = oracle.encode(written_privately(text, writers, spec.added_tokens, control))
    assert found.ids.tolist() == expected
    assert found.offsets.shape == (len(expected), 2)


# Untrusted characters in another alphabet: words, signs and white space stay what they are.
OTHERS = str.maketrans("ab<> ", "\u0430\u0431\u2039\u203a\u3000")
TRUSTED_ALPHABET = {other: own for own, other in OTHERS.items()}

flags_of_tokens = st.builds(
    dict,
    special=st.booleans(),
    single_word=st.booleans(),
    lstrip=st.booleans(),
    rstrip=st.booleans(),
    normalized=st.booleans(),
)
flagged = st.lists(
    st.tuples(st.text("ab< ", min_size=1, max_size=3).filter(str.strip), flags_of_tokens),
    min_size=1,
    max_size=4,
    unique_by=lambda pair: pair[0],
)


def spellings(content):
    """A content token in any mix of the two alphabets."""
    return map("".join, itertools.product(*[(c, c.translate(OTHERS)) for c in content]))


@given(
    flagged,
    st.lists(st.tuples(st.text("ab< ", max_size=5), st.booleans()), max_size=8),
)
def test_flags_work_as_without_trust_in_another_alphabet(described, parts):
    tokens = [AddedToken(content, i, **flags) for i, (content, flags) in enumerate(described)]
    text, runs = join_segments(parts)
    written = "".join(t if trusted else t.translate(OTHERS) for t, trusted in parts)
    respelt = [
        replace(token, content=content)
        for token in tokens
        for content in ([token.content] if token.special else spellings(token.content))
    ]
    expected = [
        (*span[:3], span.content.translate(TRUSTED_ALPHABET))
        for span in FlaggedTokenMatcher(respelt).spans(written)
    ]
    trust = Trust(frozenset(token.content for token in tokens if token.special), runs)
    matcher = FlaggedTokenMatcher(tokens).trusting(trust)
    assert matcher.has_flags
    assert [tuple(span) for span in matcher.spans(text)] == expected
    plain = [AddedToken(token.content, token.id, token.special) for token in tokens]
    matcher = SpecialTokenMatcher(token.content for token in tokens).trusting(trust)
    found = [(span.start, span.content) for span in matcher.spans(text)]
    slowly = find_slowly(text, trust_of(parts)[1], plain, ())
    assert found == [(start, token.content) for start, token in slowly]


STEPS = [
    NormalizerStep("Lowercase"),
    NormalizerStep("NFC"),
    NormalizerStep("NFD"),
    NormalizerStep("NFKC"),
    NormalizerStep("StripAccents"),
    NormalizerStep("Strip", strips_left=True, strips_right=True),
    NormalizerStep("Prepend", content="_"),
    NormalizerStep("Replace", pattern="x", content="<"),
    NormalizerStep("Replace", pattern="y", content="é>"),
    NormalizerStep("Replace", pattern="0", content=""),
]
NORMALIZED = ["<a>", "É", "<A", "a\u0301", "x", "a>"]


@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4, unique=True),
    st.lists(
        st.tuples(st.text("<>aAeÉxy0|\u0301\u0300ﬁ\u212b ", max_size=5), st.booleans()), max_size=7
    ),
)
@example([NormalizerStep("Prepend", content="_")], [("||", True), ("É", True)])
def test_no_untrusted_text_becomes_special_in_a_normalizer(engine, steps, parts):
    if steps == [NormalizerStep("NFC")]:
        return
    tokens = [AddedToken(t, 1000 + i, normalized=True) for i, t in enumerate(NORMALIZED)]
    tokens.append(AddedToken("||", 2000, special=False))  # found in the text as given
    run = Steps("steps", tuple(steps))
    if not all(run.normalize(content) for content in NORMALIZED):
        return
    spec = spec_of(tokens, normalizer=run)
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    names = {token.id: run.normalize(token.content) for token in tokens if token.normalized}
    text, runs = join_segments(parts)
    ids = tokenizer.encode_segments(parts)
    assert tokenizer.encode_segments_with_offsets(parts)[0] == ids
    assert tokenizer.count_segments(parts) == len(ids)
    # What follows the token that is found in the text as given is normalized by itself.
    trusted = [part for start, end in runs for part in text[start:end].split("||")]
    alone = [run.normalize(part) for part in trusted]
    for id_ in ids:
        assert id_ not in names or any(names[id_] in normalized for normalized in alone)
    # The runs are found by another way than the text.
    for start, end in run.normalize_runs(text, runs):
        assert 0 <= start <= end <= len(run.normalize(text))


@pytest.mark.parametrize(
    ("step", "content", "parts", "expected"),
    [
        ("StripAccents", "<a>", [("x<a\u0301>", True), ("y", False)], 1),
        # A mark that vanishes between two trusted runs parts them.
        ("StripAccents", "<a>", [("x<a", True), ("\u0301", False), (">", True)], 0),
        # A mark of an untrusted segment makes no special token.
        ("NFC", "é", [("e\u0301", True), ("x", False)], 1),
        ("NFC", "é", [("e", True), ("\u0301x", False)], 0),
        ("NFC", "é", [("e", False), ("\u0301", True)], 0),
    ],
)
def test_trust_through_a_normalizer(engine, step, content, parts, expected):
    tokens = [AddedToken(content, 1000, normalized=True)]
    # NFC alone would be another kind of normalizer.
    steps = (NormalizerStep(step), NormalizerStep("Lowercase"))
    spec = spec_of(tokens, normalizer=Steps("steps", steps))
    ids = Tokenizer.from_spec(spec, engine=engine).encode_segments(parts)
    assert ids.count(1000) == expected


def test_tokens_that_a_first_search_or_a_flag_finds(engine):
    tokens = [AddedToken("<s>", 1000), AddedToken("É", 1001, normalized=True)]
    steps = (NormalizerStep("Lowercase"),)
    spec = spec_of(tokens, normalizer=Steps("steps", steps))
    parts = [("<s>x<s>", True), ("É<s>É<", False), ("É", True), ("É", False)]
    ids, offsets = Tokenizer.from_spec(spec, engine=engine).encode_segments_with_offsets(parts)
    assert [id_ for id_ in ids if id_ >= 1000] == [1000, 1000, 1001]
    assert offsets[ids.index(1001)].tolist() == [15, 17]
    # White space of an untrusted segment belongs to a trusted token with the flag lstrip.
    spec = spec_of([AddedToken("<mask>", 1000, lstrip=True)])
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    parts = [("a  ", False), ("<mask>", True), (" <mask>", False)]
    assert tokenizer.encode_segments(parts) == [97, 1000, *tokenizer.encode_ordinary(" <mask>")]


def test_ids_that_merges_can_make_are_refused_in_untrusted_text(engine):
    spec = spec_of(["ab", "<a>"])
    assert spec.reachable_added_ids == {spec.special_tokens["ab"]}
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    assert tokenizer.encode_segments([("ab", True)]) == tokenizer.encode("ab")
    assert tokenizer.encode_segments([("ab", True), ("c", False)]) == tokenizer.encode("abc")
    for parts in ([("xab", False)], [("a", True), ("b", False)], [("<a>", True), ("ab", False)]):
        with pytest.raises(SpecialTokenReachedError, match=r"'ab'.*mark all segments") as caught:
            tokenizer.encode_segments(parts)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    single = Tokenizer.from_spec(spec_of(["|"]), engine=engine)
    with pytest.raises(SpecialTokenReachedError):
        single.encode_segments([("a|", False)])


def test_wrong_and_empty_segments(engine):
    tokenizer, _ = tokenizers_of(SPECS["none"], engine)
    bad = ("a", 1), ("a", "false"), (b"a", True), (None, True), ("a",), ("a", True, 1), 5
    for parts in ([bad[0]], *([("a", False), segment] for segment in bad)):
        words = rf"segment {len(parts) - 1} must be a text and whether"
        with pytest.raises(TypeError, match=words):
            tokenizer.encode_segments(parts)
    for encode in (tokenizer.encode_segments, tokenizer.count_segments):
        for wrong, kind in (("<|end|>", "str"), (["<|end|>"], "str"), (5, "int")):
            with pytest.raises(TypeError, match=f"not {kind}$"):  # a text would count as trusted
                encode(wrong)
    for parts in ([], [("", True)], [("", False), ("", True)]):
        assert tokenizer.encode_segments(parts) == []
        assert tokenizer.encode_segments_with_offsets(parts)[1].shape == (0, 2)


def test_what_the_post_processor_adds(engine):
    spec = spec_of(["<s>", "</s>"], prefix_ids=(306,), suffix_ids=(307,))
    assert spec.special_tokens == {"<s>": 306, "</s>": 307}
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    parts = [("<s>", False), ("x</s>", True)]
    expected = [306, *tokenizer.encode_ordinary("<s>x"), 307, 307]
    assert tokenizer.encode_segments(parts, add_special_tokens=True) == expected
    array = tokenizer.encode_segments_to_numpy(parts, add_special_tokens=True)
    assert array.tolist() == expected
    rendered, _ = tokenizer.encode_source(parts, Policy(), JSON, add_special_tokens=True)
    assert json.loads(rendered) == expected
    ids, offsets = tokenizer.encode_segments_with_offsets(parts, add_special_tokens=True)
    assert (ids, offsets[[0, -1]].tolist()) == (expected, [[0, 0], [8, 8]])
    assert tokenizer.count_segments(parts, add_special_tokens=True) == len(expected)


@pytest.mark.parametrize("filling", ["a b ", "é b ", "中 b ", "😀 b "])
def test_long_texts_over_windows_and_threads(engine, filling):
    left = 70_000 if engine == "native" else 2_000
    rng = random.Random(len(filling))
    parts = []
    while left > 0:
        size = min(left, rng.choice([1, 30, 4_000, 33_000]))
        left -= size
        parts.append((filling * size, rng.random() < 0.5))
        parts += [(rng.choice(["<a>", "<a", ">", "a>", "bé"]), rng.random() < 0.7) for _ in "abc"]
    spec = SPECS["nfc" if filling[0] == "é" else "none"]
    tokenizer, oracle = tokenizers_of(spec, engine)
    text, writers = trust_of(parts)
    expected = oracle.encode(written_privately(text, writers, spec.added_tokens))
    assert tokenizer.encode_segments(parts) == expected
    assert tokenizer.encode_segments_to_numpy(parts, num_threads=3).tolist() == expected
    # Counting stops at the limit: in the window, or the part between tokens, where it is exceeded.
    assert 10 < tokenizer.count_segments(parts, limit=10) < len(expected)
