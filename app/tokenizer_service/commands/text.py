"""`tokenizer encode`, `decode`, `count`: text to ids and back, in bounded memory; `truncate` and
`chunk` of a whole text."""

from __future__ import annotations

import argparse
import codecs
import glob
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import InvalidUtf8Error, SpecialTokenForbiddenError
from tokenizer_service.commands.coders import Coder, Specials
from tokenizer_service.commands.command_line import (
    CommandError,
    CommandParser,
    UsageError,
    add_command,
    add_field,
    is_given,
    refuse_packed,
    require_files,
)
from tokenizer_service.commands.outputs import (
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    add_output,
    print_json,
    render_pieces,
    require_other_files,
    write_output,
)
from tokenizer_service.commands.progress import add_quiet, has_colours, progress_bar
from tokenizer_service.commands.tokenizer_arguments import (
    add_tokenizer_arguments,
    find_coder,
    specials_of,
    tokenizer_files,
)

if TYPE_CHECKING:
    from tokenizer_core.documents import CorpusFormat

_READ_BYTES: Final = 1 << 18
_WIDTHS: Final = {"u16": 2, "u32": 4}
"""The bytes of an id."""
_NOT_DOCUMENTS: Final = (
    "note: this is about all of the text, and not the documents in its lines; of these: tokenizer "
    "corpus encode, tokenizer count --file FILE"
)
_NOT_IDS: Final = re.compile(rb"[^0-9\s,\[\]]")


def add_parsers(subcommands: Any) -> None:
    """Add the subcommands."""
    encode = add_command(subcommands, run_encode)
    _add_text_arguments(encode)
    _add_special_tokens(encode)
    formats = encode.add_mutually_exclusive_group()
    formats.add_argument(
        "--format",
        choices=("ids", "json", "pieces", *_WIDTHS),
        default="ids",
        help="ids: numbers and spaces (default), json: a list; of several files a line each; "
        "pieces: see --pieces; u16, u32: raw little-endian numbers, of all files in a row",
    )
    formats.add_argument(
        "--pieces",
        action="store_const",
        const="pieces",
        dest="format",
        help="show the text cut into tokens, in colour; in a pipe or with NO_COLOR a line each: "
        "the id, a tab, the piece as a JSON string, or its bytes as <e2 84>",
    )
    formats.add_argument(
        "--json", action="store_const", const="json", dest="format", help="as --format json"
    )
    add_output(encode, about="write the ids to a file, which appears when complete")

    count = add_command(subcommands, run_count)
    by_default = "all; in a document of JSON lines or Parquet one is an error, as for corpus encode"
    _add_text_arguments(count, by_default)
    _add_special_tokens(count)
    count.add("--json", "print tokens and bytes, in total and per file, as JSON")
    count.add(
        "--format FORMAT",
        "format of the files (default: by the name of each; txt: all of a file as it is). Of JSON "
        "lines and Parquet, also packed, the texts of the documents count",
    )
    add_field(count)

    truncate = add_command(subcommands, run_truncate)
    _add_max_tokens(truncate)
    about = "the side to cut off (default: right)"
    truncate.add("--side", about, choices=("right", "left"), default="right")
    truncate.add("--json", "print text, tokens, start and end as JSON")
    _add_text_arguments(truncate)

    chunk = add_command(subcommands, run_chunk)
    _add_max_tokens(chunk)
    chunk.add("--overlap-tokens N", "most tokens that a chunk repeats (default: 0)", default=0)
    _add_text_arguments(chunk)

    decode = add_command(subcommands, run_decode)
    decode.add("ids ID", "without one, --file or stdin", nargs="*")
    decode.add("--file FILE", "read the ids from a file")
    decode.add(
        "--format",
        "format of the ids, as encode writes it (default: ids)",
        choices=("ids", *_WIDTHS),
        default="ids",
    )
    decode.add("--skip-special-tokens", "omit special tokens")
    add_output(decode, about="write the text to a file, which appears when complete")
    add_quiet(decode)
    add_tokenizer_arguments(decode, has_server=True)


def _add_max_tokens(parser: CommandParser) -> None:
    parser.add("-n --max-tokens N", "most tokens of the result", required=True)


