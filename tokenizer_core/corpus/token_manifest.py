"""TokenManifest: the `manifest.json` that binds token files to their sources and their tokenizer.

It is written last. A reader checks that its names, sizes and counts are consistent before it opens
any file. The manifest has no time and no machine name, so the same documents and plan give the same
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, get_type_hints

from tokenizer_core.blobs.atomic_files import open_folder, read_file_in
from tokenizer_core.corpus.token_plan import (
    ENDS_SUFFIX,
    SPLITS,
    USE_SUFFIX,
    Split,
    TokenFilesPlan,
    split_stem,
)
from tokenizer_core.documents import CorpusSource, format_of_name, unused_separator
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, BadDocuments
from tokenizer_core.errors import FormatError, TokenFilesCorruptError, TokenFilesError, counted
from tokenizer_core.formats.sealed_json import SealedFormat
from tokenizer_core.strict_json import parse_record

MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 1 << 28
"""The size limit: enough for a million sources and shards."""

_FORMAT: Final = SealedFormat("token-files", 1, "token files", MAX_MANIFEST_BYTES)
PACK_FORMAT: Final = SealedFormat("token-pack", 1, "a pack of token files", 1 << 20)
"""The manifest of a pack, which `packing` writes. It is here so that no reader of token files takes
a sound pack for damaged ones."""

_LOST: Final = {
    "messages_left_out": "messages with a content or calls of which the template writes nothing",
    "reasoning_left_out": "messages with reasoning of which the template writes nothing",
    "tools_left_out": "conversations with tools, which the template does not know",
    "turns_end_of_conversation": "turns learned without an end, because nothing follows them",
    "turns_no_special_token": "turns learned without an end, because no special token follows them",
    "turns_outside_tags": "turns learned without an end, because no special token ends the tags",
    "turns_unanswered": "turns not learned, because the template does not show where they begin",
    "turns_no_prompt": "turns not learned, because no generation prompt is in front of them",
    "turns_interleaved": "turns not learned, because they hold the text of another message",
    "turns_weight_0": "turns not learned, because their weight is 0",
    "turns_no_text": "turns not learned, because the template writes no text of them",
}
"""Counts of what a model does not learn of conversations, or learns without its end."""

_LONG_DOCUMENT_BYTES: Final = 1_000_000
_SHA256: Final = re.compile("[0-9a-f]{64}")
START_ANEW: Final = "start anew: remove the unfinished ones (the folder .NAME.partial)"
"""The remedy if unfinished token files cannot be continued."""

_REMEDY: Final = (
    "write the token files anew from the corpus, or read them with the release that wrote them"
)


@dataclass(frozen=True)
class TokenFile:
    """One of the files: its name, its size and its sha256 (hex)."""

    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardRecord:
    """One shard: its number of ids, and its files, with the file of ids first, as
    `TokenFilesPlan.file_names` orders them."""

    n_tokens: int
    files: tuple[TokenFile, ...]


@dataclass(frozen=True)
class LostTokens:
    """What the plan's `max_length` cost a split: documents that it cut or dropped, and
    conversations that were left out, because the loss counts nowhere in their first `max_length`
    ids. `n_tokens`: ids of cut and dropped documents that are in no file."""

    n_cut: int = 0
    n_dropped: int = 0
    n_tokens: int = 0
    n_without_loss: int = 0


@dataclass(frozen=True)
class SplitRecord:
    """One split.

    - `n_bytes`: the size of its text in UTF-8, also of the text that `max_length` cut off.
    - `document_ends`: the file with, for each document, the number of ids of the split up to its
      end, as u64.
    - `token_use`: the file with the count of each id from 0 to the largest, as u64.
    - `special_tokens_found`: how often special tokens occur in the texts; empty with a mask.
    - `n_loss_tokens`: how many ids the loss counts at; None without a mask.
    - `lost`: what is missing; None without a `max_length`.
    """

    name: Split
    n_documents: int
    n_tokens: int
    n_bytes: int
    document_ends: TokenFile
    token_use: TokenFile
    special_tokens_found: Mapping[str, int]
    n_loss_tokens: int | None
    lost: LostTokens | None
    shards: tuple[ShardRecord, ...]

    @property
    def use_name(self) -> str:
        """The name of the file of counts."""
        return use_name(self.name)

    @property
    def ends_name(self) -> str:
        """The name of the file of document ends."""
        return ends_name(self.name)


@dataclass(frozen=True)
class TokenManifest:
    """The contents of the `manifest.json` of token files.

    `document_encoder`: the settings of the encoder that made ids and masks from conversations, such
    as the digest of the chat template and the loss rule (`DocumentEncoder.settings`). None without
    an encoder. `counts`: what it counted, by name: `messages_left_out` are the messages with a
    content or calls of which the chat template writes nothing; without an encoder
    `special_tokens_kept_as_text`, those in the texts that are no tokens of theirs.
    `bad_documents`: those of the corpus that were left out. `encoding`: the settings of
    `encode_corpus` that decide the documents and their order; None if another caller wrote them.
    """

    plan: TokenFilesPlan
    splits: tuple[SplitRecord, ...]
    sources: tuple[CorpusSource, ...] = ()
    document_encoder: Mapping[str, Any] | None = None
    bad_documents: BadDocuments = NO_BAD_DOCUMENTS
    counts: Mapping[str, int] = field(default_factory=dict)
    encoding: Mapping[str, Any] | None = None

    def split(self, name: str) -> SplitRecord:
        """The split with this name; raise LookupError, which lists the splits."""
        found: dict[str, SplitRecord] = {split.name: split for split in self.splits}
        if name in found:
            return found[name]
        raise LookupError(f"no split {name!r:.40}; these token files have {', '.join(found)}")

    def bytes_per_token(self, name: str) -> float:
        """Bytes of text per id of a split, as training and `tokenizer report` count them: without
        special tokens in the texts and around them; of the texts before `max_length` cut them.
        0 if no other ids are left; raise as `split`.
        """
        split, special = self.split(name), self.split(name).special_tokens_found
        ids_around = (self.plan.begin_of_document_id, self.plan.end_of_document_id)
        n_ids = split.n_tokens + (split.lost.n_tokens if split.lost and split.lost.n_cut else 0)
        n_ids -= split.n_documents * (2 - ids_around.count(None)) + sum(special.values())
        n_bytes = split.n_bytes - sum(len(name.encode()) * n for name, n in special.items())
        return n_bytes / n_ids if n_ids else 0.0

    def files(self) -> dict[str, TokenFile]:
        """Every file of the folder except the manifest, by name."""
        found = [
            file
            for split in self.splits
            for files in ((split.document_ends, split.token_use), *(s.files for s in split.shards))
            for file in files
        ]
        return {each.file: each for each in found}

    @property
    def size_bytes(self) -> int:
        """The size of all these files."""
        return sum(record.size_bytes for record in self.files().values())

    def warnings(self, validation_share: float = 0.0, separator: str | None = None) -> list[str]:
        """What differs from the texts of the corpus, in sentences: documents that were left out or
        truncated, special tokens that texts have, what a chat template left out; and for the
        arguments of the run, a split without documents and a separator that ends none. Without a
        `separator` the default of the run is named only if the documents are long: a short text is
        often one."""
        found = []
        if self.bad_documents.count:
            found.append(f"documents left out: {self.bad_documents}")
        for split in self.splits:
            found += [f"{split.name}: {words}" for words in self._warnings_of(split)]
        n_documents = self.bad_documents.count
        for split in self.splits:
            lost = split.lost or LostTokens()
            n_documents += split.n_documents + lost.n_dropped + lost.n_without_loss
        separator = separator or self._separator_of_long_texts(n_documents)
        if separator and n_documents <= len(self.sources):
            found.append(unused_separator(separator))
        if validation_share and len(self.splits) == 1:
            found.append(
                f"all documents are in the split {self.splits[0].name}: with a validation share of "
                f"{validation_share:g} no other was drawn"
            )
        return [*found, *self.counts_in_words(is_lost=True)]

    def _separator_of_long_texts(self, n_documents: int) -> str | None:
        """The separator of the run, if all files were plain text, of long documents."""
        how = self.encoding or {}
        formats = (how.get("format") or format_of_name(each.path) for each in self.sources)
        n_bytes = sum(split.n_bytes for split in self.splits)
        is_long = n_bytes > _LONG_DOCUMENT_BYTES * n_documents
        is_text = all(name is None or name.startswith("txt") for name in formats)
        return how.get("separator") if is_long and is_text else None

    def counts_in_words(self, *, is_lost: bool = False) -> list[str]:
        """`counts` as sentences, of what is lost or of the rest."""
        is_cut = any(split.lost and split.lost.n_cut for split in self.splits)
        when = " (before documents were truncated)" if is_cut else ""
        return [
            f"{_LOST.get(name) or name.replace('_', ' ')}: {count:,}{when}"
            for name, count in sorted(self.counts.items())
            if (name in _LOST) == is_lost
        ]

    def _warnings_of(self, split: SplitRecord) -> Iterator[str]:
        lost = split.lost or LostTokens()
        if lost.n_tokens:
            yield (
                f"over {self.plan.max_length:,} tokens: {counted(lost.n_cut, 'document')} "
                f"truncated, {lost.n_dropped:,} dropped, {counted(lost.n_tokens, 'token')} lost"
            )
        if lost.n_without_loss:
            yield (
                f"{counted(lost.n_without_loss, 'conversation')} left out: nothing to learn within "
                f"{self.plan.max_length:,} tokens"
            )
        if split.special_tokens_found:  # empty with a mask: a chat template wrote them
            names = split.special_tokens_found.items()
            listed = ", ".join(f"{name!r:.60} ({counted(count, 'time')})" for name, count in names)
            yield (
                f"special tokens found in the texts: {listed}; allowed_special (--allowed-special) "
                f"may make them text"
            )

    def to_json(self) -> bytes:
        """The content of `manifest.json`, sealed; raise FormatError if a value is not JSON."""
        encoder = self.document_encoder
        fields = {
            **render_plan(self.plan),
            "document_encoder": None if encoder is None else dict(encoder),
            "bad_documents": self.bad_documents.to_fields(),
            "counts": dict(sorted(self.counts.items())),
            "encoding": self.encoding,
            "sources": [asdict(source) for source in self.sources],
            "splits": [asdict(split) for split in self.splits],
        }
        return _FORMAT.render(fields)

    @classmethod
    def from_json(cls, data: bytes) -> TokenManifest:
        """The manifest in `data`.

        Raises:
            TokenFilesError: it is the manifest of a pack.
            TokenFilesCorruptError: it is damaged or has another format or version, a field is
                missing or malformed, or fields contradict each other.
        """
        try:
            fields = _FORMAT.parse(data)
            kinds = get_type_hints(cls)
            del kinds["plan"]
            parsed = {name: parse_record(kind, fields[name]) for name, kind in kinds.items()}
            manifest = cls(_parse_plan(fields), **parsed)
            manifest.check()
        except FormatError as error:
            _refuse_pack(data)
            raise TokenFilesCorruptError(f"{error}; {_REMEDY}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, TokenFilesCorruptError):
                raise
            raise TokenFilesCorruptError(
                f"the manifest is malformed: {error!s:.200}; {_REMEDY}"
            ) from None
        if manifest.to_json() != data:
            raise TokenFilesCorruptError(f"the manifest has fields of another kind; {_REMEDY}")
        return manifest

    def check(self) -> None:
        """Raise TokenFilesCorruptError unless names, sizes and counts are consistent."""
        self.plan.check()
        largest_id = self.plan.tokenizer.largest_id
        for id_ in (self.plan.begin_of_document_id, self.plan.end_of_document_id):
            _require(id_ is None or 0 <= id_ <= largest_id, "a document's first or last id")
        has_end = self.plan.end_of_document_id is not None
        _require(has_end == (self.plan.end_of_document is not None), "the end of a document")
        are_ids = all(0 <= id_ <= largest_id for id_ in self.plan.special_ids)
        _require(are_ids, "the id of a special token")
        names = [split.name for split in self.splits]
        _require(bool(names) and names == [name for name in SPLITS if name in names], "the splits")
        hashes = [self.plan.tokenizer.fingerprint, *(source.sha256 for source in self.sources)]
        hashes += [record.sha256 for record in self.files().values()]
        _require(all(map(_SHA256.fullmatch, hashes)), "a sha256")
        _require(all(source.size_bytes >= 0 for source in self.sources), "the size of a source")
        has_encoder = self.document_encoder is not None
        _require(self.plan.loss_mask or not has_encoder, "a document encoder without a mask")
        _require(min(self.counts.values(), default=0) >= 0, "the counts")
        for split in self.splits:
            self._check_split(split)

    def _check_split(self, split: SplitRecord) -> None:
        plan = self.plan
        _require(split.n_documents > 0 and split.n_bytes >= 0, f"the counts of {split.name}")
        n_ids = plan.tokenizer.largest_id + 1
        for file, name, n_numbers in (
            (split.document_ends, split.ends_name, split.n_documents),
            (split.token_use, split.use_name, n_ids),
        ):
            _require((file.file, file.size_bytes) == (name, 8 * n_numbers), name)
        for name, count in split.special_tokens_found.items():
            is_possible = name in plan.recognised_special and 0 < count <= split.n_tokens
            _require(is_possible, f"the special tokens found in {split.name}")
        total = sum(shard.n_tokens for shard in split.shards)
        _require(split.n_tokens == total > 0, f"the number of tokens of {split.name}")
        _require((split.n_loss_tokens is not None) == plan.loss_mask, f"the mask of {split.name}")
        counted = split.n_loss_tokens or 0
        _require(0 <= counted <= split.n_tokens, f"the tokens with loss of {split.name}")
        _require((split.lost is not None) == (plan.max_length is not None), "the lost documents")
        lost = split.lost or LostTokens()
        n_other_way = lost.n_dropped if plan.over_length == "truncate" else lost.n_cut
        least = min(lost.n_cut, lost.n_dropped, lost.n_tokens, lost.n_without_loss)
        are_counts = least >= 0 == n_other_way
        _require(are_counts, f"the longer documents of {split.name}")
        may_be_many = plan.tokens_per_shard is not None
        _require(may_be_many or len(split.shards) == 1, f"the shards of {split.name}")
        header_bytes, item_bytes = plan.layout.header_bytes, plan.disk_dtype.itemsize
        limit = plan.tokens_per_shard or total
        for index, shard in enumerate(split.shards):
            names = plan.file_names(split.name, index)
            found = [file.file for file in shard.files]
            _require(found == names, f"the files of shard {index} of {split.name}")
            is_last = index == len(split.shards) - 1
            is_full = shard.n_tokens == limit or not plan.layout.spans_shards
            _require(shard.n_tokens > 0 and (is_full or is_last), names[0])
            size_bytes = header_bytes + shard.n_tokens * item_bytes
            _require(shard.files[0].size_bytes == size_bytes, f"the size of {names[0]}")
            mask_fits = not plan.loss_mask or shard.files[-1].size_bytes == shard.n_tokens
            _require(mask_fits, f"the size of {names[-1]}")


def ends_name(split: Split) -> str:
    """The name of a split's file of document ends."""
    return split_stem(split) + ENDS_SUFFIX


