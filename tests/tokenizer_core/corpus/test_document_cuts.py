"""The ids of a document's parts, joined, are the ids of the document."""

import itertools
from functools import cache, partial

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import file_of, normalizers
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import texts as trap_texts
from tokenizer_core import AddedToken, Tokenizer
from tokenizer_core.corpus import document_cuts, plan_token_files
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.errors import FormatError, PreTokenTooLongError, SpecialTokenForbiddenError
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.splitting.pretokenize import split

FORMS = [(name, "none") for name in PATTERNS] + [("qwen2", "nfc")]
SPECIAL = ["<|endoftext|>", "\n\nHuman:", "<| a b |>", "<| a b |> c"]
texts = st.text(
    st.sampled_from("ab1 \n\t.,'é中文ᄒ\u1161\u11ab\u0301\u0323\u0958क़◌<|>")
    | st.characters(codec="utf-8"),
    max_size=60,
) | st.lists(st.sampled_from([*SPECIAL, " ", "\n", "a", "le", "中", "e\u0301", "."])).map("".join)


def cuts_of(tokenizer, **special):
    return DocumentCuts(plan_token_files(tokenizer, end_of_document="", **special), tokenizer.spec)


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


CLIP_STEPS = sequence(
    {"type": "NFC"},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Lowercase"},
)
STRIP_LEFT = sequence({"type": "Strip", "strip_left": True, "strip_right": False})
FLAGGED = [
    AddedToken("<l>", 900, lstrip=True),
    AddedToken("<r>", 901, rstrip=True),
    AddedToken(" w", 902, single_word=True),
    AddedToken("w", 904, single_word=True),
    AddedToken("<late|", 903, normalized=True, rstrip=True),
]


@pytest.mark.parametrize(
    ("pattern", "normalizer"),
    [
        ("gpt2", "none"),
        ("gpt2", "nfc"),
        ("gpt2", "prefix-space"),
        (r"\w|[^\w\s]|\s+", "none"),  # cut between any two letters
    ],
)
def test_tokens_with_flags_are_whole_in_one_part(pattern, normalizer):
    tokenizer = Tokenizer.from_spec(
        trained_spec(20, pattern, special_tokens=FLAGGED, normalizer=normalizer), engine="python"
    )
    cuts = cuts_of(tokenizer)
    parts = ["a", " ", "\n", *(token.content for token in FLAGGED)]
    found = set()
    for text in map("".join, itertools.product(parts, repeat=3)):
        cut = cuts.find_last(text)
        assert cuts.find_last_in_utf8(text.encode()) == cut  # in ASCII, the same number
        for rest in ("", "a", " a", "<l>"):
            whole = text + rest
            if cut is not None:
                ids = tokenizer.encode(whole[:cut]) + tokenizer.encode(whole[cut:])
                assert ids == tokenizer.encode(whole), (text, cut)
        found.add(cut)
    assert len(found) > 2


@cache
def tokenizer_of(pattern, normalizer):
    spec = trained_spec(60, pattern, normalizer=normalizer, special_tokens=SPECIAL)
    return Tokenizer.from_spec(spec)


