"""The fingerprint of a spec: which fields it hashes, and in which form."""

from __future__ import annotations

import hashlib
import json
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_core.spec import TokenizerSpec

_FIELDS_AT_ONCE: Final = 1 << 12


@cache
def _length_field(length: int) -> bytes:
    return length.to_bytes(8, "little")


def make_fingerprint(spec: TokenizerSpec) -> str:
    """sha256 (hex) over everything that decides an id; equal fingerprints give equal ids.

    The hashed bytes are a sequence of fields, each a u64 little-endian length and the field:
    a format word, kind, `ignore_merges` as 0 or 1, pattern name and expression, Unicode
    tables, normalizer; the number of entries, then id and bytes of each by rising id; the
    number of merges, then both sides of each in order; the number of added tokens, then
    content, id and special flag of each in order; prefix ids, suffix ids. Numbers are written
    as decimal ASCII. For a pattern with a dialect or an unmatched rule of its own, or with
    extensions, the format word is another, and both follow the expression. After the suffix
    ids then come the extensions, if any: their number, then name and canonical JSON (UTF-8,
    sorted keys, no white space) of each by rising name.
    """
    digest = hashlib.sha256()
    parts = _canonical_fields(spec)
    # Many at once: a call of `update` takes longer than hashing a token.
    while block := list(islice(parts, _FIELDS_AT_ONCE)):
        fields = zip(map(_length_field, map(len, block)), block, strict=True)
        digest.update(b"".join(chain.from_iterable(fields)))
    return digest.hexdigest()


def _canonical_fields(spec: TokenizerSpec) -> Iterator[bytes]:
    pattern, extensions = spec.pattern, list_extensions(spec)
    is_first = pattern.is_plain and not extensions
    head = ["tokenizer-spec-1" if is_first else "tokenizer-spec-2", spec.kind]
    head += [f"{spec.ignore_merges:d}", pattern.name, pattern.expression]
    head += [] if is_first else [pattern.dialect, pattern.unmatched]
    head += [spec.unicode_tables, spec.normalizer.name, f"{len(spec.vocab)}"]
    yield from map(str.encode, head)
    for id_, token in sorted(spec.vocab.items()):
        yield b"%d" % id_
        yield token
    yield b"%d" % len(spec.merges)
    yield from chain.from_iterable(spec.merges)
    tail = [f"{len(spec.added_tokens)}"]
    for added in spec.added_tokens:
        tail += [added.content, f"{added.id}", f"{added.special:d}"]
    for ids in (spec.prefix_ids, spec.suffix_ids):
        tail += map(str, (len(ids), *ids))
    tail += [f"{len(extensions)}"] if extensions else []
    canonical = partial(json.dumps, ensure_ascii=False, allow_nan=False, sort_keys=True)
    for name, value in sorted(extensions.items()):
        tail += [name, canonical(value, separators=(",", ":"))]
    yield from map(str.encode, tail)


def list_extensions(spec: TokenizerSpec) -> dict[str, Any]:
    """Name -> JSON value of the settings that few tokenizers have and that differ from their
    default, as the fingerprint covers them.

    - `added_token_flags`: content -> the flags that are set, of each added token with any.
    - `byte_ids`, `idle_ids`, `word_suffix` (which is ASCII): those of the alphabet.
    - `missing_bytes`: the alphabet's `missing`: `bytes`, `unk_id`, `fuse_unk`, and `ends` if any.
    - `normalizer_steps`: the fields of each step of the normalizer `steps`.
    - `split_steps`: the fields of each step of a split pattern with `before` or a `behavior`.
    """
    pattern, alphabet, missing = spec.pattern, spec.alphabet, spec.alphabet.missing
    lost: dict[str, Any] = {}
    if missing:
        lost = {"bytes": missing.values, "unk_id": missing.unk_id, "fuse_unk": missing.is_fused}
        lost |= {"ends": missing.ends} if missing.ends else {}
    steps = [step.fields() for step in (*pattern.before, pattern.alone())]
    found = {
        "added_token_flags": {t.content: t.flags for t in spec.added_tokens if t.flags},
        "byte_ids": list(alphabet.byte_ids),
        "idle_ids": list(alphabet.idle_ids),
        "missing_bytes": lost,
        "normalizer_steps": spec.normalizer.fields(),
        "split_steps": steps if pattern.has_steps else [],
        "word_suffix": alphabet.word_suffix.decode("ascii"),
    }
    return {name: value for name, value in found.items() if value}
