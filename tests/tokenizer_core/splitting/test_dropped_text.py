"""Text that has no ids: every way to encode leaves out the same.

A vocabulary that lacks bytes of UTF-8 (SmolLM): tokenizers leaves them out before it merges, or
gives the unknown token. A pattern that drops text, as tiktoken's do.
"""

import dataclasses
import json
import random

import numpy as np
import pytest
import tiktoken
import tokenizers

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.every_way import check_cuts, check_every_way, check_parts
from tests.tokenizer_core.formats.small_specs import TRAINING_TEXT, check_round_trips, trained_spec
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.engines import DOCUMENTS
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.evaluation.unreachable import unreachable_tokens
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.spec import Alphabet, MissingBytes
from tokenizer_core.specials.parts import NO_TOKENS, text_as_decoded
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern
from tokenizer_core.text.round_trips import check_text
from tokenizer_core.text.truncate_and_chunk import chunk_text, truncate_text

# `!` is missing, so that punctuation of one pre-token meets; 0x84 and 0xE4 occur in Chinese.
VALUES = (0x04, 0x21, 0x84, 0xE4, 0xF1)
# Without 0x84 every character keeps its last bytes, and texts are cut.
FIRST_BYTES = (0x04, 0x21, 0xE4, 0xF1)
RULES = [(None, False), (97, False), (97, True)]
ALPHABET = "?!=a \u4e00\u4e04\u4e84\u00e4\u0104\x04\U00040000\U000c4000\u2004"
COMMAS = SplitPattern(
    "custom", ",", "oniguruma", before=(SplitPattern("custom", r"\s+|\S+", "oniguruma"),)
)
TEXTS = [
    "",
    "\x04",
    "!!!",
    "a!?!=?!!?= ?!=",
    "x\U00040000\U00040001y",
    "\u4e00\u4e04\u4e84\u4e00\u00e4\u0104",
    "don't! low!er <|x|>!<|x|>?!? \u4e2d\u6587!\r\n! ",
    "?!=" * 60 + "\u4e04" * 40 + "?" * 100,
    TRAINING_TEXT,
    *adversarial_texts(n_random=30, seed=5),
]


def random_spec(seed, missing, **fields):
    """Merges of what is left of texts when the bytes are left out, so that others meet."""
    rng = random.Random(seed)
    lost = bytes(missing.values)
    left = [text.encode().translate(None, lost) for text in _texts(rng, 40)]
    merges = {}
    for data in left:
        parts = [bytes([byte]) for byte in data[:12]]
        for _ in range(rng.randrange(1, 9)):
            if len(parts) > 1:
                at = rng.randrange(len(parts) - 1)
                merges[parts[at], parts[at + 1]] = None
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
    products = dict.fromkeys(left + right for left, right in merges)
    vocab = {i: bytes([i]) for i in range(256) if i not in missing.values}
    vocab |= {256 + i: product for i, product in enumerate(products)}
    if fields.get("ignore_merges"):
        # Whole pre-tokens that hold missing bytes.
        for text in ("!!", "?!", "\x04\x04", " !", "\u4e04"):
            vocab[max(vocab) + 1] = text.encode()
    unk_id = missing.unk_id and max(vocab) + 1
    if unk_id:
        vocab[unk_id] = b"<unk>"
    missing = dataclasses.replace(missing, unk_id=unk_id)
    return TokenizerSpec.from_merges(
        vocab, list(merges), ["<|x|>"], alphabet=Alphabet(missing=missing), **fields
    )


def _texts(rng, n_texts):
    return ["".join(rng.choices(ALPHABET, k=rng.randrange(1, 30))) for _ in range(n_texts)]


def in_hugging_face(spec):
    return tokenizers.Tokenizer.from_str(render_tokenizer_json(spec).decode())


