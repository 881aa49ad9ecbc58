"""Added tokens with any flags, held against Hugging Face's `tokenizers`: ids, offsets, streams at
every cut, policies, parts of texts and files."""

import json
import random
import unicodedata
from dataclasses import replace
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.tokenizer_core.every_way import check_every_way, check_stream
from tests.tokenizer_core.formats.small_specs import check_round_trips, trained_spec
from tokenizer_core import StreamingEncoder, Tokenizer, TokenizerSpec
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.corpus.document_batches import DocumentBatch
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json, render_tokenizer_json
from tokenizer_core.text.round_trips import check_text
from tokenizer_core.text.truncate import chunk_text, truncate_text

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
def tokens_and_texts(draw: st.DrawFn) -> tuple[list[dict[str, object]], str]:
    tokens = draw(added_tokens)
    parts = st.sampled_from([*(token["content"] for token in tokens)]) | st.text(
        LETTERS, max_size=3
    )
    return tokens, "".join(draw(st.lists(parts, max_size=9)))


def table_of(
    tokens: list[dict[str, object]],
    normalizer: str,
    puts_space: bool,
    *,
    ignore_merges: bool = False,
    first: bool = False,
) -> dict:
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


def read(table: dict) -> TokenizerSpec:
    """The spec of a file that is not refused."""
    try:
        return parse_tokenizer_json(json.dumps(table).encode())
    except (FormatError, InvalidSpecError) as error:
        why = str(error)
    assert any(reason in why for reason in REFUSED), why
    return reject()


def theirs(table: dict) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(table))


@given(found=tokens_and_texts(), step=steps, ignore_merges=st.booleans(), first=st.booleans())
def test_ids_and_offsets_equal_tokenizers(found, step, ignore_merges, first, engine):
    tokens, text = found
    table = table_of(tokens, *step, ignore_merges=ignore_merges, first=first)
    spec = read(table)
    ours, expected = Tokenizer.from_spec(spec, engine=engine), theirs(table).encode(text)
    ids, offsets = ours.encode_with_offsets(text, unit="char")
    assert ids == expected.ids
    if step[0] == "none" or unicodedata.is_normalized("NFC", text):
        # Elsewhere, a token of a composed character has the offsets of all its marks here.
        assert [tuple(pair) for pair in offsets.tolist()] == expected.offsets
    check_every_way(ours, [text, text], [expected.ids] * 2)
    assert ours.decode(expected.ids) == theirs(table).decode(
        expected.ids, skip_special_tokens=False
    )
    assert check_text(ours, text).first_difference is None
    batch = DocumentBatch(0, False, [text.encode(), b"a"])
    (part,) = BatchEncoder(ours, plan_token_files(ours)).encode(batch).parts
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


def test_plain_text_gives_the_learned_one_of_two_tokens_with_the_same_bytes(engine):
    """The file spells the added token as it is and the learned one in the alphabet of bytes."""
    tokens = [token(content, special=True, single_word=True) for content in ("中", "\n")]
    table = table_of(tokens, "none", False, first=True)
    ours = Tokenizer.from_spec(parse_tokenizer_json(json.dumps(table).encode()), engine=engine)
    assert ours.encode("a中\nb 中") == theirs(table).encode("a中\nb 中").ids
    plain = theirs(table)
    plain.encode_special_tokens = True
    assert ours.encode_ordinary("\n中") == plain.encode("\n中").ids
    assert 0 not in ours.encode_ordinary("\n中")


@pytest.mark.parametrize("content", ["b", "the"])
def test_a_normalized_token_that_plain_text_gives_too_is_refused(content):
    """Its id would have two spellings: the one that is searched, and the one that merges make."""
    table = table_of([token(content, normalized=True)], "none", False)
    table["normalizer"] = PREPEND
    with pytest.raises(InvalidSpecError, match=f"as '_{content}', and its id .* of plain text"):
        parse_tokenizer_json(json.dumps(table).encode())
    (id_,) = {entry["id"] for entry in table["added_tokens"]}
    assert theirs(table).encode(f"=={content}").ids[-1] == id_
    table["added_tokens"][0]["normalized"] = False
    ours = Tokenizer.from_spec(parse_tokenizer_json(json.dumps(table).encode()))
    assert ours.encode(f"=={content}") == theirs(table).encode(f"=={content}").ids