def _add_text_arguments(parser: CommandParser, by_default: str = "all") -> None:
    parser.add("text", "the text; without it, --file or standard input", nargs="?")
    parser.add(
        "--file FILE",
        "UTF-8 files, or patterns of them in quotes; - is stdin",
        nargs="+",
        default=[],
    )
    parser.add(
        "--allowed-special all|none|ordinary|TOKEN,TOKEN",
        f"special tokens to recognise (default: {by_default}); others are plain text. ordinary: no "
        "added token at all",
        default="all",
    )
    parser.add(
        "--disallowed-special all|TOKEN,TOKEN",
        "special tokens that are an error in the text (default: none)",
        default="",
    )
    add_quiet(parser)
    add_tokenizer_arguments(parser, has_server=True)


def _add_special_tokens(parser: CommandParser) -> None:
    about = "put around each text what the tokenizer's post-processor adds, such as <s> or [CLS]"
    parser.add("--add-special-tokens", about)


def run_encode(arguments: argparse.Namespace) -> None:
    """Print the token ids of a text, of files, or of standard input.

    examples:
      tokenizer encode 'Hello, world!'
      tokenizer encode --pieces --tokenizer gpt2 'Hello, world!'
      tokenizer encode --file book.txt --format u16 --output book.bin
      cat book.txt | tokenizer encode --tokenizer starter --json
      tokenizer encode 'Hello' --files vocab.json merges.txt

    For text that strangers wrote use --allowed-special none: a special token in it is
    then plain text; with ordinary, any added token is; with --disallowed-special all it
    is an error. Many documents for a model to train on: tokenizer corpus encode.
    """
    _check_text(arguments)
    require_other_files([arguments.output], [*arguments.file, *tokenizer_files(arguments)])
    coder = find_coder(arguments)
    if arguments.format == "u16" and coder.largest_id > 0xFFFF:
        raise UsageError(
            f"the largest id of this tokenizer is {coder.largest_id}, too large for u16; use u32"
        )
    specials = specials_of(coder, arguments)
    is_coloured = arguments.output == STANDARD_OUTPUT and has_colours(sys.stdout)

    def render() -> Iterator[bytes]:
        with _bar_over(arguments) as bar:
            for path in _inputs(arguments):
                blocks = _blocks(coder, specials, arguments, path, bar)
                if arguments.format == "pieces":
                    yield from render_pieces(blocks, coder.vocab, is_coloured=is_coloured)
                else:
                    yield from _render_ids(blocks, arguments.format)

    write_output(arguments.output, render())


def _render_ids(blocks: Iterable[list[int]], kind: str) -> Iterator[bytes]:
    if kind in _WIDTHS:
        import numpy as np

        for block in blocks:
            yield np.array(block, dtype=f"<u{_WIDTHS[kind]}").tobytes()
        return
    before, between, after = ("[", ", ", "]\n") if kind == "json" else ("", " ", "\n")
    yield before.encode()
    is_first = True
    for block in blocks:
        if block:
            yield ((("" if is_first else between) + between.join(map(str, block))).encode())
            is_first = False
    yield after.encode()


def run_count(arguments: argparse.Namespace) -> None:
    """Print the number of token ids of a text, of files, or of standard input. Several files
    have a line each, and then a total.

    examples:
      tokenizer count 'Hello, world!'
      tokenizer count --file *.txt
      tokenizer count --file *.txt --json | jq .tokens
      tokenizer count --file *.txt *.jsonl.zst
    """
    _check_text(arguments)
    kind = _format_of_files(arguments)
    coder = find_coder(arguments)
    specials = specials_of(coder, arguments)
    rows: list[dict[str, Any]] = []
    with _bar_over(arguments) as bar:
        for path in _inputs(arguments):
            n_bytes = bar.n
            if path not in (None, STANDARD_INPUT) and not kind.is_plain_text(path):
                n_tokens, n_read = _count_documents(coder, specials, arguments, path, kind, bar)
            else:
                n_tokens = sum(map(len, _blocks(coder, specials, arguments, path, bar)))
                n_read = bar.n - n_bytes
            rows.append({"file": path and str(path), "tokens": n_tokens, "bytes": n_read})
            if len(arguments.file) > 1 and not arguments.json:
                bar.clear()
                print(f"{n_tokens}\t{path}", flush=True)
    total = {key: sum(row[key] for row in rows) for key in ("tokens", "bytes")}
    if arguments.json:
        named = [row for row in rows if row["file"] not in (None, "-")]
        print_json({"tokenizer": coder.name, **total, "files": named})
    else:
        print(f"{total['tokens']}\ttotal" if len(arguments.file) > 1 else total["tokens"])


