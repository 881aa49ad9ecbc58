"""Checks of `tokenizer_core.compat.transformers`, run by `test_transformers.py`."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
import tokenizers
import transformers

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.formats.model_folders import CHAT_CASES, make_chat_folder
from tests.tokenizer_core.formats.small_specs import character_spec, trained_spec
from tokenizer_core import Tokenizer
from tokenizer_core.compat.transformers import PreTrainedTokenizerFast
from tokenizer_core.conversion import convert_spec
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json.document import render_tokenizer_json
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates

END = "<|endoftext|>"
# Type ids of one text, and a pair that is not each text with the tokens around it.
TYPES = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 1}},
        {"SpecialToken": {"id": END, "type_id": 2}},
    ],
    "pair": [{"Sequence": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 3}}],
    "special_tokens": {END: {"id": END, "ids": [356], "tokens": [END]}},
}
SPECS = {
    "plain": trained_spec(),
    "nfc": trained_spec(normalizer="nfc", pattern="cl100k"),
    "around": trained_spec(prefix_ids=(356,), suffix_ids=(356,)),
    "types": trained_spec(suffix_ids=(356,), post_processor=TYPES),
    "content": trained_spec(
        special_tokens=[END, AddedToken("<think>", 400, special=False), AddedToken("<m>", 401)]
    ),
    "flags": trained_spec(special_tokens=[END, AddedToken("<m>", 400, lstrip=True)]),
    "characters": character_spec(),
}
SOME = ["nfc", "around", "types", "characters"]
TEXTS = ["the house", "", f"a{END}b <think> <m>the", "e\u0301 東京 👩‍👩‍👧", " the  end\n\n" * 9]


def both(spec, **options):
    """Our class and the one it replaces, for one tokenizer."""
    ours = PreTrainedTokenizerFast.from_tokenizer(Tokenizer.from_spec(spec), **options)
    backend = tokenizers.Tokenizer.from_buffer(render_tokenizer_json(spec))
    named = {name: str(value) for name, value in ours.special_tokens_map.items()}
    return ours, transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **named | options)


def plain(encoded):
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in encoded.items()
    }


@pytest.mark.parametrize("name", SPECS)
def test_ids_of_hard_texts(name):
    ours, theirs = both(SPECS[name])
    texts = [*TEXTS, *adversarial_texts(longest=600, n_random=60)]
    assert ours(texts)["input_ids"] == theirs(texts)["input_ids"]
    for text in texts:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.encode(text) == ours.exact.encode(text, add_special_tokens=True)


@pytest.mark.parametrize(
    ("name", "padding_side", "truncation_side"),
    [
        ("plain", "right", "right"),
        ("around", "left", "left"),
        ("content", "right", "left"),
        ("characters", "left", "right"),
    ],
)
def test_padding_truncation_masks_and_arrays(name, padding_side, truncation_side):
    sides = {"padding_side": padding_side, "truncation_side": truncation_side}
    ours, theirs = both(SPECS[name], pad_token="<s>" if name == "characters" else END, **sides)
    names = ("padding", "truncation", "max_length", "add_special_tokens", "pad_to_multiple_of")
    modes = product((False, True, "max_length"), (False, True, "only_first"))
    for mode, length, others in product(modes, (None, 1, 3, 64), ((True, None), (False, 8))):
        options = dict(zip(names, (*mode, length, *others), strict=True))
        if length is None and (options["padding"] == "max_length" or options["truncation"]):
            continue
        for text in (TEXTS, TEXTS[2], "", TEXTS[:1]):
            assert outcome(ours, text, options) == outcome(theirs, text, options), options
    arrays = ours(TEXTS, padding=True, return_tensors="np")
    assert arrays["attention_mask"].shape == arrays["input_ids"].shape
    assert plain(arrays) == plain(theirs(TEXTS, padding=True, return_tensors="np"))
    assert plain(ours("the", return_tensors="np")) == plain(theirs("the", return_tensors="np"))


def outcome(tokenizer, text, options):
    try:
        return plain(tokenizer(text, **options))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", SOME)
def test_what_needs_more_than_ids(name):
    ours, theirs = both(SPECS[name])
    for options in (
        {"return_offsets_mapping": True},
        {"return_special_tokens_mask": True},
        {"return_length": True},
        {"return_token_type_ids": True},
        {"return_attention_mask": False},
        {"return_overflowing_tokens": True, "max_length": 4, "truncation": True, "stride": 1},
        {"text_pair": TEXTS[::-1]},
        {"split_special_tokens": True},
        {"truncation": True, "max_length": 6, "stride": 2},
        {"stride": 5},
    ):
        assert plain(ours(TEXTS, **options)) == plain(theirs(TEXTS, **options)), options
    words = [["the", " house"], ["a"]]
    split = theirs(words, is_split_into_words=True)
    assert plain(ours(words, is_split_into_words=True)) == plain(split)
    assert ours("the end", return_offsets_mapping=True).tokens() == theirs("the end").tokens()
    ids = theirs(TEXTS)["input_ids"]
    for skip in (False, True):
        texts = theirs.batch_decode(ids, skip_special_tokens=skip)
        assert ours.batch_decode(ids, skip_special_tokens=skip) == texts
    tokens = theirs.tokenize(TEXTS[2])
    assert ours.tokenize(TEXTS[2]) == tokens
    assert ours.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    assert (len(ours), ours.get_vocab()) == (len(theirs), theirs.get_vocab())


def test_a_chat_with_the_mask_of_its_assistant():
    ours, theirs = both(SPECS["plain"], pad_token=END)
    template = (
        "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    chat = [{"role": "user", "content": "the"}, {"role": "assistant", "content": "the house"}]
    asked = {"return_dict": True, "return_assistant_tokens_mask": True}
    for options in (
        {},
        {"padding": True, "return_tensors": "np"},
        {"tokenizer_kwargs": {"return_offsets_mapping": True}},
    ):
        for chats in ([chat], [chat, [*chat, *chat]]):
            options |= {"chat_template": template, **asked}
            found = plain(ours.apply_chat_template(chats, **options))
            assert found == plain(theirs.apply_chat_template(chats, **options))
            assert 1 in found["assistant_masks"][0]


def test_added_tokens_and_ends_are_followed(tmp_path):
    ours, theirs = both(SPECS["plain"], bos_token=END)
    for tokenizer in (ours, theirs):
        tokenizer("warm")
        tokenizer.add_tokens(["<new>"])
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
        tokenizer.add_bos_token = True
    text = f"a<new> b<pad>c{END}"
    ids = ours(text)["input_ids"]
    assert ids == theirs(text)["input_ids"]
    assert ids[0] == 356
    assert 357 in ids
    ours.save_pretrained(tmp_path / "saved")
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), again):
        assert copied(text)["input_ids"] == ids
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    with pytest.raises(FormatError, match="WordLevel"):
        PreTrainedTokenizerFast(tokenizer_object=backend)("a")


def change_normalizer(backend):
    backend.normalizer = tokenizers.normalizers.Lowercase()


def change_model_in_place(backend):
    backend.model.ignore_merges = True
    backend.model.dropout = 1.0  # no merge at all: the library refuses it


@pytest.mark.parametrize(
    ("change", "times"),
    [(change_normalizer, 8_000), (change_model_in_place, 1)],
)
def test_a_change_of_the_backend_is_noticed(change, times):
    ours, theirs = both(SPECS["plain"])
    text = "THE end, the house " * times
    before = ours(text)["input_ids"]
    held = ours.backend_tokenizer
    assert ours(text)["input_ids"] == before
    change(held)
    change(theirs.backend_tokenizer)
    after = ours(text)["input_ids"]
    assert after == theirs(text)["input_ids"]
    assert after != before


@pytest.mark.parametrize("name", SOME)
def test_a_converted_folder_is_loaded_by_auto_tokenizer(name, tmp_path):
    spec = SPECS[name]
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    chat = ChatTemplates({"default": template, "rag": "{{ eos_token }}"})
    convert_spec(spec.with_chat(chat), "transformers", tmp_path / "m")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ours = PreTrainedTokenizerFast.from_pretrained(tmp_path / "m")
    exact = Tokenizer.from_spec(spec)
    assert ours.exact == exact
    for text in TEXTS:
        assert auto.encode(text) == ours.encode(text) == exact.encode(text, add_special_tokens=True)
    assert auto.chat_template == ours.chat_template == chat.sources
    assert ours.from_tokenizer(Tokenizer.load(tmp_path / "m")).chat_template == chat.sources
    if name != "characters":
        assert auto.eos_token == ours.eos_token == END
        messages = [{"role": "user", "content": "the end"}]
        ids = ours.apply_chat_template(messages)["input_ids"]
        assert ids == auto.apply_chat_template(messages)["input_ids"]
        expected = exact.encode(f"user: the end{END}")
        assert ids == expected


@pytest.mark.parametrize("name", CHAT_CASES)
def test_the_templates_of_a_folder(name, tmp_path):
    folder = make_chat_folder(tmp_path / "model", CHAT_CASES[name])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    found = theirs.chat_template or {}
    assert CHAT_CASES[name].templates == ({"default": found} if isinstance(found, str) else found)
    assert CHAT_CASES[name].variables == theirs.special_tokens_map
