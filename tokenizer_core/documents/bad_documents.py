"""Bad documents: those that cannot be read or rendered, and how many of them a run may leave out.

A document is a line of JSON lines, a row of Parquet, or the text between two separators of plain
text (a whole file without a separator). It is bad if it is not UTF-8, has half of a surrogate pair,
is null, is no JSON object with its field, or is a conversation that no chat template can encode. A
damaged archive or a file that changes is not a document: it always ends the run.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from tokenizer_core.documents.corpus_files import corpus_file_name
from tokenizer_core.documents.document_pieces import Utf8Piece
from tokenizer_core.errors import CorpusDocumentError, TooManyBadDocumentsError

DEFAULT_MAX_BAD: Final = 0.01
"""The share of bad documents that a run accepts if it leaves them out."""

FEWEST_READ: Final = 1000
"""The share counts at least this many documents until the end: a bad beginning ends no run."""

_MAX_PLACES: Final = 10
_HELD_BYTES: Final = 1 << 24
INVALID_UTF8: Final = "invalid_utf8"


class BadDocumentError(Exception):
    """What is wrong with a document, with the remedy; `reason` is a stable word. The reader knows
    the file and the place in it."""

    def __init__(self, message: str, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class BadDocument:
    """Where a bad document is: the name of its file, and its `line` (from 1; of plain text the line
    of the first wrong byte) or its `row` (from 1)."""

    file: str
    unit: str
    number: int
    reason: str

    def to_fields(self) -> dict[str, Any]:
        """As JSON."""
        return {"file": self.file, self.unit: self.number, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class BadDocuments:
    """The bad documents that a run left out: their number by reason, and the first ten."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    first: tuple[BadDocument, ...] = ()

    @classmethod
    def of(cls, bad: Iterable[BadDocument]) -> Self:
        """These bad documents, in order."""
        listed = list(bad)
        return cls(dict(Counter(each.reason for each in listed)), tuple(listed[:_MAX_PLACES]))

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.reasons.values())

    def plus(self, later: BadDocuments) -> BadDocuments:
        """These and later ones."""
        reasons = Counter(self.reasons) + Counter(later.reasons)
        return BadDocuments(dict(reasons), (*self.first, *later.first)[:_MAX_PLACES])

    def check_share(self, n_documents: int, max_bad: float) -> None:
        """Raise TooManyBadDocumentsError if more than the share `max_bad` of the documents read,
        `n_documents` with these, is bad."""
        if self.count > max_bad * n_documents:
            raise self.too_many(n_documents, max_bad)

    def too_many(self, n_documents: int, max_bad: float) -> TooManyBadDocumentsError:
        """The error for more than the share `max_bad` of `n_documents`."""
        return TooManyBadDocumentsError(
            f"{self} of {n_documents:,} documents, more than {max_bad:.3%} (--max-bad, in Python "
            f"and requests max_bad); mend them, or allow more (without --skip-bad or skip_bad the "
            f"first is an error that says what is wrong)"
        )

    def __str__(self) -> str:
        """For people.

        Example:
            >>> str(BadDocuments.of([BadDocument("a.jsonl", "line", 3, "no_field")]))
            '1 bad (no_field 1: a.jsonl line 3)'
        """
        reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(self.reasons.items()))
        places = ", ".join(f"{one.file} {one.unit} {one.number}" for one in self.first)
        more = " and more" if self.count > len(self.first) else ""
        return f"{self.count:,} bad ({reasons}: {places}{more})"

    def to_fields(self) -> dict[str, Any]:
        """As JSON, for manifests and checkpoints."""
        reasons = dict(sorted(self.reasons.items()))
        return {"reasons": reasons, "first": [one.to_fields() for one in self.first]}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The documents that `to_fields` rendered; raise KeyError, TypeError or ValueError if they
        are malformed."""
        first = []
        for each in fields["first"]:
            (unit,) = each.keys() - {"file", "reason"}
            first.append(BadDocument(each["file"], unit, each[unit], each["reason"]))
        found = cls(dict(fields["reasons"]), tuple(first))
        if any(type(count) is not int or count < 1 for count in found.reasons.values()):
            raise ValueError("a number of bad documents")
        return found


NO_BAD_DOCUMENTS: Final = BadDocuments()


def check_running_share(
    before: BadDocuments, bad: BadDocuments, numbers: Sequence[int], max_bad: float
) -> BadDocuments:
    """The bad documents `before` and the next ones, `bad`, whose numbers in the corpus (from 0) are
    given, in order. Raises TooManyBadDocumentsError: up to one of them more than the share is bad,
    of at least `FEWEST_READ` documents. How the documents are divided into calls does not matter.
    """
    found = before.plus(bad)
    for count, number in enumerate(numbers, before.count + 1):
        if count > max_bad * max(number + 1, FEWEST_READ):
            raise found.too_many(numbers[-1] + 1, max_bad)
    return found


def check_max_bad(max_bad: float | None) -> None:
    """Raise ValueError unless `max_bad` is None or a share."""
    if max_bad is not None and not 0 <= max_bad <= 1:
        raise ValueError(f"max_bad is a share from 0 to 1, 0.01 for a hundredth, not {max_bad}")


def one_field(field: str | Sequence[str], names: Iterable[str], what: str = "field") -> str:
    """The one of `names`, those of a record or the columns of a file, that is the `field`, or one
    of several such fields. Raises BadDocumentError: none is, or several are; which of them has the
    text would be a guess."""
    fields = (field,) if isinstance(field, str) else field
    found = [name for name in names if name in fields]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadDocumentError(
            f"it has the {what}s {' and '.join(map(repr, found))}; a document is in one of them: "
            f"leave out the others, or name one (`field`, on the command line --field)",
            "several_fields",
        )
    names = list(names)
    if {"messages", "conversations"} & set(names):
        remedy = (
            "corpus encode and corpus sample read conversations with --format chat (in Python "
            'field=None), and encoding jobs with "format": "chat"; the other commands and training '
            "read texts, which tokenizer chat FILE --text writes"
        )
    else:
        remedy = (
            f"name the one with the text (`field`, on the command line --field) of {names!r:.200}"
        )
    raise BadDocumentError(
        f"it has no {what} {' or '.join(map(repr, fields))}; {remedy}", "no_field"
    )


def report_bad(
    error: BadDocumentError, bad: list[BadDocument] | None, file: str, unit: str, number: int
) -> None:
    """Append a bad document of `file` to `bad`; without a list, raise CorpusDocumentError, which
    names its file and place."""
    if bad is None:
        place = f"row {number} (from 1)" if unit == "row" else f"{unit} {number}"
        raise CorpusDocumentError(f"the corpus file {file!r}, {place}: {error}") from None
    bad.append(BadDocument(corpus_file_name(file), unit, number, error.reason))


def empty_invalid_utf8(
    pieces: Iterable[tuple[bytes, bool, bytes]], file: str, bad: list[BadDocument]
) -> Iterator[Utf8Piece]:
    r"""The documents of plain text; one that is not UTF-8 becomes empty and is appended to `bad`.
    `pieces` are a text, whether it is the last of its document, and the separator after it. A
    document in several pieces is held until it is complete: the first 16 MiB in memory, a longer
    one in a temporary file.

    Example:
        >>> pieces, bad = [(b"a", True, b"|\n"), (b"\xff", True, b"")], []
        >>> [piece.text for piece in empty_invalid_utf8(pieces, "a.txt", bad)], bad[0].number
        ([b'a', b''], 2)
    """
    n_ends, wrong_line = 0, 0
    sizes: list[int] = []
    with tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES) as held:
        for text, is_last, separator in pieces:
            if not wrong_line:
                try:
                    text.decode()
                except UnicodeDecodeError as error:
                    wrong_line = n_ends + text.count(b"\n", 0, error.start) + 1
            n_ends += text.count(b"\n") + separator.count(b"\n")
            if not is_last:
                if text and not wrong_line:
                    sizes.append(held.write(text))
                continue
            if sizes:
                held.seek(0)
                if not wrong_line:
                    yield from (Utf8Piece(held.read(size), False) for size in sizes)
                    held.seek(0)
                held.truncate()
                sizes.clear()
            if wrong_line:
                bad.append(BadDocument(corpus_file_name(file), "line", wrong_line, INVALID_UTF8))
                text, wrong_line = b"", 0
            yield Utf8Piece(text, True)
