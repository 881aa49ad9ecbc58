"""SentencePiece's `tokenizer.model`. The expected ids are those of sentencepiece 0.2.3."""

import json
import struct
import warnings

import pytest

from tests.tokenizer_core.every_way import check_every_way, check_stream
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.any_format import detect_file
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.formats.sentencepiece_file import parse_sentencepiece
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.spec.document_end import find_eos_token

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPECIALS = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTES = [(f"<0x{value:02X}>", 0.0, BYTE) for value in range(256)]
# Their scores fall, but for the runs of spaces, which Mistral's have at the end.
LEARNED = ["ab", "▁a", "▁ab", "bc", "abc", "aa", "aaa", "中文", "▁中", "é\n", "b▁"]
RUNS = [("▁" * size, -1e9, NORMAL) for size in (2, 3, 4, 6)]
CHARACTERS = ["▁", "a", "b", "c", "é", "中", "文", "\n"]
PIECES = [
    *SPECIALS,
    *BYTES,
    *((text, -float(rank), NORMAL) for rank, text in enumerate(LEARNED)),
    *RUNS,
    *((text, -100.0 - rank, NORMAL) for rank, text in enumerate(CHARACTERS)),
]
DEFINED = [*PIECES, *((text, 0.0, USER_DEFINED) for text in ("<sep>", "bcb", "▁c", "cb", "▁▁▁▁▁"))]
BPE = {3: 2, 35: 1}
KEEP, NO_PREFIX = {4: 0}, {3: 0, 4: 0}


def varint(number):
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def message(fields):
    """Fields of a message: numbers and bytes."""
    return b"".join(
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields.items()
    )


def model(pieces=PIECES, trainer=BPE, normalizer=KEEP):
    """A file with these pieces: text, score and type."""
    parts = [
        message(
            {1: message({1: text.encode()}) + b"\x15" + struct.pack("<f", score) + b"\x18%c" % kind}
        )
        for text, score, kind in pieces
    ]
    return b"".join([*parts, message({2: message(trainer), 3: message(normalizer)})])


MODELS = {
    "prefix": model(),
    "no prefix": model(normalizer=NO_PREFIX),
    "extra": model(normalizer={}),
    "extra, no prefix": model(normalizer={3: 0}),
    "defined": model(DEFINED),
    "defined, no prefix": model(DEFINED, normalizer=NO_PREFIX),
    "defined, extra": model(DEFINED, normalizer={}),
}
TEXTS = [
    "",
    "abc aab",
    " aaaa  ab中文 中",
    "  ▁ a▁ ▁",
    "a" + " " * 15 + "b c",
    "é\n\nx\x00🙂",
    "<s>abcb<sep>a cbcb c",
    "   ",
]
IDS = {
    "prefix": """
        | 261 277 260 259 | 274 260 265 274 261 266 267 | 272 260 271 | 260 273 273 271 269 277
        | 274 268 281 123 3 243 162 156 133 | 274 63 118 65 263 276 63 118 104 115 65 275 274
        277 262 269 277 | 272
    """,
    "no prefix": """
        | 263 260 259 | 260 265 274 261 266 267 | 271 260 271 | 275 273 273 271 269 277 | 268
        281 123 3 243 162 156 133 | 63 118 65 263 276 63 118 104 115 65 275 274 277 262 269 277
        | 271
    """,
    "extra": """
        | 261 277 260 259 | 260 265 261 266 267 | 270 260 | 260 274 269 277 | 274 268 281 123 3
        243 162 156 133 | 274 63 118 65 263 276 63 118 104 115 65 275 274 277 262 269 277 |
    """,
    "extra, no prefix": """
        | 263 260 259 | 264 264 261 266 267 | 274 260 | 275 274 269 277 | 268 281 123 3 243 162
        156 133 | 63 118 65 263 276 63 118 104 115 65 275 274 277 262 269 277 |
    """,
    "defined": """
        | 261 277 260 259 | 274 260 265 274 261 266 267 | 286 275 271 | 260 286 286 286 276 284
        | 274 268 281 123 3 243 162 156 133 | 274 63 118 65 275 283 282 275 284 283 284 | 272
    """,
    "defined, no prefix": """
        | 263 260 259 | 260 265 274 261 266 267 | 271 260 271 | 275 286 286 286 276 284 | 268
        281 123 3 243 162 156 133 | 63 118 65 275 283 282 275 284 283 284 | 271
    """,
    "defined, extra": """
        | 261 277 260 259 | 260 265 261 266 267 | 270 260 | 260 274 276 284 | 274 268 281 123 3
        243 162 156 133 | 274 63 118 65 275 283 282 275 284 283 284 |
    """,
}
"""The ids of each text, one after another."""


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_streams_equal_sentencepiece(name, engine):
    tokenizer = Tokenizer.from_spec(parse_sentencepiece(MODELS[name]), engine=engine)
    expected = [list(map(int, ids.split())) for ids in IDS[name].split("|")]
    check_every_way(tokenizer, TEXTS, expected, allowed_special="none")
    for text, ids in zip(TEXTS, expected, strict=True):
        check_stream(tokenizer, text, ids, allowed_special="none")


def test_decoding_leaves_out_the_space_before_a_text():
    for name, text in [
        ("prefix", " a  b"),
        ("no prefix", " a  b"),
        ("defined", "▁  <sep>a"),
        ("defined, no prefix", " ▁<sep>a"),
    ]:
        tokenizer = Tokenizer.from_spec(parse_sentencepiece(MODELS[name]))
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")
    tokenizer = Tokenizer.from_spec(parse_sentencepiece(MODELS["extra"]))
    assert tokenizer.decode(tokenizer.encode("  a  b ")) == "a b"


