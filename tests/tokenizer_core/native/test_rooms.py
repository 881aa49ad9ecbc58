"""Imports of the crate only go down, and the check detects those that do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "tokenizer_core" / "native" / "check_rooms.py"
SOURCES = {
    "lib.rs": "mod encode;\nmod merge;\nmod mem;\n",
    "encode/mod.rs": "mod sink;\nuse crate::merge::{self, long::Long};\nuse sink::Sink;\n",
    "encode/sink.rs": "use crate::mem::pool;\n// use crate::encode::Encoder;\n",
    "merge/mod.rs": "pub mod long;\n#[cfg(test)]\nmod tests {\n    use crate::encode::A;\n}\n",
    "merge/long.rs": "use std::mem;\nuse crate::mem;\n",
    "mem/mod.rs": "pub mod pool;\n",
    "mem/pool.rs": "use std::sync::Mutex;\n",
}


def run(folder: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    for name, source in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


def test_comments_tests_and_children_are_no_faults(crate):
    assert run(crate) == (0, "7 modules, all imports go down\n")


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        ("merge/long.rs", "use crate::encode::Encoder;", "merge::long imports encode"),
        ("mem/pool.rs", "fn f() { crate::merge::g() }", "mem::pool imports merge"),
        ("encode/sink.rs", "use super::Encoder;", "cycle: encode -> encode::sink -> encode"),
        ("odd/mod.rs", "use crate::mem;", "odd: the room is in no layer"),
        ("mem/pool.rs", 'const A: &[u8] = br"\\"; use crate::merge;', "mem::pool imports merge"),
    ],
)
def test_a_cycle_and_an_upward_import_are_found(crate, name, line, fault):
    path = crate / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + line + "\n")
    status, printed = run(crate)
    assert status == 1
    assert fault in printed, printed
