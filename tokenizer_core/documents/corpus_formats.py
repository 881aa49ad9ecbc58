"""The formats of corpus files: by name, by the first bytes, or as the user says: `CorpusFormat`."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents.corpus_addresses import is_address, parse_address
from tokenizer_core.documents.json_lines import DEFAULT_FIELD
from tokenizer_core.errors import CorpusError
from tokenizer_core.spec.document_end import END_OF_TEXT

FORMATS: Final = ("txt", "txt.gz", "txt.zst", "jsonl", "jsonl.gz", "jsonl.zst", "parquet")
"""The names of the formats; the extension of a file selects one."""

CONTENT_BYTES: Final = 1 << 16
"""How many of the first bytes of a file `format_of_content` looks at."""


@dataclass(frozen=True, slots=True)
class CorpusFormat:
    """How files hold documents; `open_documents` describes the documents of each format.

    - `format`: one of `FORMATS`; by default, from the extension of the file. A file whose name ends
      in none of them is text, but an error if its first bytes are those of another format.
    - `field`: of JSON lines and Parquet, or a list of fields, of which each record and each file
      of Parquet has exactly one. None: a document is a whole record. A dict: one of these for
      each file, by its path.
    - `separator`: of plain text.
    """

    format: str | None = None
    # Lists, as JSON has them in checkpoints.
    field: str | list[str] | dict[str, str | list[str]] | None = DEFAULT_FIELD
    separator: str | None = None

    def field_of(self, path: str | os.PathLike[str]) -> str | list[str] | None:
        """The `field` of one file; raise ValueError if the dict has none for it."""
        if not isinstance(self.field, dict):
            return self.field
        if (name := os.fspath(path)) not in self.field:
            raise ValueError(f"the dict `field` has no field for the file {name!r:.200}")
        return self.field[name]

    def settings(self) -> dict[str, Any]:
        """The fields for checkpoints, without the paths of files, which may move."""
        each = self.field
        return {
            "format": self.format,
            "field": [[field] for field in each.values()] if isinstance(each, dict) else each,
            "separator": self.separator,
        }

    def choose(self, path: str | os.PathLike[str]) -> tuple[str, bool]:
        """The format of a file, and whether its content need not be looked at.

        Raises:
            ValueError: the format is unknown.
            CorpusError: the file is text, and a document is a whole record.
        """
        if self.format is not None and self.format not in FORMATS:
            raise ValueError(
                f"there is no format {self.format!r:.40}; give one of {', '.join(FORMATS)}"
            )
        name = os.fspath(path)
        known = format_of_name(parse_address(name).shown if is_address(name) else name)
        chosen = self.format or known
        if self.field is not None:
            return chosen or "txt", self.format is not None or known not in (None, "txt")
        if chosen is not None and chosen.startswith("txt"):
            raise CorpusError(
                f"the corpus file {Path(name).name!r} is text, and conversations are lines of JSON "
                f"or rows of Parquet; give such a file, or rename it if it is one"
            )
        return chosen or "jsonl", True

    def is_plain_text(self, path: str | os.PathLike[str]) -> bool:
        """Whether the file is text that is not packed; raise as `choose`."""
        return self.choose(path)[0] == "txt"

    def can_be_entered(self, path: str | os.PathLike[str]) -> bool:
        """Whether the documents of the file can be read without those before them: yes for plain
        text with a separator and for JSON lines, if they are not packed; raise as `choose`.

        Example:
            >>> [BY_NAME.can_be_entered(name) for name in ("a.jsonl", "a.jsonl.gz", "a.txt")]
            [True, False, False]
        """
        return self.ending(self.choose(path)[0]) is not None

    def ending(self, chosen: str) -> bytes | None:
        """The bytes after each document of a file of this format that can be entered; None for
        other files."""
        if chosen == "jsonl":
            return b"\n"
        return self.separator.encode() if chosen == "txt" and self.separator else None

    def needs_copy(self, path: str | os.PathLike[str], special_tokens: Sequence[str] = ()) -> bool:
        """Whether only a copy of the file is plain text on the disk whose documents these tokens
        end."""
        is_ended = self.separator is None or self.separator in special_tokens
        return not (is_ended and self.is_plain_text(path)) or is_address(os.fspath(path))


BY_NAME: Final = CorpusFormat()
"""The format of each file is that of its name."""


def unused_separator(separator: str) -> str:
    """What a warning says of a separator that ends no document."""
    return (
        f"the separator {separator!r} occurs nowhere: each file is one document; name what ends a "
        f"document (`separator`, on the command line --separator, $'\\n' for a line)"
    )


ENDS_OF_TEXT: Final = CorpusFormat(separator=END_OF_TEXT)
"""The same; in plain text `<|endoftext|>` ends a document."""


def format_of_name(name: str) -> str | None:
    """The format that a file name ends in, or None; `.ndjson` is another name of `.jsonl`.

    Example:
        >>> format_of_name("news/today.NDJSON.gz"), format_of_name("bible.en")
        ('jsonl.gz', None)
    """
    name = _NDJSON.sub(".jsonl", name.lower())
    return next((known for known in FORMATS if name.endswith(f".{known}")), None)


_NDJSON: Final = re.compile(r"\.ndjson(?=(\.gz|\.zst)?$)")


def format_of_content(data: bytes, name: str = "") -> str | None:
    """The format of a file that begins with these bytes, at least `CONTENT_BYTES` or all of it;
    None for text. Of a packed file only the packing is known: `gz`, `zst`.

    It is JSON lines if the first lines are JSON objects. Otherwise its `name` may make it `json` (a
    list, or an object over several lines), `csv` or `arrow`. Nothing here reads these, nor `tar`,
    `warc`, `zip`, `bz2`, `xz` and `utf-16`.

    Example:
        >>> format_of_content(b'{"text": "one"}'), format_of_content(b"{}, or text")
        ('jsonl', None)
        >>> format_of_content(b'[{"text": "one"}]', "a.json")
        'json'
    """
    for found, (offset, magic) in _MAGIC.items():
        if data.startswith(magic, offset):
            return "warc" if found == "gz" and name.lower().endswith(_PACKED_WARC) else found
    if data.count(0) * 4 > len(data):  # English has one in two bytes, and is UTF-8 like this
        return "utf-16"
    is_whole = len(data) < CONTENT_BYTES
    *lines, rest = data.removeprefix(codecs.BOM_UTF8).split(b"\n", 2)
    if len(lines) < 2 and rest and is_whole:  # else the last line may not be there whole
        lines.append(rest)
    if all(map(_is_object, lines)) if lines else _OPENS_OBJECT.match(rest):
        return "jsonl"
    _, _, ending = name.lower().rpartition(".")
    return {"json": "json", "csv": "csv", "tsv": "csv", "arrow": "arrow"}.get(ending)


CONTENT_NAMES: Final = {
    "gz": "packed with gzip", "zst": "packed with Zstandard", "parquet": "a Parquet file",
    "jsonl": "JSON lines", "json": "JSON, but not JSON lines", "csv": "a table",
    "tar": "an archive of files", "zip": "an archive of files", "bz2": "packed with bzip2",
    "xz": "packed with xz", "warc": "a WARC file", "arrow": "an Arrow file",
    "utf-16": "UTF-16, or has as many zeros",
}  # fmt: skip
"""What messages say of the results of `format_of_content`."""


def content_remedy(found: str) -> str:
    """What to do with content that nothing here reads; see `format_of_content`."""
    if found in ("tar", "zip", "bz2", "xz"):
        return "unpack it"
    return "write UTF-8" if found == "utf-16" else "write JSON lines"


_MAGIC: Final = {
    "gz": (0, b"\x1f\x8b"), "zst": (0, b"\x28\xb5\x2f\xfd"), "parquet": (0, b"PAR1"),
    # These two may be UTF-8, and their headers would become tokens.
    "tar": (257, b"ustar"), "warc": (0, b"WARC/"),
    "zip": (0, b"PK\x03\x04"), "bz2": (4, b"1AY&SY"), "xz": (0, b"\xfd7zXZ"),
}  # fmt: skip
_PACKED_WARC: Final = (".warc.gz", ".wet.gz", ".wat.gz")
_OPENS_OBJECT: Final = re.compile(rb"\s*\{\s*\"[^\"\\]*\"\s*:")


def _is_object(line: bytes) -> bool:
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def check_text_content(name: str, data: bytes) -> None:
    """Check that a file that its name makes text begins like text; see `format_of_content`. Raises
    CorpusError: it begins like another format."""
    found = format_of_content(data, name)
    if found in ("tar", "zip") or (found is not None and name.lower().endswith(_ARCHIVES)):
        raise CorpusError(f"the corpus file {name!r} is an archive of files; unpack it")
    if found is None:
        return
    packing = (format_of_name(name) or "").removeprefix("txt")
    if packing and found in ("gz", "zst", "parquet"):
        way_on = f"within the {packing} of its name; unpack it"
    elif found in ("bz2", "xz"):
        way_on = "which is not read; unpack it"
    elif found in _OPTIONS:
        way_on = (
            f"and its name does not say so; rename it, or {_NAME_IT}: {_OPTIONS[found]}{packing}"
        )
    else:
        way_on = f"which is not read; {content_remedy(found)}, or {_NAME_IT}"
    if found not in ("bz2", "xz", "gz", "zst"):  # these are not UTF-8
        way_on += f"; txt{packing} reads it as text"
    raise CorpusError(f"the corpus file {name!r} is {CONTENT_NAMES[found]}, {way_on}")


def check_not_packed(name: str, beginning: bytes) -> None:
    """Raise CorpusError: a file that is said to be JSON lines begins like a packed one."""
    found = format_of_content(beginning)
    if found in _MAGIC:
        raise CorpusError(
            f"the corpus file {name!r} is {CONTENT_NAMES[found]}, and its name or format says JSON "
            f"lines; rename it, or {_NAME_IT}"
        )


_NAME_IT: Final = (
    "name its format (--format, in Python CorpusFormat(format=), in requests and uploads format)"
)
_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar.zst")
_OPTIONS: Final = {
    "gz": "txt.gz or jsonl.gz", "zst": "txt.zst or jsonl.zst", "parquet": "parquet",
    "jsonl": "jsonl",
}  # fmt: skip