def token(content: str, **flags_set: bool) -> dict[str, object]:
    return {"content": content, **dict.fromkeys(flags, False), **flags_set}


@given(found=tokens_and_texts(), step=steps)
def test_a_stream_gives_the_same_ids_at_every_cut(found, step):
    tokens, text = found
    ours = Tokenizer.from_spec(read(table_of(tokens, *step)), engine="python")
    whole = ours.encode(text)
    for cut in range(len(text) + 1):
        stream = StreamingEncoder(ours)
        first, second = text[:cut], text[cut:]
        assert stream.feed(first) + stream.feed(second) + stream.finish() == whole, cut
        assert stream.bytes_settled == len(text.encode())
    stream, ids = StreamingEncoder(ours), []
    for character in text:
        ids += stream.feed(character)
        assert ids == whole[: len(ids)]
        assert 0 <= stream.bytes_settled <= len(text.encode())
    assert ids + stream.finish() == whole


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
def test_parts_of_a_text_are_encoded_as_they_say(found, step, n_tokens):
    tokens, text = found
    ours = Tokenizer.from_spec(read(table_of(tokens, *step)), engine="python")
    starts, ends = ours.encode_with_offsets(text)[1].T.tolist()
    if ours.spec.steps:
        ends += starts  # what a normalizer joins to a character belongs to its part
    for side in ("left", "right"):
        part = truncate_text(ours, text, n_tokens, side=side)
        assert part.ids.tolist() == ours.encode(part.text)
        assert len(part.ids) <= n_tokens
        assert text.encode()[part.start : part.end].decode() == part.text
        if side == "right":
            assert part.end in [0, len(text.encode()), *ends]
        else:
            assert part.start in [0, len(text.encode()), *starts]
    chunks = list(chunk_text(ours, text, n_tokens))
    assert "".join(chunk.text for chunk in chunks) == text
    for chunk in chunks:
        assert chunk.ids.tolist() == ours.encode(chunk.text)


@given(found=tokens_and_texts(), step=steps)
def test_a_document_is_cut_where_its_ids_stay(found, step):
    tokens, text = found
    ours = Tokenizer.from_spec(read(table_of(tokens, *step)), engine="python")
    cuts = DocumentCuts(plan_token_files(ours), ours.spec)
    for end in range(len(text) + 1):
        before, after = text[:end], text[end:]
        cut = cuts.find_last(before)
        if cut is not None:
            parts = [before[:cut], before[cut:] + after]
            assert [id_ for part in parts for id_ in ours.encode(part)] == ours.encode(text)
            assert cuts.find_last_in_utf8(before.encode()) == len(before[:cut].encode())


@given(found=tokens_and_texts(), step=steps, ignore_merges=st.booleans(), first=st.booleans())
def test_they_return_from_a_file_and_from_a_manifest(found, step, ignore_merges, first):
    tokens, text = found
    table = table_of(tokens, *step, ignore_merges=ignore_merges, first=first)
    spec = read(table)
    again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    assert again.encode(text).ids == theirs(table).encode(text).ids


def test_every_flag_is_in_the_fingerprint():
    plain = read(table_of([{"content": "<s>", **dict.fromkeys(flags, False)}], "none", False))
    specs = [plain]
    for flag in flags[:-1]:
        token = replace(plain.added_tokens[0], **{flag: True})
        specs.append(replace(plain, added_tokens=(token,)))
    assert len({spec.fingerprint for spec in specs}) == len(specs)
    assert plain.extensions() == {}
    for one, other in pairwise(specs):
        assert one.extensions() != other.extensions()
