"""Model folders give the ids of `transformers.AutoTokenizer`."""

import json

import pytest

from tests.adversarial import adversarial_texts
from tests.integration.parity.transformers_reader import TransformersReader
from tests.tokenizer_core.formats.model_folders import ACCEPTED, TEXTS, make_folder
from tests.tokenizer_core.formats.small_specs import trained_spec
from tests.tokenizer_core.formats.tokenizer_json.test_metaspace import table_of as metaspace_table
from tests.tokenizer_core.formats.tokenizer_json.test_model import clip
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.any_format import write_files

pytestmark = pytest.mark.skipif(
    not TransformersReader.is_there(), reason="make test-integration installs transformers"
)


def check(folder, texts, *, decodes=True, ids="transformers5"):
    ours = Tokenizer.load(folder, ids=ids)
    theirs = TransformersReader("AutoTokenizer", str(folder))
    batch = theirs.encode(texts)
    assert batch == [ours.encode(text, add_special_tokens=True) for text in texts]
    if decodes:
        assert theirs.decode(batch) == ours.decode_batch(batch, skip_special_tokens=True)


def write(folder, *, table=None, tokenizer_config=None, config=None):
    """The JSON files of a model folder."""
    if table is not None:
        (folder / "tokenizer.json").write_text(json.dumps(table))
    if tokenizer_config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (folder / "config.json").write_text(json.dumps(config or {}))


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_made_folder(name, tmp_path):
    arguments = {"config": {}, **ACCEPTED[name]}
    # A list of extra special tokens makes those of added_tokens.json special in transformers 4 and
    # here, but not in 5.
    decodes = name != "added_tokens_file"
    folder = make_folder(tmp_path / "model", **arguments)
    check(folder, [*adversarial_texts(), *TEXTS], decodes=decodes)


@pytest.mark.parametrize(
    ("rule", "legacy", "model_type"),
    [
        ("metaspace-first", False, "mistral"),
        ("metaspace-prepend", True, "mistral"),
        ("metaspace-prepend", None, "phi3"),
    ],
)
def test_a_prefix_space_of_characters(rule, legacy, model_type, tmp_path):
    """Codestral's and Mistral's folders: transformers 5 reads the file; 4 needs tokenizer.model."""
    config = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True, "legacy": legacy}
    model = {"model_type": model_type}
    write(tmp_path, table=metaspace_table(rule), tokenizer_config=config, config=model)
    check(tmp_path, [*adversarial_texts(), *TEXTS, " a", "  a", "a</s>b </s> c"])
    assert Tokenizer.load(tmp_path) == Tokenizer.load(tmp_path, ids="transformers5")


@pytest.mark.parametrize(
    ("config", "is_read"),
    [
        ({"add_bos_token": True, "add_eos_token": False, "add_prefix_space": None}, True),
        ({}, True),
        ({"add_bos_token": False}, False),
        ({"add_bos_token": True, "add_eos_token": True}, False),
    ],
)
def test_a_folder_of_gemma(config, is_read, tmp_path):
    table = metaspace_table("metaspace")
    declared = {str(t["id"]): {**t} for t in table["added_tokens"]}
    for token in declared.values():
        del token["id"]
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>", "mask_token": "</s>"}
    settings = {"tokenizer_class": "GemmaTokenizer", "added_tokens_decoder": declared, **named}
    model = {"model_type": "gemma2"}
    write(tmp_path, table=table, tokenizer_config=settings | config, config=model)
    if is_read:
        check(tmp_path, [*adversarial_texts(), *TEXTS, " a", "  a", "a</s>b </s> c"])
        write(tmp_path, table=metaspace_table("metaspace-prepend"), config=model)
    with pytest.raises(FormatError, match="more than one tokenizer"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("has_two_files", [False, True])
def test_a_folder_of_clip(has_two_files, tmp_path):
    table = json.loads(clip())
    texts = [*adversarial_texts(), *TEXTS, "<|startoftext|>A <|ENDOFTEXT|> cat"]
    if has_two_files:
        (tmp_path / "vocab.json").write_text(json.dumps(table["model"]["vocab"]))
        merges = "".join(" ".join(pair) + "\n" for pair in table["model"]["merges"])
        (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
        write(tmp_path, config={"model_type": "clip"})
        check(tmp_path, texts, decodes=False)
        return
    start, end = (token["id"] for token in table["added_tokens"])
    ends = {"sep": ["<|endoftext|>", end], "cls": ["<|startoftext|>", start]}
    options = {"trim_offsets": False, "add_prefix_space": False}
    table["post_processor"] = {"type": "RobertaProcessing", **ends, **options}
    tokenizer_config = {"tokenizer_class": "CLIPTokenizer"}
    write(tmp_path, table=table, tokenizer_config=tokenizer_config, config={"model_type": "clip"})
    check(tmp_path, texts, decodes=False)
    table["normalizer"] = None
    write(tmp_path, table=table, config={"model_type": "clip"})
    with pytest.raises(FormatError, match=r"more than one tokenizer \(the normalizer"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("GPT2Tokenizer", {"add_prefix_space": True}),
        ("GPT2Tokenizer", {"add_bos_token": True, "bos_token": "</s>"}),  # OPT
        ("GPTNeoXTokenizer", {"add_bos_token": True, "add_eos_token": True}),
        ("Qwen2Tokenizer", {}),
        ("RobertaTokenizer", {}),
    ],
)
def test_a_folder_of_two_files(kind, more, tmp_path):
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>", "<mask>"]
    spec = trained_spec(60, special_tokens=specials)
    write_files("gpt2", spec, tmp_path / "vocab.json", tmp_path / "merges.txt")
    config = {"tokenizer_class": kind, "pad_token": "<pad>", "mask_token": "<mask>"}
    write(tmp_path, tokenizer_config=config | {"add_prefix_space": False} | more)
    check(tmp_path, [*adversarial_texts(), *TEXTS])
    if kind not in ("Qwen2Tokenizer", "GPTNeoXTokenizer"):  # NFC may change the token
        (tmp_path / "added_tokens.json").write_text(json.dumps({"<tool>": 322}))
        check(tmp_path, TEXTS)
