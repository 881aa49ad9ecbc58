"""Small tokenizers, documents of ids, and token files, for the tests of this folder."""

import hashlib
import json
import os
import re

import numpy as np

from tests.tokenizer_core.formats.small_specs import BYTES
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.corpus import (
    TokenFilesWriter,
    corpus_encoding,
    document_shuffle,
    encoding_run,
    plan_token_files,
)
from tokenizer_core.corpus.token_manifest import _FORMAT
from tokenizer_core.distributed import encode_shards

LAYOUT_NAMES = ["raw", "npy", "megatron", "llmc", "parquet"]

NARROW = Tokenizer(BYTES | {256: b"ab"}, [(b"a", b"b")], ["<|begin|>", "<|end|>"])
"""Largest id 258: uint16."""

WIDE = Tokenizer.from_spec(
    TokenizerSpec.from_merges(
        BYTES, [], [AddedToken("<|begin|>", 65_536), AddedToken("<|end|>", 70_000)]
    )
)
"""Largest id 70,000, and none between 255 and 65,536: uint32."""

TEXTS = ["ab abab", "", "naïve café 🙂", "x" * 11, "the end<|end|>"]


def small_batches(patch, batch_bytes, batch_tokens):
    """A document counts as long after a few bytes, and every batch ends with a checkpoint."""
    for module, name, value in (
        (corpus_encoding, "BATCH_BYTES", batch_bytes),
        (encode_shards, "BATCH_BYTES", batch_bytes),
        (encode_shards, "BATCH_TOKENS", batch_tokens),
        (document_shuffle, "BATCH_TOKENS", batch_tokens),
        (encoding_run, "CHECKPOINT_SECONDS", 0),
        (encoding_run, "_CHECKPOINT_SHARE", 1e9),
        (os, "fsync", lambda descriptor: None),
    ):
        patch.setattr(module, name, value)


def encode_all(tokenizer, texts):
    return [tokenizer.encode(text) for text in texts]


def mask_of(ids):
    """The loss counts at ids that are 1 modulo 3."""
    return (np.asarray(ids, np.int64) % 3 % 2).astype(np.uint8)


def write(folder, plan, documents, *, validation=None, n_bytes=0, batch=1):
    """Token files of the documents, `batch` of them appended at a time, with masks if planned."""
    with TokenFilesWriter(folder, plan) as writer:
        for split, listed in (("train", documents), ("validation", validation or [])):
            for start in range(0, len(listed), batch):
                part = listed[start : start + batch]
                ids = np.array([id_ for document in part for id_ in document], dtype=np.uint32)
                offsets = np.cumsum([0, *map(len, part)])
                mask = mask_of(ids) if plan.loss_mask else None
                writer.append_batch(ids, offsets, n_bytes=n_bytes, split=split, mask=mask)
        return writer.finish()


def write_texts(folder, layout="raw", tokenizer=NARROW, **options):
    """Token files of TEXTS, in shards of 7 ids."""
    options = {"tokens_per_shard": 7, "end_of_document": ""} | options
    plan = plan_token_files(tokenizer, layout=layout, **options)
    return write(folder, plan, encode_all(tokenizer, TEXTS), validation=[[104, 105]])


def content(folder):
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def reseal(folder, name, change):
    """Change a file, and update size and hash in the manifest."""
    data = bytearray((folder / name).read_bytes())
    change(data)
    (folder / name).write_bytes(data)
    fields = json.dumps(_FORMAT.parse((folder / "manifest.json").read_bytes()))
    record = f'"size_bytes": {len(data)}, "sha256": "{hashlib.sha256(data).hexdigest()}"'
    before = rf'(?<="file": "{name}", )"size_bytes": \d+, "sha256": "\w+"'
    changed, n_changed = re.subn(before, record, fields)
    assert n_changed == 1
    (folder / "manifest.json").write_bytes(_FORMAT.render(json.loads(changed)))