@pytest.mark.parametrize("pattern", [*PATTERNS, COMMAS], ids=str)
def test_ids_and_texts_are_those_of_tokenizers(engine, pattern):
    for seed in range(6):
        missing = MissingBytes([VALUES, FIRST_BYTES][seed % 2], *RULES[seed % 3])
        spec = random_spec(seed, missing, pattern=pattern, ignore_merges=seed >= 3)
        ours, theirs = Tokenizer.from_spec(spec, engine=engine), in_hugging_face(spec)
        n_changed = 0
        for text in [*TEXTS[:8], *_texts(random.Random(seed), 30)]:
            ids = theirs.encode(text).ids
            for _ in range(2):  # from the cache too
                assert ours.encode(text) == ids, (seed, text)
            assert ours.count(text) == len(ids)
            decoded = theirs.decode(ids, skip_special_tokens=False)
            assert ours.decode(ids) == decoded
            n_changed += decoded != text
            assert check_text(ours, text) == (None, decoded != text)
        assert n_changed


@pytest.mark.parametrize(("unk_id", "is_fused"), RULES)
def test_every_way_to_encode_gives_the_same_ids(engine, unk_id, is_fused):
    spec = random_spec(1, MissingBytes(VALUES, unk_id, is_fused))
    ours, theirs = Tokenizer.from_spec(spec, engine=engine), in_hugging_face(spec)
    expected = [theirs.encode(text).ids for text in TEXTS]
    check_every_way(ours, TEXTS, expected)
    for text in TEXTS:
        check_parts(ours, text, 12)
    for text, ids in zip(TEXTS[:8], expected, strict=False):
        check_cuts(ours, text, ids)
    documents = ours.engine.encode_batch([text.encode() for text in TEXTS[:4]], None, DOCUMENTS)
    assert documents.ids.tolist() == [id_ for ids in expected[:4] for id_ in ids]


@pytest.mark.parametrize(
    ("unit", "rule"),
    [("?!=", RULES[1]), ("\u4e04\u4e00", RULES[0]), ("\U00040000", RULES[2])],
)
def test_long_pre_tokens_are_merged_alike(engine, unit, rule):
    spec = random_spec(2, MissingBytes(VALUES, *rule))
    ours = Tokenizer.from_spec(spec, engine=engine)
    text = unit * (40_000 if engine == "native" else 2_000)
    ids = in_hugging_face(spec).encode(text).ids
    assert ours.encode(text) == ids
    assert ours.encode_to_numpy("a " + text, num_threads=2)[-9:].tolist() == ids[-9:]


@pytest.mark.parametrize(("unk_id", "is_fused"), RULES)
@pytest.mark.parametrize("ignore_merges", [False, True])
def test_offsets_are_those_in_the_text_as_given(engine, unk_id, is_fused, ignore_merges):
    missing = MissingBytes(VALUES, unk_id, is_fused)
    spec = random_spec(1, missing, pattern="llama3", ignore_merges=ignore_merges)
    ours, lost = Tokenizer.from_spec(spec, engine=engine), bytes(VALUES)
    for text in [*TEXTS, *_texts(random.Random(9), 40)]:
        ids, offsets = ours.encode_with_offsets(text)
        assert ids == ours.encode(text)
        data = text.encode()
        ends = [0, *offsets[:, 1].tolist()]
        for id_, (start, end), before in zip(ids, offsets.tolist(), ends, strict=False):
            part, token = data[start:end], spec.vocab[id_]
            if token == b"<unk>" and part != token:
                assert not part.translate(None, lost)
                assert len(part) == 1 or is_fused
            else:
                assert token in (part, part.translate(None, lost)), (text, start, end)
            # Between tokens is only what was left out.
            assert start >= before
            assert not data[before:start].translate(None, lost)
            assert unk_id is None or start == before


