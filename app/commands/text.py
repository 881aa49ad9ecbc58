"""`tokenizer encode`, `decode`, `count`: text to ids and back, in bounded memory.

May import `command_line` and the core.
"""

from __future__ import annotations

import argparse
import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from app.commands.command_line import (
    CommandError,
    UsageError,
    add_artifacts_dir,
    open_store,
    parse_special_token,
    require_files,
)
from app.settings import Settings
from tokenizer_core.errors import UnknownTokenIdError
from tokenizer_core.formats import load_spec
from tokenizer_core.store import ArtifactRef
from tokenizer_core.tokenizer import Tokenizer

_READ_BYTES: Final = 1 << 16
_IDS_AT_ONCE: Final = 1 << 14
_WIDTHS: Final[dict[str, np.dtype[Any]]] = {"u16": np.dtype("<u2"), "u32": np.dtype("<u4")}
_NOT_IDS: Final = re.compile(rb"[^0-9\s,\[\]]")
_STDIN: Final = Path("-")


def add_parsers(subcommands: Any) -> None:
    """Add the three subcommands."""
    encode = subcommands.add_parser(
        "encode",
        help="text to token ids",
        description="Print the token ids of a text, of files, or of standard input.",
        epilog=(
            "examples:\n"
            "  tokenizer encode 'Hello, world!'\n"
            "  tokenizer encode --file book.txt --format u16 > book.bin\n"
            "  cat book.txt | tokenizer encode --tokenizer starter --json\n"
            "  tokenizer encode --files vocab.json merges.txt 'Hello'\n\n"
            "For text that strangers wrote use --allowed-special none: a special token in it is\n"
            "then plain text."
        ),
    )
    _add_text_arguments(encode)
    encode.add_argument(
        "--format",
        choices=("ids", "json", *_WIDTHS),
        default="ids",
        help="ids: numbers and spaces (default); u16, u32: raw little-endian numbers",
    )
    encode.add_argument("--json", action="store_const", const="json", dest="format")
    encode.set_defaults(run=run_encode)

    count = subcommands.add_parser(
        "count",
        help="how many tokens a text has",
        description="Print the number of token ids of a text, of files, or of standard input.",
        epilog="examples:\n  tokenizer count 'Hello, world!'\n  tokenizer count --file *.txt",
    )
    _add_text_arguments(count)
    count.set_defaults(run=run_count)

    decode = subcommands.add_parser(
        "decode",
        help="token ids to text",
        description=(
            "Write the text of token ids: given as arguments, in a file, or on standard input\n"
            "(numbers with spaces, commas or brackets between them, or raw with --format)."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer decode 15496 11 995 0\n"
            "  tokenizer encode Hello | tokenizer decode\n"
            "  tokenizer decode --file book.bin --format u16"
        ),
    )
    decode.add_argument("ids", nargs="*", metavar="ID")
    decode.add_argument("--file", type=Path, metavar="FILE", help="read the ids from a file")
    decode.add_argument("--format", choices=("ids", *_WIDTHS), default="ids")
    decode.add_argument(
        "--skip-special-tokens", action="store_true", help="leave special tokens out"
    )
    add_tokenizer_arguments(decode)
    decode.set_defaults(run=run_decode)


