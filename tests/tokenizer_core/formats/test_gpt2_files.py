"""GPT-2's vocab.json and merges.txt."""

import json
import re
from pathlib import Path

import pytest
import tokenizers

from tests.tokenizer_core.formats.small_specs import (
    TRAINING_TEXT,
    chain_spec,
    trained_spec,
    wild_ranks,
)
from tokenizer_core import Tokenizer, formats
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import byte_to_unicode, gpt2_files, load_gpt2_files, save_gpt2_files
from tokenizer_core.formats.gpt2_files import (
    parse_merges_txt,
    parse_token,
    parse_tokens,
    parse_vocab_json,
    render_token,
)
from tokenizer_core.spec import AddedToken, TokenizerSpec


def test_the_alphabet_is_gpt2_s():
    table = byte_to_unicode()
    assert len(table) == len(set(table.values())) == 256
    assert all(table[b] == chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)])
    assert (table[0], table[32], table[127], table[160], table[173]) == ("Ā", "Ġ", "ġ", "ł", "Ń")


def test_every_byte_goes_there_and_back():
    everything = bytes(range(256)) * 2
    assert parse_token(render_token(everything)) == everything
    assert parse_token("€") is None


def in_hugging_face(folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    )


def test_hugging_face_takes_a_merge_of_version_for_a_comment(tmp_path):
    """Why such a merge is neither written nor read: another reader would give other ids."""
    spec = chain_spec("#versions")
    vocab = {render_token(token): id_ for id_, token in spec.vocab.items()}
    lines = ["#version: 0.2", *(f"{a.decode()} {b.decode()}" for a, b in spec.merges)]
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    assert in_hugging_face(tmp_path).encode("#versions").tokens == ["#version", "s"]
    with pytest.raises(FormatError, match=r"line 9, '#version s', begins with #version"):
        parse_merges_txt((tmp_path / "merges.txt").read_bytes())


def test_hugging_face_finds_no_special_token_that_is_spelt_otherwise(tmp_path):
    """Why it is not written: a reader looks up the decoded token in vocab.json."""
    tokens = ["<|end|>", "<中>"]
    spec = trained_spec(special_tokens=tokens)
    vocab = {render_token(token): id_ for id_, token in spec.vocab.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    theirs = in_hugging_face(tmp_path)
    theirs.add_special_tokens(tokens)
    assert theirs.encode("<|end|><中>").ids == [356, 358]  # not 357


def test_what_is_saved_is_loaded(tmp_path):
    spec = trained_spec()
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2_files(spec, *paths)
    vocab, merges = load_gpt2_files(*paths)
    again = TokenizerSpec.from_merges(vocab, merges, ["<|endoftext|>"])
    assert again.fingerprint == spec.fingerprint
    assert paths[1].read_text(encoding="utf-8").startswith("#version: 0.2\n")


def test_ranks_are_saved_as_merges_that_give_the_same_ids(tmp_path):
    trained = trained_spec()
    ranks = dict(trained.token_to_id)
    spec = TokenizerSpec.from_ranks(ranks, trained.special_tokens, pattern="gpt2")
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2_files(spec, *paths)
    vocab, merges = load_gpt2_files(*paths)
    assert merges == list(trained.merges)
    ours = Tokenizer(vocab, merges, ["<|endoftext|>"])
    assert ours.encode(TRAINING_TEXT) == Tokenizer.from_spec(spec).encode(TRAINING_TEXT)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (trained_spec(normalizer="nfc"), "normalized"),
        (
            trained_spec(special_tokens=[AddedToken("<m>", 356, lstrip=True)]),
            "'<m>' has the flag lstrip",
        ),
        (trained_spec(ignore_merges=True), "ignore_merges"),
        (TokenizerSpec.from_ranks(wild_ranks(3), pattern="gpt2"), "not made by any merge"),
        (TokenizerSpec.from_merges({i: bytes([i % 256]) for i in range(257)}, []), "same bytes"),
        (trained_spec(special_tokens=["<中>"]), "'<中>' has characters that"),
        (trained_spec(special_tokens=["<|a b|>"]), "has characters that"),
        (chain_spec("#version 3", pattern="llama3"), "#version Ġ' looks like"),
    ],
)
def test_what_the_format_cannot_say_is_refused(spec, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        save_gpt2_files(spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_token_is_read():
    assert parse_vocab_json(b'{"": 1, "a": 0}') == {1: b"", 0: b"a"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 0, "a": 1}', "key 'a' twice"),
        ('{"a": 0, "b": 0}', "id 0 stands for two tokens"),
        ('{"a": true}', "no integer"),
        ('{"a": 1.0}', "no integer"),
        ('{"a": "1"}', "no integer"),
        ('{"a": -1}', "no integer"),
        ('{"a": 1048576}', "no integer"),
        ('{"a": null}', "no integer"),
        ('{"a b": 1}', "byte alphabet"),
        ('{"▁the": 1}', "byte alphabet"),
        ('{"a": NaN}', "NaN"),
        ("[]", "JSON object"),
        ("null", "JSON object"),
        ('{"a": 1', "not JSON"),
        ("", "not JSON"),
        ("\ufeff{}", "byte order mark"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": ' + "9" * 5000 + "}", "4,300 digits"),
        ('{"\\ud800": 1}', "lone surrogate"),
    ],
)
def test_a_wrong_vocabulary_is_refused_with_the_reason(text, message):
    with pytest.raises(FormatError, match=message):
        parse_vocab_json(text.encode())