def use_name(split: Split) -> str:
    """The name of a split's file of counts."""
    return split_stem(split) + USE_SUFFIX


def _refuse_pack(data: bytes) -> None:
    """Raise TokenFilesError if this is the manifest of a pack."""
    try:
        fields = PACK_FORMAT.parse(data)
    except FormatError:
        return
    raise TokenFilesError(
        f"the folder holds a pack of token files, and no token files; name the folder that was "
        f"packed, whose {MANIFEST_NAME} has the sha256 {fields.get('token_files')!s:.64}. The pack "
        f"itself is checked when it is opened (TokenDataset.packed), and by corpus verify"
    )


def read_manifest(folder: Path) -> bytes:
    """The content of the manifest in a folder.

    Raises:
        TokenFilesError: the folder has no manifest.
        OSError: the disk refuses.
    """
    try:
        with open_folder(folder) as descriptor:
            return read_file_in(descriptor, MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError, FormatError) as error:
        name = folder.name or str(folder)
        if not folder.is_dir():
            remedy = "there is no such folder; check the path"
            if folder.exists():
                remedy = "it is a file; name the folder"
            elif partial_folder(folder).exists():
                remedy = "they are not finished; go on with resume (--resume)"
            raise TokenFilesError(f"{name!r:.80} holds no token files: {remedy}") from None
        raise TokenFilesError(
            f"{name!r:.80} holds no token files ({error!s:.120}): its {MANIFEST_NAME} is "
            f"written last, so they were never finished, or it was removed; name another "
            f"folder, or write them anew"
        ) from None