def _add_text_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", help="the text; without it, --file or standard input")
    parser.add_argument(
        "--file", nargs="+", type=Path, default=[], metavar="FILE", help="UTF-8 files; - is stdin"
    )
    parser.add_argument(
        "--allowed-special",
        default="all",
        metavar="all|none|TOKEN,TOKEN",
        help="special tokens to recognise (default: all); others are plain text",
    )
    add_tokenizer_arguments(parser)


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `load_tokenizer` and `find_tokenizer` read."""
    group = parser.add_argument_group("which tokenizer")
    group.add_argument(
        "--tokenizer",
        metavar="NAME[@VERSION]",
        help="a published one (default: the one being served)",
    )
    group.add_argument(
        "--files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="files of a tokenizer instead, as tokenizer import takes them",
    )
    group.add_argument("--pattern", help="split pattern, where the files do not say it")
    group.add_argument(
        "--special", action="append", type=parse_special_token, default=[], metavar="TOKEN=ID"
    )
    add_artifacts_dir(parser)


def load_tokenizer(arguments: argparse.Namespace) -> Tokenizer:
    """The tokenizer the arguments name, or the one being served."""
    return find_tokenizer(arguments)[0]


def find_tokenizer(arguments: argparse.Namespace) -> tuple[Tokenizer, ArtifactRef | None]:
    """As `load_tokenizer`, with the name and version of a published one."""
    if arguments.files:
        if arguments.tokenizer:
            raise UsageError("--tokenizer and --files exclude each other")
        require_files(arguments.files)
        special = dict(arguments.special) or None
        spec = load_spec(arguments.files, pattern=arguments.pattern, special_tokens=special)
        return Tokenizer.from_spec(spec), None
    if arguments.pattern or arguments.special:
        raise UsageError("--pattern and --special belong to --files; a published tokenizer has its")
    store = open_store(arguments)
    if arguments.tokenizer:
        ref = store.resolve(arguments.tokenizer)
    else:
        ref = store.active() or store.resolve(Settings.from_environment().default)
    return Tokenizer.from_spec(store.open(ref)), ref


def run_encode(arguments: argparse.Namespace) -> None:
    """Print ids as they are settled."""
    tokenizer = load_tokenizer(arguments)
    out = sys.stdout.buffer
    if arguments.format in _WIDTHS:
        width = _WIDTHS[arguments.format]
        largest = tokenizer.spec.largest_id
        if largest > np.iinfo(width).max:
            raise UsageError(
                f"the largest id of this tokenizer is {largest}, too large for u16; use u32"
            )
        for block in _blocks(_ids_of_all(tokenizer, arguments)):
            out.write(np.array(block, dtype=width).tobytes())
        return
    before, between, after = (
        (b"[", b", ", b"]\n") if arguments.format == "json" else (b"", b" ", b"\n")
    )
    out.write(before)
    is_first = True
    for block in _blocks(_ids_of_all(tokenizer, arguments)):
        out.write((b"" if is_first else between) + between.join(b"%d" % id_ for id_ in block))
        is_first = False
    out.write(after)


def run_count(arguments: argparse.Namespace) -> None:
    """Print one number, or one line a file when there are several."""
    tokenizer = load_tokenizer(arguments)
    allowed = allowed_special(tokenizer, arguments.allowed_special)
    for path in arguments.file if len(arguments.file) > 1 else ():
        print(f"{sum(1 for _ in _ids_of_file(tokenizer, path, allowed))}\t{path}")
    if len(arguments.file) <= 1:
        print(sum(1 for _ in _ids_of_all(tokenizer, arguments)))


def run_decode(arguments: argparse.Namespace) -> None:
    """Write the bytes the ids stand for, nothing added."""
    if arguments.ids and arguments.file:
        raise UsageError("give ids as arguments or with --file, not both")
    tokenizer = load_tokenizer(arguments)
    skipped = (
        set(tokenizer.spec.special_tokens.values()) if arguments.skip_special_tokens else set()
    )
    done = 0
    for block in _id_blocks(arguments):
        try:
            text = tokenizer.decode_bytes([id_ for id_ in block if id_ not in skipped])
        except UnknownTokenIdError as error:
            index = done + block.index(int(str(error.token_id)))
            raise UnknownTokenIdError(index, error.token_id, tokenizer.spec.largest_id) from None
        sys.stdout.buffer.write(text)
        done += len(block)
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")


def allowed_special(tokenizer: Tokenizer, text: str) -> Any:
    """What `--allowed-special` says; raises UsageError where the tokenizer has no such token."""
    if text in ("all", "none"):
        return text
    wanted = {token for token in text.split(",") if token}
    unknown = sorted(wanted - {token.content for token in tokenizer.spec.added_tokens})
    if unknown:
        known = ", ".join(tokenizer.spec.special_tokens) or "none"
        raise UsageError(f"{unknown[0]!r} is no special token of this tokenizer; it has: {known}")
    return wanted


def _ids_of_all(tokenizer: Tokenizer, arguments: argparse.Namespace) -> Iterator[int]:
    allowed = allowed_special(tokenizer, arguments.allowed_special)
    if arguments.text is not None:
        if arguments.file:
            raise UsageError("give the text as an argument or with --file, not both")
        yield from tokenizer.encode(arguments.text, allowed_special=allowed)
        return
    for path in arguments.file or [_STDIN]:
        yield from _ids_of_file(tokenizer, path, allowed)


def _ids_of_file(tokenizer: Tokenizer, path: Path, allowed: Any) -> Iterator[int]:
    with _open_input(path) as file:
        pieces = _decode_utf8(file, str(path))
        if tokenizer.spec.pattern.is_named:
            yield from tokenizer.encode_iterable(pieces, allowed_special=allowed)
        else:  # nothing is known of what a pattern of one's own looks at: the whole text at once
            yield from tokenizer.encode("".join(pieces), allowed_special=allowed)


@contextmanager
def _open_input(path: Path) -> Iterator[IO[bytes]]:
    if path == _STDIN:
        yield sys.stdin.buffer
        return
    require_files([path])
    with path.open("rb") as file:
        yield file


def _decode_utf8(file: IO[bytes], name: str) -> Iterator[str]:
    """Strictly, so that nothing is dropped or replaced in silence; newlines as they are."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    while True:
        data = file.read(_READ_BYTES)
        held = len(decoder.getstate()[0])
        try:
            yield decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            place = offset - held + error.start
            raise CommandError(
                f"{'standard input' if name == '-' else name} is not UTF-8 at byte {place}; "
                f"convert it first, for instance with iconv"
            ) from None
        if not data:
            return
        offset += len(data)


