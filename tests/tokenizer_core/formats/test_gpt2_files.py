"""GPT-2's vocab.json and merges.txt."""

import json
import re

import pytest
import tokenizers

from tests.tokenizer_core.formats.small_specs import TRAINING_TEXT, chain_spec, trained_spec
from tokenizer_core import Tokenizer, formats
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import byte_to_unicode, load_gpt2_files, save_gpt2_files
from tokenizer_core.formats.gpt2_files import (
    parse_merges_txt,
    parse_token,
    parse_tokens,
    parse_vocab_json,
    render_token,
)
from tokenizer_core.spec import TokenizerSpec


def test_the_alphabet_is_gpt2_s():
    table = byte_to_unicode()
    assert len(table) == len(set(table.values())) == 256
    assert all(table[b] == chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)])
    assert (table[0], table[32], table[127], table[160], table[173]) == ("Ā", "Ġ", "ġ", "ł", "Ń")
    everything = bytes(range(256)) * 2
    assert parse_token(render_token(everything)) == everything
    assert parse_token("€") is None
    assert parse_tokens([]) == []
    assert parse_tokens(["", "é", "€", "Ġ€", "\ud800"]) == [b"", b"\xe9", None, None, None]


def test_hugging_face_takes_a_merge_of_version_for_a_comment(tmp_path):
    """Why such a merge is neither written nor read: another reader would give other ids."""
    spec = chain_spec("#versions")
    vocab = {render_token(token): id_ for id_, token in spec.vocab.items()}
    lines = ["#version: 0.2", *(f"{a.decode()} {b.decode()}" for a, b in spec.merges)]
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    paths[0].write_text(json.dumps(vocab))
    paths[1].write_text("\n".join(lines))
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*map(str, paths)))
    assert theirs.encode("#versions").tokens == ["#version", "s"]
    with pytest.raises(FormatError, match=r"line 9, '#version s', begins with #version"):
        parse_merges_txt(paths[1].read_bytes())


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
    ("parse", "text", "message"),
    [
        (parse_vocab_json, '{"a": 0, "a": 1}', "key 'a' twice"),
        (parse_vocab_json, '{"a": 0, "b": 0}', "id 0 stands for two tokens"),
        (parse_vocab_json, '{"a": -1}', "no integer"),
        (parse_vocab_json, '{"a": 1048576}', "no integer"),
        (parse_vocab_json, '{"a b": 1}', "byte alphabet"),
        (parse_vocab_json, "[]", "JSON object"),
        (parse_vocab_json, "{", "not JSON"),
        (parse_vocab_json, "\ufeff{}", "byte order mark"),
        (parse_merges_txt, "#version: 0.2\na b\na\n", "line 3"),
        (parse_merges_txt, "a b c\n", "line 1"),
        (parse_merges_txt, " a\n", "line 1"),
        (parse_merges_txt, "a b\n\nc d\n", "line 2"),
        (parse_merges_txt, "a b\rc d\n", "line 1"),
        (parse_merges_txt, "a b\r\nc d\r", "line 2"),
        (parse_merges_txt, "a b\r\r\nc d\r\n", "line 1"),
        (parse_merges_txt, "a b\n#version: 0.2 x\n", "line 2"),
        (parse_merges_txt, "a €\n", "line 1"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(parse, text, message):
    with pytest.raises(FormatError, match=message):
        parse(text.encode())


def test_merges_without_version_or_last_newline_and_of_number_signs():
    assert parse_merges_txt(b"# #\n## ##") == [(b"#", b"#"), (b"##", b"##")]
    assert parse_merges_txt(b"#version: 0.2\n") == []
    assert parse_merges_txt(b"#version: 0.2\r\na b\r\n# #\n") == [(b"a", b"b"), (b"#", b"#")]
    assert parse_vocab_json(b'{"": 1, "a": 0}') == {1: b"", 0: b"a"}
    with pytest.raises(FormatError, match="not UTF-8: invalid bytes at offset 2"):
        parse_vocab_json(b'{"\xff": 1}')
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_merges_txt(b"a \xff\n")


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