def partial_folder(folder: Path) -> Path:
    """Where the files of a folder grow until they are complete."""
    # Not with_name, which raises ValueError for `.` and `/`: they are there already, which is said.
    return folder.parent / f".{folder.name}.partial"


def check_size(path: Path, size_bytes: int) -> None:
    """Raise TokenFilesCorruptError unless the file exists with this size."""
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise TokenFilesCorruptError(
            f"{path.name} is missing; write the token files anew, or copy the folder whole"
        ) from None
    if found != size_bytes:
        raise TokenFilesCorruptError(
            f"{path.name} has {found} bytes, the manifest says {size_bytes}; write the token files "
            f"anew, or copy the folder whole"
        )


class Tally:
    """Adds up work that is done, and reports it with the whole work."""

    def __init__(self, total: int, progress: Callable[[int, int], object] | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def add(self, n_done: int) -> None:
        """Report that so much more is done."""
        self._done += n_done
        if self._progress is not None:
            self._progress(self._done, self._total)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise TokenFilesCorruptError(f"the manifest contradicts itself: {what}; {_REMEDY}")


def render_plan(plan: TokenFilesPlan) -> dict[str, object]:
    """The fields of a plan in a manifest."""
    fields: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(plan).items()
    }
    del fields["specials_by_default"]  # the manifest has what was chosen
    tokens = zip(fields.pop("recognised_special"), fields.pop("special_ids"), strict=True)
    return {
        "layout": fields.pop("layout_name"),
        "dtype": fields.pop("dtype"),
        "tokens_per_shard": fields.pop("tokens_per_shard"),
        "tokenizer": {**fields.pop("tokenizer"), "pattern": plan.tokenizer.pattern.fields()},
        "special_tokens": {
            "recognised": [{"token": name, "id": id_} for name, id_ in tokens],
            "forbidden": fields.pop("forbidden_special"),
        },
        **fields,
    }


def may_continue(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether token files that were begun with one rendered plan may go on with another: the same,
    or one that decides about special tokens that the first forbids, which no text has so far."""
    old, new = before["special_tokens"], now["special_tokens"]
    decided = [entry for entry in new["recognised"] if entry["token"] not in old["forbidden"]]
    return (
        {**before, "special_tokens": new} == now
        and decided == old["recognised"]
        and set(new["forbidden"]) <= set(old["forbidden"])
    )


def _parse_plan(fields: Mapping[str, Any]) -> TokenFilesPlan:
    special = fields["special_tokens"]
    named = {
        "layout_name": fields["layout"],
        "recognised_special": [entry["token"] for entry in special["recognised"]],
        "special_ids": [entry["id"] for entry in special["recognised"]],
        "forbidden_special": special["forbidden"],
        "specials_by_default": False,
    }
    own = {name: fields[name] for name in get_type_hints(TokenFilesPlan).keys() & fields.keys()}
    plan: TokenFilesPlan = parse_record(TokenFilesPlan, own | named)
    return plan
