"""Added tokens: their ids."""

from dataclasses import replace

import pytest

from tokenizer_core import Tokenizer
from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.spec.chat_templates import ChatTemplates


def test_new_special_tokens_go_one_by_one_behind_the_largest_id():
    vocab = {byte: bytes([byte]) for byte in range(256)} | {300: b"ab"}
    tokens = ("<|a|>", AddedToken("<|far|>", 900), "<|b|>", "ab", "<|c|>")
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], tokens)
    assert [token.id for token in spec.added_tokens] == [301, 900, 901, 300, 902]


def test_more_special_tokens_change_nothing_else(tmp_path):
    chat = ChatTemplates({"default": "{{ messages }}"}, stop_tokens=("<|endoftext|>",))
    base = Tokenizer.from_spec(Tokenizer.from_preset("gpt2").spec.with_chat(chat))
    tokenizer = base.with_special_tokens(["<pad>", "<|endoftext|>", "<sep>"])
    assert tokenizer.special_tokens == {"<|endoftext|>": 50256, "<pad>": 50257, "<sep>": 50258}
    assert tokenizer.encode("Hello<sep> world") == [15496, 50258, 995]
    assert tokenizer.spec.chat == chat
    assert tokenizer.spec.model_added_ids == (50256,)
    bytes_only = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
    assert bytes_only.with_special_tokens(["<pad>"]).spec.model_added_ids == ()
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("Hello<pad>") == [15496, 50257]
    with pytest.raises(InvalidSpecError, match=r"'Hello' is a token .* \(id 15496\)"):
        base.with_special_tokens(["Hello"])
    content = Tokenizer.from_spec(
        bytes_only.spec.with_added_tokens([AddedToken("<b>", 300, False)])
    )
    with pytest.raises(
        InvalidSpecError, match=r"'<b>' is an added token already \(id 300\) and not"
    ):
        content.with_special_tokens(["<a>", "<b>"])


@pytest.mark.parametrize("id_", [50256, 50257])
def test_a_changed_spec_is_checked(id_):
    spec = Tokenizer.from_preset("gpt2").spec
    changed = replace(spec, added_tokens=(AddedToken("<pad>", id_),))
    with pytest.raises(InvalidSpecError, match="'<pad>' is not in the vocabulary with id"):
        Tokenizer.from_spec(changed)