def _format_of_files(arguments: argparse.Namespace) -> CorpusFormat:
    """That of `--format` and `--field`, or of the name of each file, which its content must not
    contradict."""
    from tokenizer_core.documents import (  # here: `encode` does not load it
        CONTENT_BYTES,
        FORMATS,
        CorpusFormat,
        check_text_content,
    )
    from tokenizer_service.commands.corpus_options import field_of

    if arguments.format not in (None, *FORMATS):
        raise UsageError(f"there is no format {arguments.format}; give one of {', '.join(FORMATS)}")
    is_asked = arguments.format or arguments.field
    if is_asked and (not arguments.file or STANDARD_INPUT in arguments.file):
        raise UsageError("--format and --field are of files; name them with --file")
    kind = CorpusFormat(arguments.format, field_of(arguments, arguments.file))
    for path in arguments.file:  # a pipe has no beginning to look at
        if path != STANDARD_INPUT and path.is_file() and not kind.choose(path)[1]:
            with path.open("rb") as file:
                check_text_content(str(path), file.read(CONTENT_BYTES))
    return kind


def _count_documents(
    coder: Coder,
    specials: Specials,
    arguments: argparse.Namespace,
    path: Path,
    kind: CorpusFormat,
    bar: Any,
) -> tuple[int, int]:
    """The tokens of the documents of a file, and the bytes of their text."""
    from tokenizer_core.corpus.token_plan import specials_of_documents
    from tokenizer_core.documents import open_documents

    allowed, disallowed = specials["allowed_special"], specials["disallowed_special"]
    allowed = allowed if is_given(arguments, "allowed_special") else None
    is_text = kind.choose(path)[0].startswith("txt")
    specials = specials_of_documents(allowed, disallowed, is_text=is_text)
    n_around = coder.n_around if arguments.add_special_tokens else 0
    n_documents, n_tokens, n_bytes, done = 0, 0, 0, bar.n

    def sized(pieces: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
        nonlocal n_documents, n_tokens, n_bytes
        for text, is_last in pieces:
            n_bytes += len(text.encode())
            yield text, is_last
            n_documents += is_last
            n_tokens += n_around if is_last else 0

    with open_documents(path, kind) as reader:
        try:
            for n_more in coder.count_documents(sized(reader), specials):
                n_tokens += n_more
                bar.update(done + reader.position_bytes - bar.n)
        except SpecialTokenForbiddenError as error:
            with open_documents(path, kind) as again:
                place, _ = again.find_place(n_documents if error.index is None else error.index)
            raise SpecialTokenForbiddenError(error.token, f"{path}, {place}") from None
    return n_tokens, n_bytes


def run_truncate(arguments: argparse.Namespace) -> None:
    """Print the beginning of a text, a file or standard input with at most N tokens, or its
    end. The result, encoded alone, has at most N tokens; it is cut between tokens.

    examples:
      tokenizer truncate --max-tokens 100 --file page.txt
      cat page.txt | tokenizer truncate -n 100 --side left --json
    """
    coder, specials, text = _read_whole(arguments)
    part = coder.truncate(text, arguments.max_tokens, arguments.side, specials)
    if arguments.json:
        print_json(part)
    else:
        write_output(STANDARD_OUTPUT, part["text"].encode())
        if sys.stdout.isatty():
            print()


def run_chunk(arguments: argparse.Namespace) -> None:
    """Print the chunks of a text, a file or standard input, one JSON object a line: text,
    tokens, and start and end in bytes. Each has at most N tokens when encoded alone.

    examples:
      tokenizer chunk --max-tokens 256 --overlap-tokens 32 --file page.txt
      cat page.txt | tokenizer chunk -n 256 | jq -r .text
    """
    overlap = arguments.overlap_tokens
    if not 0 <= overlap < arguments.max_tokens:
        raise UsageError("--max-tokens is at least 1, and --overlap-tokens from 0 to one less")
    coder, specials, text = _read_whole(arguments)
    for part in coder.chunk(text, arguments.max_tokens, overlap, specials):
        print(json.dumps(part, ensure_ascii=False))


def _read_whole(arguments: argparse.Namespace) -> tuple[Coder, Specials, str]:
    """The coder, its options, and the whole text."""
    _check_text(arguments)
    if len(arguments.file) > 1:
        raise UsageError(f"{arguments.command} takes one text; name one --file")
    coder = find_coder(arguments)
    specials = specials_of(coder, arguments)
    if arguments.text is not None:
        return coder, specials, arguments.text
    path = (arguments.file or [STANDARD_INPUT])[0]
    with _bar_over(arguments) as bar, _open_input(path) as file:
        return coder, specials, "".join(_decode_utf8(file, str(path), bar))


def run_decode(arguments: argparse.Namespace) -> None:
    """Write the text of token ids: given as arguments, in a file, or on standard input
    (numbers with spaces, commas or brackets between them, or raw with --format).

    examples:
      tokenizer decode 15496 11 995 0
      tokenizer encode Hello | tokenizer decode
      tokenizer decode --file book.bin --format u16 --output book.txt
    """
    if arguments.ids and arguments.file:
        raise UsageError("give ids as arguments or with --file, not both")
    inputs = [*filter(None, [arguments.file]), *tokenizer_files(arguments)]
    require_files([path for path in (arguments.file,) if path not in (None, STANDARD_INPUT)])
    require_other_files([arguments.output], inputs)
    coder = find_coder(arguments)
    with _bar_over(arguments) as bar:
        blocks = _id_blocks(arguments, bar)
        text = coder.decode(blocks, skip_special_tokens=arguments.skip_special_tokens)
        write_output(arguments.output, text)
    if arguments.output == STANDARD_OUTPUT and sys.stdout.isatty():
        print()


def _check_text(arguments: argparse.Namespace) -> None:
    if arguments.text is not None and arguments.file:
        raise UsageError("give the text as an argument or with --file, not both")
    (arguments.text or "").encode()  # raises for what is no UTF-8, before a service is asked
    arguments.file = [path for named in arguments.file for path in _matches(named)]
    require_files([path for path in arguments.file if path != STANDARD_INPUT])
    is_listed = any(path.suffix in (".jsonl", ".ndjson") for path in arguments.file)
    if is_listed and arguments.command != "count":
        print(_NOT_DOCUMENTS, file=sys.stderr)
    if arguments.text == "-":
        print("note: this is about the text -; for standard input leave it out", file=sys.stderr)
    with suppress(OSError, ValueError):  # a long text is no name
        if arguments.text and Path(arguments.text).is_file():
            print(
                f"note: {arguments.text} is a file here, and this is about its name; for what it "
                f"holds: tokenizer {arguments.command} --file {shlex.quote(arguments.text)}",
                file=sys.stderr,
            )


def _matches(path: Path) -> list[Path]:
    """The files that a path names: several if it is a pattern that no shell has replaced."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    from tokenizer_core.documents import find_corpus_files

    return list(map(Path, find_corpus_files(path)))


def _bar_over(arguments: argparse.Namespace) -> Any:
    """A progress bar over the bytes of the files; short work shows none."""
    files = arguments.file if isinstance(arguments.file, list) else [arguments.file]
    sizes = [path.stat().st_size for path in files if path and path != STANDARD_INPUT]
    # Ids printed on the terminal already show the progress.
    output = getattr(arguments, "output", None)
    quiet = arguments.quiet or (output == STANDARD_OUTPUT and sys.stdout.isatty())
    names = {"encode": "encoding", "decode": "decoding", "count": "counting"}
    name = names.get(arguments.command, "reading")
    return progress_bar(quiet=quiet, total=sum(sizes) or None, desc=name)


def _inputs(arguments: argparse.Namespace) -> list[Path | None]:
    """The files to read; None for the text of the command line."""
    return [None] if arguments.text is not None else arguments.file or [STANDARD_INPUT]


def _blocks(
    coder: Coder, specials: Specials, arguments: argparse.Namespace, path: Path | None, bar: Any
) -> Iterator[list[int]]:
    """Yield the ids of a file, or of the given text, each once it is final."""
    adds = arguments.add_special_tokens
    if path is None:
        bar.update(len(arguments.text.encode()))
        yield from coder.encode(arguments.text, specials, add_special_tokens=adds)
        return
    with _open_input(path) as file:
        pieces = _decode_utf8(file, str(path), bar)
        try:
            yield from coder.encode(pieces, specials, add_special_tokens=adds)
        except SpecialTokenForbiddenError as error:
            which = "standard input" if path == STANDARD_INPUT else str(path)
            raise SpecialTokenForbiddenError(error.token, which=which) from None


@contextmanager
def _open_input(path: Path) -> Iterator[BufferedIOBase]:
    if path == STANDARD_INPUT:
        if sys.stdin.isatty():
            print("type the text; Ctrl-D ends it", file=sys.stderr)
        buffered: Any = sys.stdin.buffer  # typeshed does not declare its `read1`
        yield buffered
        return
    require_files([path])
    with path.open("rb") as file:
        yield file


def _decode_utf8(file: BufferedIOBase, name: str, bar: Any) -> Iterator[str]:
    """Decode strictly, without dropping or replacing any byte; keep newlines unchanged."""
    from tokenizer_core.documents import format_of_content
    from tokenizer_core.documents.document_pieces import Utf8Decoder

    decoder, first = Utf8Decoder(), b""
    while True:
        data = file.read1(_READ_BYTES)
        is_start = name == "-" and not first
        if is_start and data.count(b"\n") > 1 and format_of_content(data) == "jsonl":
            print(_NOT_DOCUMENTS, file=sys.stderr)
        first = first or data
        bar.update(len(data))
        try:
            yield decoder.decode(data, final=not data)
        except InvalidUtf8Error as error:
            shown = "standard input" if name == "-" else name
            refuse_packed(
                shown,
                first,
                "plain text; unpack it first, or use tokenizer corpus encode, or tokenizer count "
                "--format",
            )
            raise CommandError(
                f"{shown} is not UTF-8 at byte {error.byte_offset}; convert it first, for instance "
                f"with iconv"
            ) from None
        if not data:
            return


def _id_blocks(arguments: argparse.Namespace, bar: Any) -> Iterator[list[int]]:
    n_open = 0

    def ids_in(data: bytes) -> list[int]:
        nonlocal n_open
        n_open += data.count(b"[") - data.count(b"]")
        return _parse_ids(data)

    if arguments.ids:
        yield ids_in(" ".join(arguments.ids).encode())
        _check_brackets(n_open)
        return
    with _open_input(arguments.file or STANDARD_INPUT) as file:
        if arguments.format in _WIDTHS:
            yield from _raw_blocks(file, _WIDTHS[arguments.format], bar)
            return
        held, is_start = b"", True
        while data := file.read1(_READ_BYTES):
            bar.update(len(data))
            if is_start:
                data, is_start = data.removeprefix(codecs.BOM_UTF8), False
            data = held + data
            cut = len(data)  # the last number may continue in the next piece
            while cut and data[cut - 1 : cut].isdigit():
                cut -= 1
            held = data[cut:]
            if len(held) > _READ_BYTES:
                raise CommandError("a number in the input is longer than any token id")
            yield ids_in(data[:cut])
        yield ids_in(held)
        _check_brackets(n_open)


def _check_brackets(n_open: int) -> None:
    if n_open:
        raise CommandError("a list of ids has no end, or no beginning; is the input cut off?")


def _raw_blocks(file: BufferedIOBase, width: int, bar: Any) -> Iterator[list[int]]:
    import numpy as np

    held = b""
    while data := file.read1(_READ_BYTES):
        bar.update(len(data))
        data = held + data
        cut = len(data) - len(data) % width
        held = data[cut:]
        yield np.frombuffer(data[:cut], dtype=f"<u{width}").tolist()
    if held:
        raise CommandError(
            f"the input ends inside a number of {width} bytes; is it cut off, or of the "
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
