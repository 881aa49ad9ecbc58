"""Drift: where ids differ from those that encoding their text again would give.

Text does not determine ids: a model may generate `he`, `llo` where encoding gives `hello`. A
program that decodes a conversation, appends to it and encodes it again therefore changes ids that
the model has seen or made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tokenizer_core.engines.base import list_ids, naming_ids
from tokenizer_core.engines.protocol import is_array
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import Row
    from tokenizer_core.spec import TokenizerSpec

    Ids = Iterable[int] | NDArray[np.integer]
    Batch = Iterable[Ids] | NDArray[np.integer]


UNDECIDED: Final = -2
"""What an engine gives for a row of which it cannot say whether it has drift."""


class Extension(NamedTuple):
    """Ids, and those of a text after them.

    - `ids`: the given ids, unchanged, and those of the text.
    - `drift_at`: the first index where encoding the whole text again differs from `ids`; None if it
      gives the same. At or after the number of given ids, the difference is in the new text.
    """

    ids: list[int]
    drift_at: int | None


def continue_text(
    spec: TokenizerSpec, last_id: int | None, text: str
) -> tuple[str, Literal["text", "part", "inside"]]:
    """The text that encoding sees after `last_id`, and where it begins there, as
    `specials.parts.normalized_parts` says. A token with the flag `rstrip` takes the white space
    after it. A token that is found in the normalized text does not begin another part, unless a
    pre-tokenizer puts a space after every token."""
    if last_id is None:
        return text, "text"
    added = [token for token in spec.added_tokens if token.id == last_id]
    if not added:
        return text, "inside"
    rest = text.lstrip(WHITE_SPACE) if any(token.rstrip for token in added) else text
    is_border = spec.normalizer.spaces_follow_tokens or not all(t.normalized for t in added)
    return rest, "part" if is_border else "inside"


def first_difference(given: Row, again: NDArray[np.uint32]) -> int | None:
    """The first index where ids differ from an array of ids, shape (n_tokens,); None if they are
    equal. If one is the beginning of the other, this is its length."""
    import numpy as np

    ids = np.asarray(given, dtype=np.uint32)
    n_both = min(len(ids), len(again))
    differing = np.flatnonzero(ids[:n_both] != again[:n_both])
    if len(differing):
        return int(differing[0])
    return None if len(ids) == len(again) else n_both


def first_differences(
    rows: list[Row],
    texts: list[str],
    encode_batch: Callable[[list[str]], tuple[NDArray[np.uint32], NDArray[np.uint64]]],
) -> NDArray[np.int64]:
    """The `first_difference` of each row, whose text is given, -1 for None, shape (n_rows,)."""
    import numpy as np

    check_stop()
    again, ends = encode_batch(texts)
    arrays = [np.asarray(row, dtype=np.uint32) for row in rows]
    found = np.full(len(rows), -1, dtype=np.int64)
    # Most batches have no drift; two comparisons are faster than one for each row.
    are_as_long = np.array_equal(np.diff(ends), np.array([len(array) for array in arrays]))
    if are_as_long and np.array_equal(np.concatenate([again[:0], *arrays]), again):
        return found
    for number, (array, (start, end)) in enumerate(
        zip(arrays, pairwise(ends.tolist()), strict=True)
    ):
        difference = first_difference(array, again[start:end])
        if difference is not None:
            found[number] = difference
    return found


def decode_rows(rows: list[Row], decode: Callable[[Row], str]) -> list[str]:
    """The text of each row; an error names the row."""
    texts = []
    for number, row in enumerate(rows):
        with naming_ids(f"row {number}"):
            texts.append(decode(row))
    return texts


def list_rows(batch: Batch) -> list[Row]:
    """The rows of a batch as lists and arrays; raises TypeError for what has no rows of ids."""
    if not hasattr(batch, "__iter__"):
        raise TypeError(f"a batch must be a list of lists of ids, not {type(batch).__name__}")
    return [
        row if isinstance(row, list) or is_array(row) else list_ids(row, f"row {number}")
        for number, row in enumerate(batch)
    ]


def rows_of(batch: Batch, offsets: NDArray[np.integer] | None = None) -> list[Row]:
    """The rows of a batch; with `offsets`, which ascend from 0, those of one array of all ids.
    Raises ValueError: the offsets do not fit, or an array without them has no rows."""
    import numpy as np

    if offsets is None:
        if isinstance(batch, np.ndarray) and batch.ndim != 2 and batch.size:
            raise ValueError(
                f"an array of shape {batch.shape} is no batch; give one with a row for each text, "
                f"or all ids with offsets"
            )
        return list_rows(batch)
    ids, bounds = np.asarray(batch), np.asarray(offsets).tolist()
    is_sound = ids.ndim == 1 and bounds[:1] == [0] and bounds[-1] == len(ids)
    if not is_sound or bounds != sorted(bounds):
        raise ValueError(
            f"offsets ascend from 0 to the number of ids, {len(ids)}; give those of "
            f"encode_batch_to_numpy"
        )
    return [ids[start:end] for start, end in pairwise(bounds)]
