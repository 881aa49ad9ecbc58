"""Added tokens with any flags, held against Hugging Face's `tokenizers`: ids, offsets, streams at
every cut, policies, parts of texts and files."""

import json
import random
import unicodedata

import pytest
import tokenizers
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.tokenizer_core.every_way import check_cuts, check_every_way, check_parts, check_stream
from tests.tokenizer_core.formats.small_specs import check_round_trips, trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.corpus.document_batches import DocumentBatch
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.text.round_trips import check_text

BASE = json.loads(render_tokenizer_json(trained_spec(60, special_tokens=[])))
PREPEND = {"type": "Prepend", "prepend": "_"}
LETTERS = "ab<_ \n\u3000\x1c\u0301中="
REFUSED = (
    "is white space, which a token with the flag rstrip",
    "the normalizer NFC may make or change",
    "depends on the normalized text around it",
    "to a whole pre-token (model.ignore_merges)",
)
flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
contents = st.text(LETTERS, min_size=1, max_size=4)
added_tokens = st.lists(
    st.fixed_dictionaries({"content": contents, **dict.fromkeys(flags, st.booleans())}),
    min_size=1,
    max_size=5,
    unique_by=lambda token: token["content"],
)
steps = st.sampled_from([("none", False), ("nfc", False), ("none", True)])


@st.composite
def tokens_and_texts(draw):
    tokens = draw(added_tokens)
    parts = st.sampled_from([*(token["content"] for token in tokens)]) | st.text(
        LETTERS, max_size=3
    )
    return tokens, "".join(draw(st.lists(parts, max_size=9)))


def table_of(tokens, normalizer, puts_space, *, ignore_merges=False, first=False):
    """A file with these added tokens, which are in the vocabulary too: their ids stay when some of
    them are left out. With `first` they have the smallest ids, also below those of tokens with the
    same bytes."""
    base = BASE["model"]["vocab"]
    new = list(dict.fromkeys(t["content"] for t in tokens if t["content"] not in base))
    order = [*new, *base] if first else [*base, *new]
    vocab = {text: id_ for id_, text in enumerate(order)}
    return {
        **BASE,
        "added_tokens": [{**token, "id": vocab[token["content"]]} for token in tokens],
        "normalizer": {"type": "NFC"} if normalizer == "nfc" else None,
        "pre_tokenizer": {**BASE["pre_tokenizer"], "add_prefix_space": puts_space},
        "post_processor": None,
        "model": {**BASE["model"], "vocab": vocab, "ignore_merges": ignore_merges},
    }


def read(table):
    """The spec of a file that is not refused."""
    try:
        return parse_tokenizer_json(json.dumps(table).encode())
    except (FormatError, InvalidSpecError) as error:
        why = str(error)
    assert any(reason in why for reason in REFUSED), why
    return reject()


def token(content, **flags_set):
    return {"content": content, **dict.fromkeys(flags, False), **flags_set}


def theirs(table):
    return tokenizers.Tokenizer.from_str(json.dumps(table))


@given(found=tokens_and_texts(), step=steps, ignore_merges=st.booleans(), first=st.booleans())
def test_ids_offsets_and_files_equal_tokenizers(found, step, ignore_merges, first, engine):
    tokens, text = found
    table = table_of(tokens, *step, ignore_merges=ignore_merges, first=first)
    spec = read(table)
    again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    ours, expected = Tokenizer.from_spec(spec, engine=engine), theirs(table).encode(text)
    assert again.encode(text).ids == expected.ids
    ids, offsets = ours.encode_with_offsets(text, unit="char")
    assert ids == expected.ids
    if step[0] == "none" or unicodedata.is_normalized("NFC", text):
        # Elsewhere, a token of a composed character has the offsets of all its marks here.
        assert [tuple(pair) for pair in offsets.tolist()] == expected.offsets
    check_every_way(ours, [text, text], [expected.ids] * 2)
    decoded = theirs(table).decode(expected.ids, skip_special_tokens=False)
    assert ours.decode(expected.ids) == decoded
    assert check_text(ours, text).first_difference is None
    batch = DocumentBatch(0, False, [text.encode(), b"a"])
    (part,) = BatchEncoder(ours, plan_token_files(ours, end_of_document="")).encode(batch).parts
    assert part.ids[: part.offsets[1]].tolist() == expected.ids