@pytest.mark.parametrize(("unk_id", "is_fused"), RULES)
def test_manifest_and_tokenizer_json_keep_them(unk_id, is_fused):
    missing = MissingBytes(VALUES, unk_id, is_fused)
    for options in ({}, {"normalizer": "nfc"}, {"ignore_merges": True}):
        spec = random_spec(1, missing, **options)
        check_round_trips(spec)
        unknown = "" if unk_id is None else "<unk>"
        assert text_as_decoded(spec, NO_TOKENS, "a!b", with_lost=False) == f"a{unknown}b"
        assert text_as_decoded(spec, NO_TOKENS, "a!b") == "a!b"
    spec = random_spec(1, missing)
    fields = render_spec_fields(spec)
    found = fields["alphabet"]["missing"]
    assert found["values"] == list(VALUES)
    for field, value in [("unk_id", "a"), ("values", [True]), ("values", None), ("is_fused", None)]:
        wrong = {**fields["alphabet"], "missing": found | {field: value}}
        with pytest.raises(FormatError, match="malformed"):
            build_spec({**fields, "alphabet": wrong}, spec.vocab, spec.merges)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (None, "no token for 1 of the bytes"),
        (MissingBytes(()), "no token for 1 of the bytes"),
        (MissingBytes((4, 4)), "some of those of UTF-8"),
        (MissingBytes((5, 4)), "some of those of UTF-8"),
        (MissingBytes((4, 0xC0)), "some of those of UTF-8"),
        (MissingBytes((4,), None, True), "needs an unknown token"),
        (MissingBytes((4, 97)), "missing byte b'a' has a token, id 97"),
        (MissingBytes((4,), 999), "has id 999, without a token"),
        (MissingBytes((4,), 97), "a merge joins the unknown token b'a'"),
    ],
)
def test_missing_bytes_that_do_not_fit_the_vocabulary_are_refused(missing, message):
    vocab = {i: bytes([i]) for i in range(256) if i != 4} | {256: b"ab"}
    options = {} if missing is None else {"alphabet": Alphabet(missing=missing)}
    with pytest.raises(InvalidSpecError, match=message):
        TokenizerSpec.from_merges(vocab, [(b"a", b"b")], **options)
    with pytest.raises(InvalidSpecError, match="no token for 1 of the bytes of UTF-8"):
        TokenizerSpec.from_ranks({token: id_ for id_, token in vocab.items()}, pattern="gpt2")


def _table(**model):
    table = json.loads(render_tokenizer_json(random_spec(1, MissingBytes(VALUES))))
    table["model"].update(model)
    return table


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"byte_fallback": True}, r"model\.byte_fallback is true.*0x04"),
        ({"unk_token": "<nothing>"}, r"model\.unk_token is '<nothing>'"),
        ({"unk_token": 5}, r"model\.unk_token is 5"),
        ({"unk_token": "?"}, "a merge joins the unknown token"),
    ],
)
def test_a_file_that_cannot_be_read_exactly_is_refused(model, message):
    with pytest.raises((FormatError, InvalidSpecError), match=message):
        parse_tokenizer_json(json.dumps(_table(**model)).encode())


def test_an_added_token_may_be_a_missing_byte_or_the_unknown_token(engine):
    """tokenizers finds it in the text, and merging does not start from it."""
    byte = _table()
    texts = [text for text in byte["model"]["vocab"] if text != "<|x|>"]
    byte["model"]["vocab"] = {text: id_ for id_, text in enumerate(texts)}
    byte["added_tokens"][0].update(id=len(texts), content="\x04")
    unknown = _table(unk_token="<|x|>", fuse_unk=True)
    unknown["model"]["vocab"].setdefault("<|x|>", len(unknown["model"]["vocab"]))
    for table in (byte, unknown):
        data = json.dumps(table)
        spec, theirs = parse_tokenizer_json(data.encode()), tokenizers.Tokenizer.from_str(data)
        ours = Tokenizer.from_spec(spec, engine=engine)
        assert 4 in spec.alphabet.missing.values
        for text in TEXTS:
            assert ours.encode(text) == theirs.encode(text).ids
        assert parse_tokenizer_json(render_tokenizer_json(spec)) == spec
        if table is byte:
            assert ours.encode_ordinary("?\x04?") == theirs.encode("??").ids


