"""Plans of token files are possible, and manifests are sealed, strict and consistent."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, NARROW, WIDE, write_texts
from tests.tokenizer_core.formats.small_specs import BYTES
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.corpus import TokenManifest, plan_token_files
from tokenizer_core.corpus.token_manifest import _FORMAT, render_plan
from tokenizer_core.documents import CorpusSource
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError
from tokenizer_core.registry import ArtifactRef


@pytest.fixture(scope="module", params=["raw", "megatron"])
def manifest(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t") / "t"
    written = write_texts(folder, request.param, WIDE, seed=5)
    return dataclasses.replace(written, sources=(CorpusSource("a b.txt", 9, "f" * 64),))


def test_a_manifest_is_read_back_from_json(manifest):
    data = manifest.to_json()
    assert TokenManifest.from_json(data) == manifest
    assert TokenManifest.from_json(data).to_json() == data
    fields = json.loads(data)
    assert (fields["format"], fields["format_version"]) == ("token-files", 1)


def places(value, path=()):
    """The path of every value in nested dicts and lists."""
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed_at(fields, path, change):
    fields = json.loads(json.dumps(fields))
    inner = fields
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return fields


def test_every_field_that_is_missing_or_of_another_type_is_refused(manifest):
    fields = _FORMAT.parse(manifest.to_json())
    n_checked = 0
    for path in places(fields):
        for change in (dict.pop if isinstance(path[-1], str) else list.pop, put(1.5), put({})):
            # A manifest with one source or split less is equally valid.
            if change is list.pop and (path[0] in ("sources", "special_tokens") or len(path) == 2):
                continue
            found = changed_at(fields, path, change)
            if found == fields:
                continue
            # Nor can it check which special tokens the texts held.
            name = "special_tokens_found"
            if path[2:3] == (name,) and found["splits"][path[1]].get(name) == {}:
                continue
            if found == fields or found.get("encoding") == {}:
                continue
            n_checked += 1
            with pytest.raises(TokenFilesCorruptError):
                TokenManifest.from_json(_FORMAT.render(found))
    assert n_checked > 100


def put(value):
    def change(inner, key):
        inner[key] = value

    return change


CONTRADICTIONS = [
    (("tokens_per_shard",), 6),
    (("tokens_per_shard",), None),
    (("layout",), "csv"),
    (("dtype",), "uint16"),
    (("dtype",), "int64"),
    (("end_of_document_id",), 70_001),
    (("end_of_document",), "<|end|>"),
    (("begin_of_document_id",), -1),
    (("tokenizer", "fingerprint"), "0" * 63),
    (("sources", 0, "sha256"), "G" * 64),
    (("sources", 0, "size_bytes"), -1),
    (("splits", 0, "name"), "test"),
    (("splits", 0, "name"), "validation"),
    (("splits", 0, "n_tokens"), 5),
    (("splits", 0, "n_documents"), 4),
    (("splits", 0, "n_bytes"), -1),
    (("splits", 0, "shards"), []),
    (("splits", 0, "shards", 0, "files", 0, "file"), "../train_000000.bin"),
    (("splits", 0, "shards", 0, "files", 0, "size_bytes"), 1),
    (("splits", 0, "document_ends", "file"), "manifest.json"),
    (("splits", 0, "document_ends", "sha256"), ""),
    (("splits", 0, "token_use", "file"), "val.token-use.u64"),
    (("splits", 0, "token_use", "size_bytes"), 8),
    (("splits", 0, "special_tokens_found"), {"<|begin|>": 0}),
    (("splits", 0, "special_tokens_found"), {"<|none|>": 1}),
    (("splits", 0, "special_tokens_found"), {"<|end|>": 1000}),
    (("special_tokens", "recognised", 0, "id"), 70_001),
    (("splits",), []),
    (("document_encoder",), {"loss": "role"}),  # without a mask
    (("compression",), "zstd"),
]


@pytest.mark.parametrize(("path", "value"), CONTRADICTIONS, ids=str)
def test_fields_that_contradict_each_other_are_refused(path, value, manifest):
    fields = _FORMAT.parse(manifest.to_json())
    if path == ("tokens_per_shard",) and value == 6 and fields["layout"] == "megatron":
        return  # its shards may have any size
    with pytest.raises(TokenFilesCorruptError, match="write the token files anew"):
        TokenManifest.from_json(_FORMAT.render(changed_at(fields, path, put(value))))


@pytest.mark.parametrize(
    ("largest_id", "dtype"), [(256, "uint16"), (65_535, "uint16"), (65_536, "uint32")]
)
def test_the_width_depends_on_the_largest_id_not_on_the_count(largest_id, dtype):
    spec = TokenizerSpec.from_merges(BYTES, [], [AddedToken("<|x|>", largest_id)])
    tokenizer = Tokenizer.from_spec(spec)
    assert plan_token_files(tokenizer, end_of_document="").dtype == dtype
    assert plan_token_files(tokenizer, end_of_document="", dtype="uint32").dtype == "uint32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "uint16", "tokenizer": WIDE}, "is 70000, and uint16 ends at 65535; take"),
        ({"allowed_special": {"<|x|>"}}, "allowed_special names"),
        ({"dtype": "int64"}, "no dtype 'int64'.*take auto, uint16 or uint32"),
        ({"layout": "csv"}, "named 'csv'; there are raw, npy, megatron, parquet, llmc"),
        ({"layout": "parquet"}, "the layout parquet needs the extra parquet; pip install"),
        ({"tokens_per_shard": 0}, "tokens_per_shard is 0; in the layout raw it must be at least 1"),
        ({"tokens_per_shard": -1}, "must be at least 1"),
        ({"layout": "llmc", "tokens_per_shard": 1 << 30}, "be between 1 and 1073741312"),
        ({"end_of_document": "<|eot|>"}, r"no .* '<\|eot\|>' .*has '<\|begin\|>', '<\|end\|>'"),
        ({"begin_of_document": "ab"}, "no special token 'ab'"),
        ({"end_of_document": None}, "has none, .*; name .* with --end-of-document .*'' for none"),
        ({"max_length": 1, "end_of_document": "<|end|>"}, "must be at least 2"),
        ({"max_length": 0}, "must be at least 1"),
        ({"max_length": 9, "over_length": "wrap"}, "take truncate or drop"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2.0}, "seed is a whole number, not 2.0"),
        ({"max_length": True}, "max_length is a whole number, not True"),
        ({"tokens_per_shard": 50.0}, "tokens_per_shard is a whole number"),
        ({"loss_mask": 1}, "loss_mask is True or False, not 1"),
    ],
)
def test_an_impossible_plan_is_refused(options, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=message) as raised:
        plan_token_files(**{"tokenizer": NARROW, "end_of_document": ""} | options)
    if "allowed_special" not in options:
        assert isinstance(raised.value, TokenFilesPlanError)
        assert raised.value.code == "invalid_token_files_plan"


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "end", "not_added"),
    [
        ("vocab/llama3_1.tokenizer.json", "<|end_of_text|>", ["<|begin_of_text|>"]),
        ("vocab/qwen3.tokenizer.json", "<|endoftext|>", []),
        ("vocab_open/deepseek_v3.tokenizer.json", "<｜end▁of▁sentence｜>", []),
        ("vocab_open/mistral01.tokenizer.json", "</s>", ["<s>"]),
        ("vocab_open/tekken_240911.json", "</s>", []),
        ("vocab_open/roberta.tokenizer.json", "</s>", ["<s>"]),
    ],
)
def test_public_vocabularies_have_their_document_end(name, end, not_added, shared_data):
    tokenizer = Tokenizer.load(shared_data / name)
    plan = plan_token_files(tokenizer, layout="megatron")
    found = (plan.end_of_document, plan.end_of_document_id, list(plan.not_added))
    assert found == (end, tokenizer.special_tokens[end], not_added)
    assert plan.end_reason == "the only known document end of the vocabulary"


@pytest.mark.shared_data
def test_a_vocabulary_whose_eos_is_no_document_end_needs_the_option(shared_data):
    modern = Tokenizer.load(shared_data / "vocab_open/modernbert.tokenizer.json")
    with pytest.raises(TokenFilesPlanError, match=r"'<\|endoftext\|>', and its eos is '\[SEP\]'"):
        plan_token_files(modern)
    plan = plan_token_files(modern, begin_of_document="[CLS]", end_of_document="")
    assert plan.end_in_words == "no token ends a document: as the options say; not added: [SEP]"
    assert (plan.end_of_document_id, plan.begin_of_document_id) == (None, 50281)


def test_the_numbers_of_numpy_become_those_of_python():
    given = {"seed": 3, "tokens_per_shard": 50, "max_length": 20}
    numbers = {name: np.int64(value) for name, value in given.items()}
    of_numpy = plan_token_files(NARROW, loss_mask=np.True_, **numbers)
    assert render_plan(of_numpy) == render_plan(plan_token_files(NARROW, loss_mask=True, **given))


def test_the_plan_names_the_tokenizer_and_its_settings():
    ref = ArtifactRef("t", "20261121T041500Z-1a2b3c4d", NARROW.spec.fingerprint)
    around = {"begin_of_document": "<|begin|>", "end_of_document": "<|end|>"}
    special = {"allowed_special": {"<|end|>"}, "disallowed_special": "all"}
    plan = plan_token_files(NARROW, **around, **special, seed=3, ref=ref)
    assert (plan.begin_of_document_id, plan.end_of_document_id, plan.seed) == (257, 258, 3)
    assert plan.end_in_words == "the token '<|end|>' ends a document: as the options say"
    assert plan.recognised_special == ("<|end|>",)
    assert plan.forbidden_special == ("<|begin|>",)
    identity = plan.tokenizer
    assert identity.pattern == NARROW.spec.pattern
    assert (identity.vocab_size, identity.largest_id) == (259, 258)
    assert str(identity) == f"{ref}, fingerprint {ref.digest[:12]}"


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_the_names_of_the_files_sort_in_their_order(layout):
    plan = plan_token_files(WIDE, end_of_document="", layout=layout, tokens_per_shard=5)
    names = [plan.file_names("train", index)[0] for index in range(1001)]
    assert names == sorted(names)
    assert names[0].startswith("train_000000.")
    more = {"megatron": ["idx"], "parquet": ["parquet"]}.get(layout, [])
    suffixes = ["npy" if layout == "npy" else "bin", *more]
    one = plan_token_files(NARROW, end_of_document="", layout=layout)
    sharded = layout == "llmc"  # in files of at most a hundred million ids
    assert (one.tokens_per_shard == 100_000_000) is sharded
    stem = "val_000000" if sharded else "val"
    assert one.file_names("validation", 0) == [f"{stem}.{suffix}" for suffix in suffixes]