@pytest.mark.parametrize("step", [("none", False), ("nfc", False), ("none", True)])
def test_a_text_of_many_windows_has_the_same_ids(step):
    """The native engine cuts a long text into windows, and these between threads."""
    tokens = [
        token("[m]", lstrip=True, special=True),
        token("[r]", rstrip=True),
        token("_a_", single_word=True, normalized=step[0] == "none"),
        token("  ", normalized=True),
    ]
    parts = [" ", "  ", "\n", "\u3000", "a", "ab", "b", ".", "中", " a b", "= b a "]
    rng = random.Random(3)
    chosen = [*parts * 3, *(str(token["content"]) for token in tokens)]
    for others in ([], ["é"]):  # ASCII is encoded whole by one thread
        text = "".join(rng.choices([c for c in chosen if others or c.isascii()] + others, k=60_000))
        table = table_of(tokens, *step)
        ours, expected = Tokenizer.from_spec(read(table)), theirs(table).encode(text)
        assert ours.encode(text) == expected.ids
        assert ours.encode_to_numpy(text, num_threads=3).tolist() == expected.ids
        assert ours.count(text) == len(expected.ids)


@pytest.mark.parametrize(
    ("content", "flags_set", "normalizer", "text", "is_read"),
    [
        ("bab", {"single_word": True}, None, "_bab", False),  # found, and dropped for the _
        ("KK", {}, {"type": "NFC"}, "\u212aK", False),
        ("bab", {}, {"type": "Lowercase"}, "BAB", False),
        ("bab", {"normalized": True}, PREPEND, "=bab", False),  # searched as `_bab`
        ("bab", {"normalized": True}, {"type": "Lowercase"}, "BAB", True),
        ("bab", {}, {"type": "NFC"}, "_bab", True),  # NFC makes no part of it
        ("the", {"single_word": True}, None, "_the", True),  # merges make it
        ("中", {"single_word": True}, None, "_中", True),  # a pre-token is spelt by its bytes
    ],
)
def test_an_added_token_that_may_be_a_whole_pre_token(
    content, flags_set, normalizer, text, is_read, engine
):
    """`tokenizers` finds it in the vocabulary, with `ignore_merges`."""
    table = table_of([token(content, **flags_set)], "none", False, ignore_merges=True)
    table["normalizer"] = normalizer
    if not is_read:
        with pytest.raises(FormatError, match=r"to a whole pre-token \(model\.ignore_merges\)"):
            parse_tokenizer_json(json.dumps(table).encode())
        (id_,) = {entry["id"] for entry in table["added_tokens"]}
        assert id_ in theirs(table).encode(text).ids
        table["model"]["ignore_merges"] = False
        assert id_ not in theirs(table).encode(text).ids
    ours = Tokenizer.from_spec(parse_tokenizer_json(json.dumps(table).encode()), engine=engine)
    assert ours.encode(text) == theirs(table).encode(text).ids


@given(found=tokens_and_texts(), step=steps, first=st.booleans(), data=st.data())
def test_a_token_that_is_not_allowed_is_plain_text(found, step, first, data, engine):
    tokens, text = found
    table = table_of(tokens, *step, first=first)
    ours = Tokenizer.from_spec(read(table), engine=engine)
    special = [token["content"] for token in tokens if token["special"]]
    allowed = data.draw(st.sets(st.sampled_from(special))) if special else set()
    kept = [t for t in table["added_tokens"] if not t["special"] or t["content"] in allowed]
    expected = theirs({**table, "added_tokens": kept}).encode(text).ids
    assert ours.encode(text, allowed_special=allowed) == expected
    check_stream(ours, text, expected, allowed_special=allowed)
    none = theirs({**table, "added_tokens": []}).encode(text).ids
    assert ours.encode_ordinary(text) == none


@given(found=tokens_and_texts(), step=steps, n_tokens=st.integers(4, 7))
def test_streams_parts_and_documents_keep_the_ids(found, step, n_tokens):
    tokens, text = found
    ours = Tokenizer.from_spec(read(table_of(tokens, *step)), engine="python")
    check_cuts(ours, text, ours.encode(text))
    check_parts(ours, text, n_tokens)
    cuts = DocumentCuts(plan_token_files(ours, end_of_document=""), ours.spec)
    for end in range(len(text) + 1):
        before, after = text[:end], text[end:]
        cut = cuts.find_last(before)
        if cut is not None:
            parts = [before[:cut], before[cut:] + after]
            assert [id_ for part in parts for id_ in ours.encode(part)] == ours.encode(text)
            assert cuts.find_last_in_utf8(before.encode()) == len(before[:cut].encode())
