"""Verify token files completely: hashes, headers, counts, index, ids, and the text itself.

The first fault is raised, with the name of the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.corpus.document_index import (
    check_megatron_header,
    iterate_ends,
    iterate_lengths,
    render_megatron_index,
)
from tokenizer_core.corpus.parquet_shards import count_rows, is_parquet_of
from tokenizer_core.corpus.token_counts import TokenCounts, special_tokens_found
from tokenizer_core.corpus.token_files import TokenFiles
from tokenizer_core.corpus.token_manifest import MANIFEST_NAME, SplitRecord, Tally
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.specials.policy import Allowed
    from tokenizer_core.tokenizer import Tokenizer

_PIECE: Final = 1 << 20
_REMEDY: Final = "write the token files anew"


@dataclass(frozen=True, slots=True)
class VerifiedTokenFiles:
    """What was verified, in all splits together.

    `n_texts` documents were compared with their source. The ids of `n_lossy` of them are those of
    the source but decode to another text: the tokenizer changes or leaves out some (a normalizer,
    missing bytes, text that the split pattern drops).
    """

    n_files: int
    n_documents: int
    n_tokens: int
    n_texts: int
    n_lossy: int


def verify_token_files(
    folder: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | None = None,
    texts: Mapping[str, Iterable[str]] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> VerifiedTokenFiles:
    """Check everything about token files; return what was verified.

    - Always: the manifest; that the folder has no other file (a trainer's `train_*.bin` would
      include it); size and sha256 of each file; headers; that documents end in order and add up;
      that each begins and ends as the manifest says and is not over its `max_length`; that no id is
      above the largest; that the counts of the ids are right; that a mask is 0 or 1 and has as many
      ones as the manifest says.
    - With a `tokenizer`: that it wrote the files, and that each id is in its vocabulary.
    - With `texts`, the source texts of each named split in the order of the documents: that each
      document, without its begin and end ids, decodes to its text. Where the tokenizer changes or
      leaves out text: that it has the ids of its text. A document that `max_length` may have
      truncated decodes to the beginning of its text, or has the first of its ids.

    Files at an address (`s3://bucket/prefix`) are cached in the folder `cache`, as by
    `TokenFiles.open`. `progress` gets bytes done and bytes in total: those of all files, and those
    of the ids a second time.

    Raises:
        TokenFilesCorruptError: what is wrong, and in which file.
        TokenizerMismatchError: another tokenizer wrote the files.
        TokenFilesError: the folder has no token files, or a pack of some, or `texts` come without
            a tokenizer.
        LookupError: `texts` names an unknown split.
    """
    if texts and tokenizer is None:
        raise TokenFilesError("comparing with texts needs the tokenizer; give it too")
    files = TokenFiles.open(folder, tokenizer, cache=cache)
    n_tokens = sum(split.n_tokens for split in files.manifest.splits)
    id_bytes = n_tokens * files.manifest.plan.disk_dtype.itemsize
    reading = Tally(files.manifest.size_bytes + id_bytes, progress)
    _check_files(files, reading)
    known = _known_ids(files, tokenizer)
    for split in files.manifest.splits:
        _check_index(files, split)
        _check_documents(files, split)
        found = TokenCounts(len(known) - 1)
        for index in range(len(split.shards)):
            _check_ids(files, split, index, known, found, reading)
        _check_counts(files, split, found)
        _check_mask(files, split)
    n_texts = n_lossy = 0
    for name, expected in (texts or {}).items():
        if tokenizer is not None:
            counts = _check_texts(files, files.manifest.split(name), tokenizer, expected)
            n_texts, n_lossy = n_texts + counts[0], n_lossy + counts[1]
    return VerifiedTokenFiles(
        n_files=len(files.manifest.files()) + 1,
        n_documents=sum(split.n_documents for split in files.manifest.splits),
        n_tokens=n_tokens,
        n_texts=n_texts,
        n_lossy=n_lossy,
    )


def _check_files(files: TokenFiles, reading: Tally) -> None:
    records = files.manifest.files()
    stray = sorted({path.name for path in files.folder.iterdir()} - {MANIFEST_NAME, *records})
    if stray:
        raise TokenFilesCorruptError(
            f"{stray[0]!r:.80} stands among the token files and is none of them; move it away"
        )
    for name, record in records.items():
        digest = hashlib.sha256()
        with files.path(name).open("rb") as file:
            while data := file.read(_PIECE):
                digest.update(data)
                reading.add(len(data))
        if (found := digest.hexdigest()) != record.sha256:
            remedy = f"remove {files.path(name)}" if files.is_cached else _REMEDY
            raise TokenFilesCorruptError(
                f"{name} was changed or damaged after it was written: its sha256 is "
                f"{found[:12]}..., the manifest says {record.sha256[:12]}...; {remedy}"
            )


def _known_ids(files: TokenFiles, tokenizer: Tokenizer | None) -> NDArray[np.bool_]:
    """Which ids the vocabulary has, shape (largest_id + 1,)."""
    known = np.zeros(files.manifest.plan.tokenizer.largest_id + 1, np.bool_)
    known[list(tokenizer.spec.vocab) if tokenizer else slice(None)] = True
    return known


def _check_ids(
    files: TokenFiles,
    split: SplitRecord,
    index: int,
    known: NDArray[np.bool_],
    found: TokenCounts,
    reading: Tally,
) -> None:
    shard = files.map_shard(index, split.name)
    for start in range(0, len(shard), _PIECE):
        piece = shard[start : start + _PIECE]
        reading.add(piece.nbytes)
        ids = np.asarray(piece, dtype=np.int64)
        wrong = (ids < 0) | (ids >= len(known))
        wrong |= ~known[np.where(wrong, 0, ids)]
        if wrong.any():
            offset = int(np.argmax(wrong))
            raise TokenFilesCorruptError(
                f"{split.shards[index].files[0].file} holds the id {ids[offset]} at index "
                f"{start + offset}, which is not in the vocabulary; {_REMEDY}"
            )
        found.add(ids)


def _check_counts(files: TokenFiles, split: SplitRecord, found: TokenCounts) -> None:
    """Check that the counts of the ids match the file of counts and the manifest."""
    counts = found.counts
    if not np.array_equal(counts, files.token_counts(split.name)):
        raise TokenFilesCorruptError(
            f"{split.use_name} does not say how often each id stands in {split.name}; {_REMEDY}"
        )
    plan = files.manifest.plan
    special = special_tokens_found(counts, plan, split.n_documents)
    if special != split.special_tokens_found:
        raise TokenFilesCorruptError(
            f"the manifest does not say which special tokens stand in {split.name}; {_REMEDY}"
        )


def _check_mask(files: TokenFiles, split: SplitRecord) -> None:
    """Check that the mask has only 0 and 1, and as many ones as the manifest says."""
    if not files.has_mask:
        return
    n_ones, most = 0, 0
    mask = np.empty(_PIECE, np.uint8)
    for start in range(0, split.n_tokens, _PIECE):
        piece = mask[: split.n_tokens - start]
        files.copy_mask(start, piece, split.name)
        n_ones, most = n_ones + int(piece.sum(dtype=np.int64)), max(most, int(piece.max()))
    if n_ones != split.n_loss_tokens or most > 1:
        raise TokenFilesCorruptError(
            f"the mask of {split.name} has {n_ones} tokens with loss and values up to {most}, the "
            f"manifest says {split.n_loss_tokens}, and 0 or 1 for each; {_REMEDY}"
        )


def _check_index(files: TokenFiles, split: SplitRecord) -> None:
    path = files.folder / split.ends_name
    end, longest = 0, files.manifest.plan.max_length
    for lengths in iterate_lengths(path, 0, split.n_documents):
        end += int(lengths.sum())
        if longest is not None and lengths.max() > longest:
            raise TokenFilesCorruptError(
                f"{path.name} has a document of {lengths.max()} ids, and the manifest says "
                f"max_length {longest}; {_REMEDY}"
            )
    if end != split.n_tokens:
        raise TokenFilesCorruptError(
            f"{path.name} ends at {end}, and {split.name} has {split.n_tokens} ids; {_REMEDY}"
        )
    if files.manifest.plan.layout.index_suffix:
        _check_indexes(files, split)


def _check_indexes(files: TokenFiles, split: SplitRecord) -> None:
    """Check that each `.idx` or `.parquet` is the one that follows from the other files."""
    plan, ends = files.manifest.plan, files.folder / split.ends_name
    is_parquet = plan.layout.name == "parquet"
    document = token = 0
    for shard in split.shards:
        paths = [files.folder / each.file for each in shard.files]
        path = paths[1]
        count = count_rows(path) if is_parquet else check_megatron_header(path, plan.disk_dtype)
        stop = document + count
        if stop > split.n_documents:
            raise TokenFilesCorruptError(f"{path.name} has too many documents; {_REMEDY}")
        lengths = partial(iterate_lengths, ends, document, stop, begin=token)
        if is_parquet:
            agrees = is_parquet_of(plan, paths, lengths())
        else:
            with path.open("rb") as file:
                pieces = render_megatron_index(count, lengths, plan.disk_dtype)
                agrees = all(file.read(len(piece)) == piece for piece in pieces)
        if not agrees:
            raise TokenFilesCorruptError(f"{path.name} does not agree with {ends.name}; {_REMEDY}")
        document, token = stop, token + shard.n_tokens
    if document != split.n_documents:
        raise TokenFilesCorruptError(
            f"the {plan.layout.index_suffix} files have too few documents; {_REMEDY}"
        )


def _check_documents(files: TokenFiles, split: SplitRecord) -> None:
    """Check that each document begins and ends with the ids of the plan."""
    plan = files.manifest.plan
    begin, end = plan.begin_of_document_id, plan.end_of_document_id
    if begin is None and end is None:
        return
    start = index = 0
    one: NDArray[Any] = np.empty(1, np.int64)
    for ends in iterate_ends(files.folder / split.ends_name, 0, split.n_documents):
        for stop in ends.tolist():
            for expected, index_of_id in ((begin, start), (end, stop - 1)):
                if expected is None:
                    continue
                if stop > start:
                    files.copy_tokens(index_of_id, one, split.name)
                if stop == start or one[0] != expected:
                    raise TokenFilesCorruptError(
                        f"document {index} of {split.name} does not begin or end with id "
                        f"{expected}, as the manifest says; {_REMEDY}"
                    )
            start, index = stop, index + 1


def _check_texts(
    files: TokenFiles, split: SplitRecord, tokenizer: Tokenizer, texts: Iterable[str]
) -> tuple[int, int]:
    """The number of texts, and how many of them the tokenizer changes."""
    plan = files.manifest.plan
    first = 0 if plan.begin_of_document_id is None else 1
    last = 0 if plan.end_of_document_id is None else 1
    n_texts = n_lossy = 0
    for index, text in zip_longest(range(split.n_documents), texts):
        if index is None or text is None:
            less, more = ("texts", "documents") if text is None else ("documents", "texts")
            raise TokenFilesCorruptError(
                f"{split.name} has more {more} than there are {less} ({n_texts}); give the texts "
                f"that were written, in their order"
            )
        ids = files.document(index, split.name)
        may_be_cut = plan.over_length == "truncate" and len(ids) == plan.max_length
        ids = ids[first : len(ids) - last]
        decoded, data = tokenizer.decode_bytes(ids), text.encode()
        if not (data.startswith(decoded) if may_be_cut else data == decoded):
            n_lossy += 1
            expected = _ids_of_lossy(tokenizer, plan, text)
            if expected is not None and may_be_cut:
                expected = expected[: len(ids)]
            if expected is None or not np.array_equal(ids, expected):
                raise TokenFilesCorruptError(
                    f"document {index} of {split.name} does not decode to its text; give the texts "
                    f"that were written, in their order, or {_REMEDY}"
                )
        n_texts += 1
    return n_texts, n_lossy


def _ids_of_lossy(
    tokenizer: Tokenizer, plan: TokenFilesPlan, text: str
) -> NDArray[np.uint32] | None:
    """The ids of a text; None if this tokenizer neither changes nor leaves out any text."""
    spec = tokenizer.spec
    is_changed = spec.normalizer.name != "none" or spec.alphabet.word_suffix or spec.second_names()
    if not (is_changed or spec.loses_text or spec.has_flags):
        return None
    recognised: Allowed = plan.recognised_special or "ordinary"
    return tokenizer.encode_to_numpy(text, allowed_special=recognised)
