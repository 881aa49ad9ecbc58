"""Cuts corpus files into chunks whose counts, added up, equal those of the whole file.

The planner cuts only where separate counts of the two sides add up to the count of the whole:

- *before a special token*: a special token begins at the cut, and no occurrence of any special
  token, chosen or not, spans the cut. The leftmost-longest matching of the whole file then also
  reaches the cut and finds a token there, so the text before it ends there. (With `<|a|>` and
  `<|a|><|a|>`, no cut falls between two `<|a|>`; with `aa`, none falls in a run of a.)
- *within plain text*, at a cut of `find_safe_cut`, if its characters are certainly part of no
  special token.
- never inside a code point, nor next to invalid UTF-8: the replacement of invalid bytes may depend
  on their neighbours.

If a window has no such position, the search continues, up to the end of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tokenizer_core.blobs.local_files import open_to_read, read_at
from tokenizer_core.documents.corpus_files import changed_error
from tokenizer_core.errors import CorpusError
from tokenizer_core.splitting.patterns import SplitPattern
from tokenizer_core.splitting.possessive import compile_possessive
from tokenizer_core.splitting.pretokenize import find_safe_cut

WINDOW_BYTES: Final = 1 << 16
"""Bytes examined in one step of the search for a cut."""

ReadBytes = Callable[[int, int], bytes]

_READ_BYTES: Final = 1 << 20
_LONGEST_CODE_POINT_BYTES: Final = 4
# The table of well-formed sequences in the Unicode standard (3-7), in runs. No code point begins
# with a continuation byte, so the runs are right in a window that begins inside a code point.
_VALID_UTF8: Final = compile_possessive(
    rb"(?:[\x00-\x7F]++|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]"
    rb"|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}|\xED[\x80-\x9F][\x80-\xBF]"
    rb"|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2})++"
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a corpus file that can be counted separately: the bytes from `start` to `end`.

    The reader of the chunks of a file checks at the end that the file did not change.
    """

    path: str
    start: int
    end: int

    def read(self) -> bytes:
        """Read the bytes of the chunk; raise as `open_chunks`."""
        with open_chunks(self.path) as descriptor:
            return read_chunk(self.path, descriptor, self.start, self.end)


@contextlib.contextmanager
def open_chunks(path: str) -> Iterator[int]:
    """The descriptor of a corpus file that was there before.

    Raises:
        CorpusChangedError: the file was removed.
        CorpusError: it can no longer be opened.
    """
    try:
        descriptor = open_to_read(path)
    except FileNotFoundError:
        raise changed_error(path) from None
    except OSError as error:
        raise CorpusError(f"the corpus file {path} cannot be read any more: {error}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_chunk(path: str, descriptor: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end` of an open file; raise CorpusChangedError if it has fewer."""
    parts: list[bytes] = []
    while start < end:
        part = read_at(descriptor, end - start, start)
        if not part:
            raise changed_error(path)
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class ChunkPlanner:
    """Cuts files into chunks of about `chunk_bytes` and hashes the files as it reads them.

    Planning is lazy and reads each file once, from front to back, so the sha256 needs no second
    pass."""

    def __init__(
        self,
        pattern: SplitPattern,
        special_tokens: Sequence[str],
        *,
        chunk_bytes: int,
        window_bytes: int = WINDOW_BYTES,
        stop_at_invalid: bool = True,
    ) -> None:
        """`stop_at_invalid`: cut at invalid UTF-8 instead of searching after it. For counting that
        refuses invalid UTF-8; it prevents a chunk from growing over a whole binary file."""
        self._pattern = pattern
        self._special_tokens = tuple(special_tokens)
        longest = max(map(len, self._special_tokens), default=0)
        # An occurrence that includes a character begins and ends within this distance of it.
        self._margin = max(longest - 1, 0)
        # Twice as wide as both margins, so that each step advances.
        self._window_bytes = max(window_bytes, _LONGEST_CODE_POINT_BYTES * (4 * self._margin + 8))
        self._stop_at_invalid = stop_at_invalid
        self._chunk_bytes = max(chunk_bytes, 1)
        self._any_special = re.compile("(?=" + "|".join(map(re.escape, self._special_tokens)) + ")")
        self.sha256: dict[str, str] = {}

    def plan(self, path: str) -> Iterator[Chunk]:
        """Yield the chunks of a file in order; after the last one, `sha256` contains its hash.

        Raises:
            CorpusChangedError: the file has become shorter.
        """
        digest = hashlib.sha256()
        with open_chunks(path) as descriptor:
            read = partial(read_chunk, path, descriptor)
            for start, end in self._ranges(read, os.fstat(descriptor).st_size):
                for position in range(start, end, _READ_BYTES):
                    digest.update(read(position, min(position + _READ_BYTES, end)))
                yield Chunk(path, start, end)
        self.sha256[path] = digest.hexdigest()

    def cut(self, part: Chunk) -> Iterator[Chunk]:
        """Yield the chunks of a part of a file, in order; hashes nothing. Raise as `plan`."""
        with open_chunks(part.path) as descriptor:

            def read(start: int, end: int) -> bytes:
                return read_chunk(part.path, descriptor, part.start + start, part.start + end)

            # Both ends are cuts, so the part is planned like a file.
            for start, end in self._ranges(read, part.end - part.start):
                yield Chunk(part.path, part.start + start, part.start + end)

    def _ranges(self, read: ReadBytes, size_bytes: int) -> Iterator[tuple[int, int]]:
        start = 0
        while start < size_bytes:
            end = self.find_cut(read, size_bytes, start + self._chunk_bytes)
            yield start, end
            start = end

    def find_cut(self, read: ReadBytes, size_bytes: int, position: int) -> int:
        """Return the byte offset of the first cut at or after `position` in a file of `size_bytes`,
        or `size_bytes` without a cut. `read(start, end)` returns bytes of the file.

        The result depends only on the file and `position`, not on other cuts.
        """
        while position < size_bytes:
            end = min(position + self._window_bytes, size_bytes)
            window = read(position, end)
            is_last = end == size_bytes
            next_start = len(window)
            for start, stop in (match.span() for match in _VALID_UTF8.finditer(window)):
                text = window[start:stop].decode("utf-8")
                cut = self._find_cut_in_text(text, is_file_end=is_last and stop == len(window))
                if cut is not None:
                    return position + start + len(text[:cut].encode())
                if stop > len(window) - _LONGEST_CODE_POINT_BYTES:
                    # The text near the end of this window is in the middle of the next one.
                    kept = text[max(len(text) - 2 * self._margin - 2, 0) :]
                    next_start = stop - len(kept.encode())
                elif self._stop_at_invalid:
                    return position + stop
            if is_last:
                break
            position += next_start
        return size_bytes

    def _find_cut_in_text(self, text: str, *, is_file_end: bool) -> int | None:
        """The character offset of a cut in a stretch of valid text from the middle of a file."""
        margin = self._margin
        last = len(text) if is_file_end else len(text) - margin
        if self._special_tokens:
            found = None
            for found in self._any_special.finditer(text):
                position = found.start()
                if (
                    margin <= position <= last
                    and position > 0
                    and not self._is_spanned(text, position)
                ):
                    return position
            if found is not None:
                return None
        if last <= margin:
            return None
        cut = find_safe_cut(text[margin:last], 1, self._pattern)
        return None if cut is None else margin + cut

    def _is_spanned(self, text: str, position: int) -> bool:
        """Whether an occurrence of a special token begins before `position` and ends after it."""
        return any(
            text.find(token, max(position - len(token) + 1, 0), position + len(token) - 1) >= 0
            for token in self._special_tokens
        )
