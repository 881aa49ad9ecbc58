"""Row 29 of the bad inputs: hostile pickles are refused in a second, in little memory, and do
nothing. A separate process reads each pickle and measures itself."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiles import first_and_thorough
from tokenizer_core.errors import FormatError
from tokenizer_core.formats.pickle_files import MAX_PICKLE_BYTES, load_pickles

pytestmark = pytest.mark.row(29)

MAX_SECONDS = 1.0
MAX_EXTRA_BYTES = 64 << 20

READER = """
import json, sys, time
from pathlib import Path
def peak_bytes():
    # Not ru_maxrss: a new process inherits the peak of the one that started it.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import load_pickles, render_pickle
folder = Path(sys.argv[1])
before = peak_bytes()
started = time.perf_counter()
try:
    load_pickles(folder / "bomb.pkl", folder / "merges.pkl")
    result = "accepted"
except FormatError as error:
    result = type(error).__name__
except BaseException as error:
    result = "not a FormatError: " + repr(error)[:200]
seconds = time.perf_counter() - started
extra = peak_bytes() - before
print(json.dumps({"result": result, "seconds": seconds, "extra_bytes": extra}))
"""

# A reader that only denies globals, on the same bytes: shows that the measurement works.
DENY_ALL_READER = READER.replace(
    'load_pickles(folder / "bomb.pkl", folder / "merges.pkl")',
    "__import__('pickle').Unpickler((folder / 'bomb.pkl').open('rb')).load()",
)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def colliding_ints() -> bytes:
    """Keys that all fall on one slot of a dict's table: 280 kB that cost seconds."""
    step = (1 << 61) - 1  # the modulus of hash(int)
    entries = b"".join(
        b"\x8a" + bytes([10]) + (i * step + 1).to_bytes(10, "little") + b"C\x00"
        for i in range(1, 21_000)
    )
    return b"\x80\x04}(" + entries + b"u."


def nested(opening: bytes, depth: int) -> bytes:
    return b"\x80\x04" + opening * depth


BOMBS = {
    "memo bomb": lambda: b"\x80\x04]r\xff\xff\xff\x3f.",
    "memo bomb after an item": lambda: b"\x80\x04}(K\x00C\x01ar\xff\xff\xff\x3fu.",
    "8 GB of bytes": lambda: b"\x80\x04}(K\x00\x8e" + (8 << 30).to_bytes(8, "little") + b"abu.",
    "4 GB of bytes": lambda: b"\x80\x04}(K\x00B" + b"\xff\xff\xff\xff" + b"abu.",
    "8 GB frame": lambda: b"\x80\x04\x95" + (8 << 30).to_bytes(8, "little") + b"}.",
    "8 GB bytearray": lambda: b"\x80\x05\x96" + (8 << 30).to_bytes(8, "little") + b"ab.",
    "colliding ints": colliding_ints,
    "2 GB long": lambda: b"\x80\x04\x8b" + (2**31 - 1).to_bytes(4, "little") + b"\x01.",
    "nested lists": lambda: nested(b"](", 1_000_000),
    "nested tuples": lambda: nested(b"(", 1_000_000) + b"t" * 1_000_000 + b".",
    "marks in a dict": lambda: nested(b"}" + b"(" * 4_000_000, 1),
    "empty batches": lambda: nested(b"}" + b"(u" * 8_000_000, 1) + b".",
    "memoize flood": lambda: nested(b"}" + b"\x94" * 16_000_000, 1) + b".",
    "frame flood": lambda: b"\x80\x04" + (b"\x95" + bytes(8)) * 2_000_000 + b"}.",
    "duplicates on the stack": lambda: nested(b"}" + b"2" * 16_000_000, 1) + b".",
    "a number of 16 million digits": lambda: b"\x80\x04I" + b"9" * 16_000_000 + b"\n.",
    "escaped text of 30 MB": lambda: b"\x80\x04V" + b"a" * 30_000_000 + b"\\U0001F600\n.",
    "as large as the cap, of nothing": lambda: b"\x80\x04}" + bytes(MAX_PICKLE_BYTES - 3),
    "over the cap": lambda: b"\x80\x04}" + bytes(MAX_PICKLE_BYTES + 1),
    "persistent id": lambda: b"\x80\x04\x8c\x01aQ.",
    "text persistent id": lambda: b"Pabc\n.",
    "extension": lambda: b"\x80\x04\x82\x01.",
    "inst": lambda: b"(S'touch x'\nios\nsystem\n.",
    "obj": lambda: b"\x80\x04(cos\nsystem\nC\x01ao.",
    "global in a dict": lambda: b"\x80\x04}(K\x00cos\nsystem\nu.",
    "stack global": lambda: b"\x80\x04}\x8c\x02os\x8c\x06system\x93.",
    "build": lambda: b"\x80\x04}}b.",
    "next buffer": lambda: b"\x80\x05}(K\x00\x97u.",
}


def measure(reader: str, folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", reader, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).resolve().parents[2],
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.thorough
@pytest.mark.parametrize("name", BOMBS)
def test_refused_at_once_and_in_little_memory(name, tmp_path):
    (tmp_path / "bomb.pkl").write_bytes(BOMBS[name]())
    (tmp_path / "merges.pkl").write_bytes(pickle.dumps([]))
    found = measure(READER, tmp_path)
    assert found["result"] in ("FormatError", "UnsafePickleError")
    assert found["seconds"] < MAX_SECONDS
    assert found["extra_bytes"] < MAX_EXTRA_BYTES


@pytest.mark.parametrize("protocol", first_and_thorough(range(6)))
def test_a_call_is_refused_and_not_made(protocol, tmp_path):
    marker = tmp_path / "marker"
    (tmp_path / "merges.pkl").write_bytes(pickle.dumps([]))
    for value in (Evil(marker), {0: Evil(marker)}, [(b"a", Evil(marker))]):
        (tmp_path / "bomb.pkl").write_bytes(pickle.dumps(value, protocol))
        found = measure(READER, tmp_path)
        assert found["result"] == "UnsafePickleError"
        assert not marker.exists()
    measure(DENY_ALL_READER, tmp_path)
    assert marker.exists(), "the pickle is not the attack this test takes it for"


@pytest.mark.thorough
def test_the_measuring_sees_what_a_reader_that_only_denies_globals_does(tmp_path):
    (tmp_path / "bomb.pkl").write_bytes(b"\x80\x04]r\x00\x00\x00\x01.")  # 256 MB, of 16 GB
    assert measure(DENY_ALL_READER, tmp_path)["extra_bytes"] > MAX_EXTRA_BYTES
    (tmp_path / "bomb.pkl").write_bytes(BOMBS["colliding ints"]())
    assert measure(DENY_ALL_READER, tmp_path)["seconds"] > 0.5


def test_a_fifo_or_a_device_is_no_pickle(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(FormatError, match="not a regular file"):
            load_pickles(path, path)