def test_tokens_of_missing_bytes_are_unreachable_and_the_unknown_token_is_not():
    vocab = {i: bytes([i]) for i in range(256) if i != 0x21} | {256: b"<unk>", 257: b"a!"}
    for unk_id in (None, 256):
        spec = TokenizerSpec.from_merges(
            vocab, [], alphabet=Alphabet(missing=MissingBytes((0x21,), unk_id))
        )
        found = {token.id: token.reason for token in unreachable_tokens(Tokenizer.from_spec(spec))}
        assert found[257] == "merges"
        assert (256 in found) == (unk_id is None)


# No match covers digits, spaces at the start of a line, or anything after a `#`.
EXPRESSION = r"(?<!#)[\p{L}\p{M}]+| [^\s\d#]+|\n+(?=\S)"
LEARNED = trained_spec().token_to_id
SPECIAL = {"<|x|>": 900}
DROPPED = [
    "",
    "123",
    "a1b22c é漢字 333",
    "  abc\n\n  def #ghi jkl\n",
    "x<|x|>1<|x|>2y",
    "caf\u00e9 1 cafe\u0301 2",
    TRAINING_TEXT,
    *adversarial_texts(n_random=30, seed=3),
]


@pytest.fixture(scope="module")
def dropping(engine):
    spec = TokenizerSpec.from_ranks(LEARNED, SPECIAL, pattern=EXPRESSION)
    assert (spec.pattern.dialect, spec.pattern.unmatched) == ("fancy-regex", "drop")
    return Tokenizer.from_spec(spec, engine=engine)


def test_every_way_to_encode_drops_what_tiktoken_drops(dropping):
    check_round_trip(dropping)
    theirs = tiktoken.Encoding(
        "dropping", pat_str=EXPRESSION, mergeable_ranks=dict(LEARNED), special_tokens=SPECIAL
    )
    expected = [theirs.encode(text, allowed_special="all") for text in DROPPED]
    check_every_way(dropping, DROPPED, expected)
    ordinary = [theirs.encode_ordinary(text) for text in DROPPED]
    assert [dropping.encode_ordinary(text) for text in DROPPED] == ordinary
    documents = dropping.engine.encode_batch([t.encode() for t in DROPPED[:4]], None, DOCUMENTS)
    assert documents.ids.tolist() == [id_ for ids in ordinary[:4] for id_ in ids]
    changed = []
    for text, their_ids in zip(DROPPED, expected, strict=True):
        changed.append(theirs.decode(their_ids) != text)
        assert check_text(dropping, text) == (None, changed[-1])
        check_parts(dropping, text, 8)
        ids, offsets = dropping.encode_with_offsets(text)
        assert ids == their_ids
        data = text.encode()
        covered = [data[start:end] for start, end in offsets.tolist()]
        assert covered == [dropping.spec.vocab[id_] for id_ in ids]
        assert np.all(np.diff(offsets[:, 0].astype(np.int64)) > 0)
    assert any(changed)
    for text, ids in zip(DROPPED[:6], expected, strict=False):
        check_cuts(dropping, text, ids)
    ids, offsets = dropping.encode_with_offsets("12é 3", unit="char")
    assert offsets.tolist() == [[2, 3]] * len(ids)
    assert truncate_text(dropping, "ab1 cd2 ef", dropping.count("ab cd")).text == "ab1 cd"
    # Dropped text belongs to the chunk before it.
    for text in ("12ab 123", "123"):
        assert [chunk.text for chunk in chunk_text(dropping, text, 8)] == [text]


def test_offsets_after_normalizing_are_those_in_the_text_as_given(engine):
    pattern = SplitPattern("custom", r"\p{L}+", "fancy-regex", "drop")
    spec = trained_spec(pattern="gpt2", normalizer="nfc")
    spec = TokenizerSpec.from_merges(spec.vocab, spec.merges, pattern=pattern, normalizer="nfc")
    text = "1 cafe\u0301 2 x"
    ids, offsets = Tokenizer.from_spec(spec, engine=engine).encode_with_offsets(text)
    data = text.encode()
    assert offsets[0, 0] == 2
    assert data[offsets[-1, 0] : offsets[-1, 1]] == b"x"
    assert b"".join(spec.vocab[id_] for id_ in ids).decode() == "caf\u00e9x"
