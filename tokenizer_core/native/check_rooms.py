"""Checks that no room of the crate imports a room above it or beside it.

`make check` runs it. Tests, which end a file, may import anything.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

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

_LEVELS = {room: level for level, layer in enumerate(LAYERS) for room in layer}
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\(crate\))? )?mod tests \{")
_IMPORT = re.compile(r"\bcrate::(train::\w+|\w+)")


def main() -> int:
    """Prints the faults; the exit status says whether there are any."""
    source, faults = Path(__file__).parent / "src", []
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        room = "::".join(parts[: 2 if parts[0] == "train" else 1])
        if room in ("lib", "train::mod") or path.name == "tests.rs":
            continue  # the first holds the rooms, the second two of them
        code = _TESTS.split(path.read_text(encoding="utf-8"))[0]
        for imported in sorted({*_IMPORT.findall(code)} - {room}):
            if _LEVELS[room] >= _LEVELS[imported]:
                faults.append(f"{'/'.join(parts)} imports {imported}, which is not below it")
    print("\n".join(faults) or "all imports go down")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
