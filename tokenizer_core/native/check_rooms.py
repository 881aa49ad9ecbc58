"""Checks that the crate has no import cycle and that no room imports a room above it.

`make check` runs it. Tests (`#[cfg(test)]`) may import anything.

    python tokenizer_core/native/check_rooms.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

LAYERS = (
    {"lib"},
    {"python"},
    {"compiled"},
    {"encode", "train::count"},
    {"normalize"},
    {"split"},
    {"decode"},
    {"cache", "train::learn"},
    {"merge"},
    {"formats"},
    {"unicode"},
    {"json", "stop"},
    {"simd"},
    {"mem"},
)
"""Rooms from top to bottom; rooms of one layer do not import each other. `train` only holds two."""

# Literals may hold braces and slashes: both are removed together, from left to right.
_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|\b[bc]?r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\\n]|\\[^\n]{1,9}?)'""", re.DOTALL
)
_TEST_ITEM = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))?\s+)?(?:mod|fn|use|impl)\b")
_USE = re.compile(r"\buse\s+((?:crate|super|self)\b[^;]*);")
_PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")
_MODULE = re.compile(r"\bmod\s+(\w+)\s*;")

Imports = dict[str, set[str]]


def without_tests(source: str) -> str:
    """The source without comments, literals and what only tests compile."""
    source = _COMMENT_OR_LITERAL.sub("", source)
    while found := _TEST_ITEM.search(source):
        end = found.end()
        while source[end] not in ";{":
            end += 1
        depth = int(source[end] == "{")
        while depth:
            end += 1
            depth += {"{": 1, "}": -1}.get(source[end], 0)
        source = source[: found.start()] + source[end + 1 :]
    return source


def paths_of(tree: str) -> list[str]:
    """The paths that a `use` tree names: `a::{b, c::d}` gives `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.split(" as ")[0].strip()]
    parts, depth, start = [], 0, 0
    inner = rest.rstrip().removesuffix("}")
    for index, character in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append(inner[start:index])
            start = index + 1
    parts.append(inner[start:])
    return [
        head.strip() + path for part in parts if part.strip() for path in paths_of(part.strip())
    ]


def imports_of(folder: Path) -> Imports:
    """Every module of the crate with the modules that it imports."""
    sources = {}
    for path in sorted(folder.rglob("*.rs")):
        if path.name != "tests.rs":
            name = "::".join(path.relative_to(folder).with_suffix("").parts)
            sources[name.removesuffix("::mod")] = without_tests(path.read_text(encoding="utf-8"))
    return {name: _imports(name, source, sources.keys()) for name, source in sources.items()}


def _imports(name: str, source: str, modules: Collection[str]) -> set[str]:
    named = [path for tree in _USE.findall(source) for path in paths_of(" ".join(tree.split()))]
    named += _PATH.findall(_USE.sub("", source))
    children = _MODULE.findall(source)
    for child in children:
        if re.search(rf"(?<![\w:]){child}::", source):
            named.append(f"self::{child}")
    found = set()
    for path in named:
        parts = path.replace(" ", "").split("::")
        base = [] if parts[0] == "crate" else name.split("::")
        while parts and parts[0] in ("crate", "self", "super"):
            if parts.pop(0) == "super":
                base = base[:-1]
        parts = base + [part for part in parts if part != "self"]
        while parts and "::".join(parts) not in modules:
            parts.pop()
        found.add("::".join(parts) or "lib")
    return found - {name}


def room_of(module: str) -> str:
    """The room of a module; `train` holds two."""
    parts = module.split("::")
    return "::".join(parts[: 2 if parts[0] == "train" and len(parts) > 1 else 1])


def faults(imports: Imports) -> list[str]:
    """What is wrong, a line each."""
    layers = {room: number for number, layer in enumerate(LAYERS) for room in layer}
    found = []
    for module, imported in sorted(imports.items()):
        for other in sorted(imported):
            rooms = room_of(module), room_of(other)
            if unknown := [room for room in rooms if room not in layers and room != "train"]:
                found.append(f"{unknown[0]}: the room is in no layer")
            elif rooms[0] != rooms[1] and layers[rooms[0]] >= layers[rooms[1]]:
                found.append(f"{module} imports {other}, which is not below it")
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found.append(f"cycle: {' -> '.join(error.args[1])}")
    return found


def main() -> int:
    """Prints the faults; the exit status says whether there are any."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "src"
    imports = imports_of(folder)
    found = faults(imports)
    print("\n".join(found) if found else f"{len(imports)} modules, all imports go down")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