@pytest.mark.parametrize(("pattern", "normalizer"), FORMS)
@given(text=texts, rest=texts, tail_bytes=st.integers(1, 40))
@example(text="क़ क़\n", rest="\n a", tail_bytes=9)
@example(text="a<| a b |> c", rest=" d", tail_bytes=9)
@example(text="a <| a b |> c中", rest="", tail_bytes=9)
@example(text="中文。中文、中", rest="文", tail_bytes=4)
@example(text="a.\u0958\n", rest="b", tail_bytes=4)
@example(text="。\n\n\n、、、、", rest="b", tail_bytes=4)
@example(text="a b" + "中" * 9, rest="", tail_bytes=4)
def test_the_ids_of_the_parts_are_those_of_the_document(
    pattern, normalizer, text, rest, tail_bytes
):
    tokenizer = tokenizer_of(pattern, normalizer)
    for allowed in ("all", "none"):
        plan = plan_token_files(tokenizer, end_of_document="", allowed_special=allowed)
        cuts = DocumentCuts(plan, tokenizer.spec)
        cut = cuts.find_last(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(document_cuts, "_TAIL_BYTES", tail_bytes)
            found = cuts.find_last_in_utf8(text.encode())
        assert found == (None if cut is None else len(text[:cut].encode()))
        if cut is None:
            continue
        assert 0 < cut < len(text)
        if not any(name in text for name in SPECIAL):  # ids may hide a wrong cut, pre-tokens do not
            plain = [
                normalize_nfc(part) if normalizer == "nfc" else part
                for part in (text, text[:cut], text[cut:])
            ]
            whole, before, after = (split(part, PATTERNS[pattern]) for part in plain)
            assert before + after == whole
        encode = partial(tokenizer.encode, allowed_special=allowed)
        for longer in (text, text + rest):
            assert encode(longer[:cut]) + encode(longer[cut:]) == encode(longer)


@pytest.mark.parametrize(("pattern", "normalizer"), FORMS)
def test_a_cut_is_found_at_each_safe_place(pattern, normalizer):
    cuts = cuts_of(tokenizer_of(pattern, normalizer))
    assert cuts.find_last("one two three" + "x" * 20_000) == 7
    assert cuts.find_last("one two three" + "。" * 20_000) == 7
    no_space = cuts.find_last("中文。" * 500)
    assert no_space is not None
    assert no_space > 1400
    assert cuts.find_last("x" * 100) is None
    token = "<|endoftext|>"
    assert cuts.find_last(f"x{token}xxxx") == 1 + len(token)


def test_a_forbidden_token_across_a_cut_is_refused():
    tokenizer = tokenizer_of("gpt2", "none")
    special = {"allowed_special": "none", "disallowed_special": ["<| a b |>", "z z"]}
    cuts = cuts_of(tokenizer, **special)
    for text in ("one <| a b |> two", "one z z two"):
        rest, parts = text, []
        while (cut := cuts.find_last(rest)) is not None:
            parts.insert(0, rest[cut:])
            rest = rest[:cut]
        with pytest.raises(SpecialTokenForbiddenError):
            tokenizer.encode_batch([rest, *parts], **special)


def test_a_cut_holds_no_more_text_than_a_stream(monkeypatch):
    monkeypatch.setattr(document_cuts, "MAX_PENDING_CHARS", 100)
    cuts = cuts_of(tokenizer_of("gpt2", "none"))
    assert cuts.find_last("x" * 100) is None
    with pytest.raises(PreTokenTooLongError, match="break such text with white space"):
        cuts.find_last("x" * 101)
    custom = Tokenizer.from_spec(trained_spec(10, r"\w+"))
    assert cuts_of(custom).find_last("a b " * 26) == 91
    custom = Tokenizer.from_spec(trained_spec(10, r"(?<!x)\w+"))
    with pytest.raises(PreTokenTooLongError, match="with this split pattern no place is sure"):
        cuts_of(custom).find_last("a b " * 26)


@given(normalizer=normalizers, parts=st.lists(trap_texts, max_size=4), rest=trap_texts)
@example(normalizer=CLIP_STEPS, parts=["a <É>x  ab"], rest="c <é>")
@example(normalizer=CLIP_STEPS, parts=["a b \u0301", "<s>"], rest="\u0301")
@example(normalizer=STRIP_LEFT, parts=[], rest="")
def test_steps_of_a_normalizer_do_not_cross_a_cut(normalizer, parts, rest):
    try:
        spec = parse_tokenizer_json(file_of(normalizer))
    except FormatError:
        assume(False)
    tokenizer = Tokenizer.from_spec(spec)
    cuts = cuts_of(tokenizer)
    # A cut is only looked for with enough text on both sides.
    text = (" ".join(parts) + " ab a. x ") * (1 + 300 // (9 + sum(map(len, parts))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_cuts, "_FIRST_WINDOW_CHARS", 1)
        cut = cuts.find_last(text)
    if cut is None:
        return
    assert not any(step["type"] == "Prepend" for step in normalizer["normalizers"])
    whole = text + rest
    assert tokenizer.encode(whole[:cut]) + tokenizer.encode(whole[cut:]) == tokenizer.encode(whole)


def test_a_document_is_cut_between_steps():
    spec = parse_tokenizer_json(file_of(CLIP_STEPS))
    cuts = cuts_of(Tokenizer.from_spec(spec))
    for text in ("Some WORDS  and\n\n\u00c9 more ", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5 "):
        cut = cuts.find_last(text * 100)
        assert cut is not None
        assert cut > len(text * 80)
        before = (text * 1000)[: cuts.find_last(text * 1000)]
        assert cuts.find_last_in_utf8((text * 1000).encode()) == len(before.encode())
    assert cuts.find_last("<s>" * 300) is None
    spec = parse_tokenizer_json(file_of(sequence({"type": "Prepend", "prepend": "_"})))
    cuts = cuts_of(Tokenizer.from_spec(spec))
    assert cuts.find_last("one two three " * 100) is None
