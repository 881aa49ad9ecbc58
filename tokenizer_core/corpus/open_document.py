"""OpenDocument: the ids of a document that is not whole yet, aside on the disk.

Only where a shard must have room for the whole of a document, whose length is not known before its
end. The file has no name, so that nothing is left of it whenever the process ends.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_PIECE_BYTES: Final = 1 << 20


class OpenDocument:
    """Ids written aside in a folder, to be read back once.

    Example:
        >>> from pathlib import Path
        >>> document = OpenDocument(Path(tempfile.mkdtemp()))
        >>> document.append(np.array([1, 2]))
        >>> [piece.tolist() for piece in document.pieces()]
        [[1, 2]]
        >>> document.close()
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError where the disk refuses, as every method does."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open until close()
        self.n_tokens = 0

    def append(self, ids: NDArray[np.integer[Any]]) -> None:
        """Write more ids behind those there are."""
        self._file.write(ids.astype("<u4").tobytes())
        self.n_tokens += len(ids)

    def pieces(self) -> Iterator[NDArray[np.uint32]]:
        """All ids in order."""
        self._file.seek(0)
        while data := self._file.read(_PIECE_BYTES):
            yield np.frombuffer(data, dtype="<u4")

    def close(self) -> None:
        """Drop them; a second time does nothing."""
        self._file.close()