def _id_blocks(arguments: argparse.Namespace) -> Iterator[list[int]]:
    if arguments.ids:
        yield _parse_ids(" ".join(arguments.ids).encode())
        return
    with _open_input(arguments.file or _STDIN) as file:
        if arguments.format in _WIDTHS:
            yield from _raw_blocks(file, _WIDTHS[arguments.format])
            return
        held = b""
        while data := file.read(_READ_BYTES):
            data = held + data
            cut = len(data)  # a number may go on in the next piece
            while cut and data[cut - 1 : cut].isdigit():
                cut -= 1
            held = data[cut:]
            if len(held) > _READ_BYTES:
                raise CommandError("a number in the input is longer than any token id")
            yield _parse_ids(data[:cut])
        yield _parse_ids(held)


def _raw_blocks(file: IO[bytes], width: np.dtype[Any]) -> Iterator[list[int]]:
    held = b""
    while data := file.read(_READ_BYTES):
        data = held + data
        cut = len(data) - len(data) % width.itemsize
        held = data[cut:]
        yield np.frombuffer(data[:cut], dtype=width).tolist()
    if held:
        raise CommandError(
            f"the input ends inside a number of {width.itemsize} bytes; is it cut off, or of the "
            f"other --format?"
        )


def _parse_ids(data: bytes) -> list[int]:
    wrong = _NOT_IDS.search(data)
    if wrong:
        raise CommandError(
            f"{wrong.group().decode(errors='replace')!r} is no part of a list of ids; give numbers "
            f"with spaces or commas between them"
        )
    words = re.split(rb"[\s,\[\]]+", data)
    if any(len(word) > 20 for word in words):
        raise CommandError("a number in the input is longer than any token id")
    return [int(word) for word in words if word]


def _blocks(ids: Iterable[int]) -> Iterator[list[int]]:
    iterator = iter(ids)
    while block := list(islice(iterator, _IDS_AT_ONCE)):
        yield block