def test_a_vocabulary_that_is_not_utf8_is_refused():
    with pytest.raises(FormatError, match="not UTF-8: invalid bytes at offset 2"):
        parse_vocab_json(b'{"\xff": 1}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#version: 0.2\na b\na\n", "line 3"),
        ("a b c\n", "line 1"),
        ("a  b\n", "line 1"),
        (" a\n", "line 1"),
        ("a b\n\nc d\n", "line 2"),
        ("a b\rc d\n", "line 1"),
        ("a b\r\nc d\r", "line 2"),
        ("a b\r\r\nc d\r\n", "line 1"),
        ("a\tb\n", "line 1"),
        ("a b\n#version: 0.2 x\n", "line 2"),
        ("a €\n", "line 1"),
    ],
)
def test_wrong_merges_are_refused_with_the_line(text, message):
    with pytest.raises(FormatError, match=message):
        parse_merges_txt(text.encode())


def test_merges_with_line_ends_of_windows_are_those_that_tokenizers_reads(tmp_path):
    vocab = {"#": 0, "a": 1, "b": 2, "ab": 3, "##": 4}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    merges = b"#version: 0.2\r\na b\r\n# #\n"
    (tmp_path / "merges.txt").write_bytes(merges)
    paths = str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    _, theirs = tokenizers.models.BPE.read_file(*paths)
    assert [tuple(part.encode() for part in pair) for pair in theirs] == parse_merges_txt(merges)


def test_merges_without_version_or_last_newline_and_of_number_signs():
    assert parse_merges_txt(b"# #\n## ##") == [(b"#", b"#"), (b"##", b"##")]
    assert parse_merges_txt(b"#version: 0.2\n") == []
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_merges_txt(b"a \xff\n")


@pytest.mark.shared_data
def test_gpt2_itself(shared_data, tmp_path):
    folder = shared_data / "cs336"
    vocab, merges = load_gpt2_files(folder / "gpt2_vocab.json", folder / "gpt2_merges.txt")
    assert (len(vocab), len(merges)) == (50257, 50000)
    assert vocab[50256] == b"<|endoftext|>"
    assert merges[0] == (b" ", b"t")
    spec = TokenizerSpec.from_merges(vocab, merges, ["<|endoftext|>"])
    save_gpt2_files(spec, tmp_path / "v.json", tmp_path / "m.txt")
    assert json.loads((tmp_path / "v.json").read_text(encoding="utf-8")) == json.loads(
        (folder / "gpt2_vocab.json").read_text(encoding="utf-8")
    )
    given = (folder / "gpt2_merges.txt").read_text(encoding="utf-8")
    assert (tmp_path / "m.txt").read_text(encoding="utf-8") == f"#version: 0.2\n{given}"


def test_many_tokens_at_once_are_those_of_one_by_one():
    characters = [chr(code) for code in (*range(0x250), 0x20AC, 0xD800, 0x1F642)]
    texts = [
        *characters,
        "",
        "Ġthe",
        "a b",
        "Ġ" * 40,
        "",
        "aé😀",
        *map("x{}y".format, characters),
        "",
    ]
    assert parse_tokens(texts) == [parse_token(text) for text in texts]
    assert parse_tokens([]) == []
    assert parse_tokens([""]) == [b""]


def test_a_vocabulary_is_parsed_once_and_its_merges_together(tmp_path, monkeypatch):
    vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2_files(trained_spec(20), vocab, merges)
    expected = load_gpt2_files(vocab, merges)
    monkeypatch.setattr(formats, "detect_format", None)
    monkeypatch.setattr(gpt2_files, "_parse_each_merge", None)
    assert formats.load_vocab_and_merges(vocab, merges) == expected


@pytest.mark.parametrize("special", ["<|début|>", "é"])
def test_a_special_token_that_vocab_json_spells_as_it_is_has_no_other_id(special, tmp_path):
    """`tokenizers` writes it so, where the alphabet would spell its UTF-8."""
    spec = trained_spec(20, special_tokens=[])
    save_gpt2_files(spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    table = json.loads((tmp_path / "vocab.json").read_bytes())
    table.setdefault(special, len(table))
    (tmp_path / "vocab.json").write_text(json.dumps(table))
    with pytest.raises(FormatError, match=f"'{re.escape(special)}' is an entry of vocab.json"):
        Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [special])
    others = ["<|début|é>", "中"]  # not in the file: they get ids of their own
    spec = formats.load_files_spec(tmp_path / "vocab.json", tmp_path / "merges.txt", others)
    assert list(spec.special_tokens.values()) == [len(table), len(table) + 1]
