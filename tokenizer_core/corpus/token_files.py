"""TokenFiles: a folder of token files, open for reading; the base of every reader.

Shards are memory-mapped, and finding a document reads two numbers of the document index. Opening
checks the manifest and the size of each file, and the first use of a shard checks its header;
`verify_token_files` checks the hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer_core.corpus.document_index import document_range
from tokenizer_core.corpus.remote_token_files import StoredTokenFiles
from tokenizer_core.corpus.token_manifest import TokenManifest, check_size, read_manifest
from tokenizer_core.documents.corpus_addresses import is_address
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenizerMismatchError
from tokenizer_core.spec import spec_of

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_layouts import TokenArray
    from tokenizer_core.corpus.token_manifest import SplitRecord
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.tokenizer import Tokenizer


class TokenFiles:
    """Token files on the disk: their manifest, and any range of ids or document of a split."""

    def __init__(
        self, folder: Path, manifest: TokenManifest, stored: StoredTokenFiles | None = None
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self._stored = stored
        self._readers = {split.name: _SplitReader(self, split) for split in manifest.splits}

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        tokenizer: Tokenizer | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
    ) -> TokenFiles:
        """The token files in a folder; `tokenizer`, if given, must be theirs.

        The folder may be an address, `s3://bucket/prefix`. Then each file is fetched into the
        folder `cache` (by default the user's) when it is first needed, and checked.

        Raises:
            TokenFilesError: the folder has no token files, or a pack of some.
            TokenFilesCorruptError: the manifest is damaged, or a file is missing or has a wrong
                size.
            TokenizerMismatchError: another tokenizer wrote them; the message names both.
            StorageError: the storage cannot be reached, now or at a later read.
            OSError: the disk refuses.
        """
        if isinstance(folder, str) and is_address(folder):
            stored = StoredTokenFiles(folder, cache)
            files = cls(stored.folder, stored.manifest, stored)
        else:
            path = Path(folder)
            files = cls(path, TokenManifest.from_json(read_manifest(path)))
            for name, record in files.manifest.files().items():
                check_size(path / name, record.size_bytes)
        if tokenizer is not None:
            check_tokenizer(files.manifest.plan, tokenizer)
        return files

    @property
    def is_cached(self) -> bool:
        """Whether `folder` is the cache of an address."""
        return self._stored is not None

    def path(self, name: str) -> Path:
        """The path of one of the files, which is fetched first if necessary.

        Raises:
            TokenFilesCorruptError, StorageError, OSError: it cannot be fetched.
        """
        return self.folder / name if self._stored is None else self._stored.path(name)

    def n_tokens(self, split: str = "train") -> int:
        """The number of ids of a split; raise LookupError if the split does not exist."""
        return self.manifest.split(split).n_tokens

    def n_documents(self, split: str = "train") -> int:
        """The number of documents of a split; raise LookupError if the split does not exist."""
        return self.manifest.split(split).n_documents

    def token_counts(self, split: str = "train") -> NDArray[np.uint64]:
        """The count of each id in a split, shape (largest_id + 1,), from its file."""
        return np.fromfile(self.path(self.manifest.split(split).use_name), dtype="<u8")

    def copy_tokens(self, start: int, out: NDArray[Any], split: str = "train") -> None:
        """Fill `out`, shape (n,), with the ids from `start` on, across shards.

        Raises:
            IndexError: the range is not within the split.
            TypeError: the dtype of `out` cannot hold each id.
        """
        largest_id = self.manifest.plan.tokenizer.largest_id
        if out.dtype.kind in "iu" and largest_id > np.iinfo(out.dtype).max:
            raise TypeError(f"{out.dtype} cannot hold the id {largest_id}; give a wider array")
        self._reader(split).copy(start, out)

    def document(self, index: int, split: str = "train") -> NDArray[np.uint32]:
        """The ids of document `index` (from 0), shape (n_tokens,), uint32, begin and end ids
        included; reads nothing else.

        Raises:
            IndexError: the split has fewer documents.
            LookupError: no such split.
        """
        start, stop = self._document_range(index, split)
        ids = np.empty(stop - start, np.uint32)
        self.copy_tokens(start, ids, split)
        return ids

    def _document_range(self, index: int, split: str) -> tuple[int, int]:
        record = self.manifest.split(split)
        if not 0 <= index < record.n_documents:
            raise IndexError(
                f"there is no document {index}: {split} has documents 0 to {record.n_documents - 1}"
            )
        start, stop = document_range(self.path(record.ends_name), index)
        if not 0 <= start <= stop <= record.n_tokens:
            raise TokenFilesCorruptError(
                f"{record.ends_name} says document {index} has the ids {start} to {stop} of "
                f"{record.n_tokens}; write the token files anew"
            )
        return start, stop

    def decode_document(self, index: int, tokenizer: Tokenizer, split: str = "train") -> str:
        """The text of document `index` (from 0) with the tokens around it; reads nothing else.

        Raises:
            TokenizerMismatchError: another tokenizer wrote the files.
            IndexError, LookupError: as `document`.
            UnknownTokenIdError: an id is not in the vocabulary: the files are damaged.
        """
        check_tokenizer(self.manifest.plan, tokenizer)
        return tokenizer.decode(self.document(index, split))

    @property
    def has_mask(self) -> bool:
        """Whether each id has a mask: whether the loss counts there."""
        return self.manifest.plan.loss_mask

    def copy_mask(self, start: int, out: NDArray[Any], split: str = "train") -> None:
        """Fill `out`, shape (n,), with the mask from `start` on: 1 where the loss counts, else 0.

        Raises:
            TokenFilesError: the files have no mask.
            IndexError: the range is not within the split.
        """
        self._reader(split).copy(start, out, of_mask=True)

    def document_mask(self, index: int, split: str = "train") -> NDArray[np.uint8]:
        """The mask of document `index`, shape (n_tokens,), uint8; raise as `document` and
        `copy_mask`."""
        start, stop = self._document_range(index, split)
        mask = np.empty(stop - start, np.uint8)
        self.copy_mask(start, mask, split)
        return mask

    def map_shard(self, index: int, split: str = "train") -> TokenArray:
        """The memory-mapped ids of one shard, shape (n_tokens,)."""
        return self._reader(split).shard(index)

    def _reader(self, split: str) -> _SplitReader:
        return self._readers[self.manifest.split(split).name]


class _SplitReader:
    """The shards of one split as one sequence of ids; each is mapped at its first use."""

    def __init__(self, files: TokenFiles, record: SplitRecord) -> None:
        self._files, self._record = files, record
        counts = [shard.n_tokens for shard in record.shards]
        self._starts = list(accumulate(counts, initial=0))
        self._shards: dict[int, TokenArray] = {}
        self._masks: dict[int, TokenArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Pickling a map would copy its ids; the copy of this reader maps the files again.
        return vars(self) | {"_shards": {}, "_masks": {}}

    def shard(self, index: int) -> TokenArray:
        if index not in self._shards:
            plan, record = self._files.manifest.plan, self._record.shards[index]
            n_names = len(record.files) - plan.loss_mask
            path, *_ = [self._files.path(each.file) for each in record.files[:n_names]]
            self._shards[index] = plan.layout.map_shard(path, plan.dtype, record.n_tokens)
        return self._shards[index]

    def mask(self, index: int) -> TokenArray:
        if not self._files.has_mask:
            raise TokenFilesError(
                "these token files have no loss mask; encode conversations, or write them with "
                "plan_token_files(..., loss_mask=True)"
            )
        if index not in self._masks:
            record = self._record.shards[index]
            path = self._files.path(record.files[-1].file)
            check_size(path, record.n_tokens)
            # A plain array over the same mapping, as in `map_shard`.
            self._masks[index] = np.asarray(np.memmap(path, np.uint8, mode="r"))
        return self._masks[index]

    def copy(self, start: int, out: NDArray[Any], *, of_mask: bool = False) -> None:
        if not 0 <= start <= self._record.n_tokens - len(out):
            raise IndexError(
                f"{self._record.name} has no ids {start} to {start + len(out)}: it has "
                f"{self._record.n_tokens}"
            )
        done, find = 0, self.mask if of_mask else self.shard
        index = bisect_right(self._starts, start) - 1
        while done < len(out):
            first = start + done - self._starts[index]
            part = find(index)[first : first + len(out) - done]
            out[done : done + len(part)] = part
            done += len(part)
            index += 1


def check_tokenizer(plan: TokenFilesPlan, tokenizer: Tokenizer) -> None:
    """Raise TokenizerMismatchError unless the plan is for `tokenizer`."""
    fingerprint = spec_of(tokenizer).fingerprint
    if fingerprint != plan.tokenizer.fingerprint:
        raise TokenizerMismatchError(
            f"these token files, or their plan, are of another tokenizer ({plan.tokenizer}) than "
            f"the one given or active (fingerprint {fingerprint[:12]}), and the same ids may mean "
            f"other text; name that tokenizer (--tokenizer), or begin anew with this one"
        )
