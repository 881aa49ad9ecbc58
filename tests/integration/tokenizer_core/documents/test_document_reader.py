"""The memory of `open_documents`, measured in a separate process."""

import gzip
import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.tokenizer_core.documents.corpus_writer import PACKERS

READER = """
import json, sys
from pathlib import Path
from tokenizer_core.documents import open_documents
if sys.argv[1].endswith("parquet"):
    import pyarrow.parquet
def peak_bytes():
    # Not ru_maxrss: a new process inherits the peak of the one that started it.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
before = peak_bytes()
n_chars = 0
for piece in open_documents(sys.argv[1], hash_source=True):
    n_chars += len(piece.text)
print(json.dumps([n_chars, peak_bytes() - before]))
"""
BLOCK_CHARS = 1 << 20
MAX_EXTRA_BYTES = 40 << 20


def write_large(path: Path, format_name: str, n_blocks: int) -> None:
    """A file of `n_blocks` times 2**20 characters: one document of plain text, else many."""
    generator = random.Random(n_blocks)
    blocks = (generator.randbytes(BLOCK_CHARS // 2).hex() for _ in range(n_blocks))
    kind, _, packed = format_name.partition(".")
    if kind == "parquet":
        schema = pyarrow.schema({"text": pyarrow.string()})
        with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for block in blocks:
                texts = [block[start : start + 4096] for start in range(0, BLOCK_CHARS, 4096)]
                writer.write_table(pyarrow.table({"text": texts}), row_group_size=1 << 20)
        return
    with path.open("wb") as file:
        for block in blocks:
            text = block if kind == "txt" else json.dumps({"text": block}) + "\n"
            # gzip's default level would take most of the test's time.
            pack = partial(gzip.compress, compresslevel=1) if packed == "gz" else PACKERS[packed]
            file.write(pack(text.encode()))


def check_memory(path: Path, format_name: str, n_blocks: int) -> None:
    write_large(path, format_name, n_blocks)
    command = [sys.executable, "-c", READER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    n_chars, extra_bytes = json.loads(done.stdout)
    assert n_chars == n_blocks * BLOCK_CHARS
    assert extra_bytes < MAX_EXTRA_BYTES


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("format_name", ["txt.zst", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, format_name):
    check_memory(tmp_path / f"large.{format_name}", format_name, 64)
