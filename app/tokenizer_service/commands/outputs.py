"""Outputs of commands: whole files, `-` for standard output, figures as JSON, tokens as pieces.

After Ctrl-C, a kill or a full disk, the old file is unchanged.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.text.pieces import readable_token
from tokenizer_service.commands.command_line import (
    CommandError,
    CommandParser,
    UsageError,
    require_writable,
)

if TYPE_CHECKING:
    from tokenizer_core.training import IdMap

STANDARD_INPUT: Final = Path("-")
STANDARD_OUTPUT: Final = Path("-")
_BACKGROUNDS: Final = (153, 222, 157, 218, 183, 159)
"""Light colours of the palette of 256."""
_SIGNS: Final = {"\n": "⏎\n", "\t": "⇥"}


def add_output(parser: Any, *, about: str) -> None:
    """Add `-o` and `--output`."""
    parser.add("-o --output FILE", about, default=STANDARD_OUTPUT)


def add_reports(parser: CommandParser, *, html: str) -> None:
    """Add `--json [FILE]` and `--html FILE`. A FILE has the ending of what is written, because
    argparse takes any word after `--json` for it, also a corpus."""
    parser.add(
        "--json FILE",
        "write the report as JSON to a .json file; without FILE, print only that",
        nargs="?",
        const=STANDARD_OUTPUT,
        type=partial(_parse_report, endings=(".json",)),
    )
    add_html(parser, html)


def add_html(parser: CommandParser, about: str) -> None:
    """Add `--html FILE`."""
    parser.add(
        "--html FILE",
        f"write {about} to a .html file",
        type=partial(_parse_report, endings=(".html", ".htm")),
    )


def add_id_maps(parser: CommandParser) -> None:
    """Add the files that `write_id_map` writes."""
    parser.add("--id-map FILE", "write the new id of each old one, or -1, as .npy")
    parser.add(
        "--embedding-parts FILE",
        "write pairs of a new and an old id as .npy: an embedding is the mean of those of its old "
        "ids (docs/training.md)",
    )


def write_id_map(arguments: argparse.Namespace, id_map: IdMap) -> None:
    """Write the files of `add_id_maps` that are asked for."""
    import numpy as np

    for path, array in zip((arguments.id_map, arguments.embedding_parts), id_map, strict=True):
        if path is not None:
            np.save(file := io.BytesIO(), array)
            write_output(path, file.getvalue())


def _parse_report(text: str, endings: tuple[str, ...]) -> Path:
    path = Path(text)
    if path == STANDARD_OUTPUT or path.suffix.lower() in endings:
        return path
    # A device or a pipe; /dev/stdout may lead to a file.
    if path.is_relative_to("/dev") or (path.exists() and not (path.is_file() or path.is_dir())):
        return path
    raise argparse.ArgumentTypeError(
        f"{text!r} does not end in {endings[0]}; write the report to such a file, or, if this is "
        f"another argument, put it before the option"
    )


def check_outputs(targets: Iterable[Path | str | None], inputs: Iterable[Path | str]) -> None:
    """Check that the outputs can be written, each to a file of its own that is no input."""
    named = [target for target in targets if target is not None]
    require_other_files(named, inputs)
    files = [os.path.realpath(target) if target != STANDARD_OUTPUT else "-" for target in named]
    for target, file in zip(named, files, strict=True):
        if files.count(file) > 1 and file != os.devnull:
            where = "standard output" if file == "-" else target
            raise UsageError(f"two outputs go to {where}; name another file for one of them")
        if target != STANDARD_OUTPUT:
            require_folder_of(target)


def write_output(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, or its parts in order, to the file `path`, or to standard output for `-`.

    The file appears once it is complete.
    """
    from tokenizer_core.blobs.atomic_files import write_whole_file

    parts = [data] if isinstance(data, bytes) else data
    if path == STANDARD_OUTPUT:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
        return
    require_folder_of(path)
    write_whole_file(path, parts)


def require_folder_of(path: Path | str, *, is_folder: bool = False) -> None:
    """Raise CommandError if the folder of an output is missing or cannot be written, or the output
    is a folder and is not to be one."""
    from tokenizer_core.blobs.atomic_files import is_stream

    if isinstance(path, str):
        return
    if not path.absolute().parent.is_dir():
        raise CommandError(f"the folder of {path} is not there; make it first")
    if path.is_dir() and not is_folder:
        raise CommandError(f"{path} is a folder; name the file to write in it")
    if not is_stream(path):
        target = Path(os.path.realpath(path))
        require_writable(target if is_folder else target.parent, path)


def require_other_files(targets: Iterable[Path | str | None], inputs: Iterable[Path | str]) -> None:
    """Raise UsageError if an output would overwrite an input, as in `encode --file a -o a`."""
    read = {os.path.realpath(path) for path in inputs}
    for target in targets:
        if target not in (None, STANDARD_OUTPUT) and os.path.realpath(target) in read:
            raise UsageError(f"{target} is also an input; name another output")


def print_json(value: object) -> None:
    """Print one indented JSON document, escaped if the terminal is not UTF-8."""
    print(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() != "utf-8", indent=1))


def render_pieces(
    blocks: Iterable[list[int]], vocab: Mapping[int, bytes], *, is_coloured: bool
) -> Iterator[bytes]:
    """The pieces of all ids: in colour one after the other, else a line each."""
    index = 0
    for block in blocks:
        lines = []
        for id_ in block:
            if is_coloured:
                text, is_text = readable_token(vocab[id_])
                lines.append(_colour(text if is_text else f"<{text}>", index))
            else:
                lines.append(f"{id_}\t{show_token(vocab[id_])}\n")
            index += 1
        yield "".join(lines).encode()
    if is_coloured and index:
        yield b"\n"


def show_token(token: bytes) -> str:
    """The token as text in quotes, or as its bytes."""
    text, is_text = readable_token(token)
    return json.dumps(text, ensure_ascii=False) if is_text else f"<{text}>"


def _colour(text: str, index: int) -> str:
    """A piece on one of the backgrounds, black on each; a control character shows as its escape."""
    start = f"\x1b[30;48;5;{_BACKGROUNDS[index % len(_BACKGROUNDS)]}m"
    shown = "".join(
        char if char.isprintable() else _SIGNS.get(char) or repr(char)[1:-1] for char in text
    )
    lines = shown.split("\n")
    return "\n".join(f"{start}{line}\x1b[0m" if line else "" for line in lines)