def test_the_tokens_that_a_file_names_are_those_of_its_templates():
    pieces = [*PIECES, ("[END]", 0.0, CONTROL), ("<pad>", 0.0, USER_DEFINED)]
    spec = parse_sentencepiece(model(pieces, {**BPE, 46: b"none", 47: b"[END]"}))
    assert spec.chat.variables == {"unk_token": "<unk>", "eos_token": "[END]"}
    assert find_eos_token(spec) == "[END]"


def test_control_pieces_are_special_and_defined_ones_are_content():
    tokenizer = Tokenizer.from_spec(parse_sentencepiece(MODELS["defined"]))
    assert tokenizer.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert tokenizer.encode("<s><sep>") == [1, 274, 282]
    assert tokenizer.decode([1, 260, 282], skip_special_tokens=True) == "a<sep>"


@pytest.mark.parametrize("name", MODELS)
def test_a_spec_is_read_back_from_its_manifest_or_the_export_is_refused(name):
    spec = parse_sentencepiece(MODELS[name])
    assert build_spec(render_spec_fields(spec), spec.vocab, spec.merges) == spec
    check_round_trip(Tokenizer.from_spec(spec))
    if spec.normalizer.name == "metaspace-steps":
        with pytest.raises(FormatError, match="publish the tokenizer as an artifact"):
            render_tokenizer_json(spec)
    else:
        assert parse_tokenizer_json(render_tokenizer_json(spec)) == spec


def with_piece(text, score=-500.0, kind=NORMAL):
    return model([*PIECES, (text, score, kind)])


REFUSED = {
    "model_type is Unigram": model(trainer={3: 1, 35: 1}),
    "model_type is Char": model(trainer={3: 4, 35: 1}),
    "byte_fallback is false": model(trainer={3: 2}),
    "treat_whitespace_as_suffix is true": model(trainer={**BPE, 24: 1}),
    "normalizer_spec is 'nmt_nfkc' and changes": model(normalizer={1: b"nmt_nfkc", 2: b"x"}),
    "escape_whitespaces is false": model(normalizer={5: 0}),
    "normalizer_spec has the unknown field 9": model(normalizer={9: 1}),
    "denormalizer_spec is 'mine'": model() + message({5: message({1: b"mine", 2: b"x"})}),
    "the unknown field 6": model() + message({6: b""}),
    "piece 282, 'x', is of type UNUSED": with_piece("x", kind=UNUSED),
    "piece 282, 'x', is of type 7": with_piece("x", kind=7),
    "piece 282, 'x', is a character that no text": with_piece("x", kind=CONTROL),
    "piece 282, 'x y', holds a space": with_piece("x y", kind=USER_DEFINED),
    "'x' of the piece 'ax' is no piece itself": with_piece("ax"),
    "the pieces 'abc' and 'ca' have the same score": with_piece("ca", -4.0),
    "a score that is no number": with_piece("ca", float("nan")),
    "the pieces 281 and 282 are both '\\\\n'": with_piece("\n"),
    "there is no piece <0x07>": model([p for p in PIECES if p[0] != "<0x07>"]),
    "byte piece 282 is '<0x7>'": with_piece("<0x7>", kind=BYTE),
    "trainer_spec.model_type has another type": model(trainer={3: b"2"}),
    "within a field": model()[:-1],
    "within a number": model() + b"\xff" * 11,
    "one of no known type": model() + b"\x0b",
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_file_that_cannot_be_read_exactly_is_refused_by_name(message):
    with pytest.raises(FormatError, match=message):
        parse_sentencepiece(REFUSED[message])


def test_a_cut_file_is_refused():
    data = model()
    for size in range(0, len(data), 97):
        with pytest.raises(FormatError, match=r"tokenizer\.model"):
            parse_sentencepiece(data[:size])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(model())
    return tmp_path


def test_a_folder_with_a_model_alone_has_its_ids_and_names(folder):
    assert detect_file(folder / "tokenizer.model").format == "sentencepiece"
    alone = Tokenizer.load(folder / "tokenizer.model").spec
    assert alone.chat.variables == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<s>"}))
    spec = Tokenizer.load(folder).spec
    assert (spec, spec.chat.variables) == (alone, {**alone.chat.variables, "eos_token": "<s>"})
    config = {"add_bos_token": True, "add_eos_token": True, "eos_token": {"content": "<unk>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(folder).encode("a", add_special_tokens=True) == [1, 260, 0]
    (folder / "added_tokens.json").write_text(json.dumps({"<pad>": 282}))
    with pytest.raises(FormatError, match=r"declares the token '<pad>'.*has no such"):
        Tokenizer.load(folder)


def test_a_tokenizer_json_beside_a_model_counts_and_a_difference_is_named(folder, tmp_path):
    spec = parse_sentencepiece(model())
    (folder / "tokenizer.json").write_bytes(render_tokenizer_json(spec))
    with warnings.catch_warnings(action="error"):
        assert Tokenizer.load(folder).spec == spec
    other = parse_sentencepiece(MODELS["no prefix"])
    (folder / "tokenizer.json").write_bytes(render_tokenizer_json(other))
    with pytest.warns(UserWarning, match=r"gives 'a  b' the ids \[275, 270, 276\], and"):
        assert Tokenizer.load(folder).spec == other
    config = {"tokenizer_class": "LlamaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match=r"tokenizer\.model beside it, imported as a file"):
        Tokenizer.load(folder)


def test_a_rank_file_of_that_name_is_read_as_ranks(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    with pytest.raises(FormatError, match="does not say how text is split"):
        Tokenizer.load(tmp_path)
