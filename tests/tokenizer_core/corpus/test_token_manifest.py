"""The manifest of token files: sealed, strict, and consistent."""

import dataclasses
import json

import pytest

from tests.tokenizer_core.corpus.small_corpora import WIDE, write_texts
from tokenizer_core.corpus import TokenManifest
from tokenizer_core.corpus.token_manifest import _FORMAT
from tokenizer_core.errors import TokenFilesCorruptError
from tokenizer_core.training.pretoken_counts import CorpusSource


@pytest.fixture(scope="module", params=["raw", "megatron"])
def manifest(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t") / "t"
    written = write_texts(folder, request.param, WIDE, seed=5)
    return dataclasses.replace(written, sources=(CorpusSource("a b.txt", 9, "f" * 64),))


def test_to_json_and_back(manifest):
    data = manifest.to_json()
    assert TokenManifest.from_json(data) == manifest
    assert TokenManifest.from_json(data).to_json() == data
    fields = json.loads(data)
    assert (fields["format"], fields["format_version"]) == ("token-files", 1)


def places(value, path=()):
    """The path of every value in nested dicts and lists."""
    yield path
    if not isinstance(value, (dict, list)):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
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
        if not path:
            continue
        for change in (dict.pop if isinstance(path[-1], str) else list.pop, put(1.5), put({})):
            # A manifest with one source or split less is equally valid.
            if change is list.pop and (path[0] in ("sources", "special_tokens") or len(path) == 2):
                continue
            found = changed_at(fields, path, change)
            # Nor can it check which special tokens the texts held.
            if (
                path[2:3] == ("special_tokens_found",)
                and found["splits"][path[1]].get(path[2]) == {}
            ):
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
    (("splits", 0, "shards", 0, "n_tokens"), 0),
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
]


@pytest.mark.parametrize(("path", "value"), CONTRADICTIONS, ids=str)
def test_fields_that_contradict_each_other_are_refused(path, value, manifest):
    fields = _FORMAT.parse(manifest.to_json())
    if path == ("tokens_per_shard",) and value == 6 and fields["layout"] == "megatron":
        return  # its shards may have any size
    with pytest.raises(TokenFilesCorruptError, match="write the token files anew"):
        TokenManifest.from_json(_FORMAT.render(changed_at(fields, path, put(value))))


def test_unknown_fields_are_refused(manifest):
    fields = _FORMAT.parse(manifest.to_json())
    with pytest.raises(TokenFilesCorruptError, match="fields of another kind"):
        TokenManifest.from_json(_FORMAT.render(fields | {"compression": "zstd"}))
