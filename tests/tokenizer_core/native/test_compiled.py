"""Compiled files: the same ids, and nothing that happens to a file later reaches an opened one."""

import os
import random
import sys

import pytest

from tests.adversarial import adversarial_texts
from tests.native_module import native_module
from tests.tokenizer_core.engines.random_specs import random_character_merges, spec_of
from tokenizer_core.engines.native_engine import NativeEngine
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import METASPACE, PATTERNS

KEY = bytes(range(32))
TEXTS = adversarial_texts(n_random=40, seed=3)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a memfd is of Linux")


@pytest.fixture(scope="module")
def native():
    return native_module()


@pytest.fixture(scope="module", params=["o200k", "metaspace", "taken-whole"])
def spec(request) -> TokenizerSpec:
    pattern = METASPACE if request.param == "metaspace" else PATTERNS["o200k"]
    merges = random_character_merges(random.Random(5), "the é中文🙂 ", 400)
    return spec_of(merges, pattern=pattern, ignore_merges=request.param == "taken-whole")


@pytest.fixture
def encoder(native, spec):
    return NativeEngine(spec)._encoder


@pytest.fixture
def content(native, encoder) -> bytes:
    return native.compile_tokenizer(encoder, KEY, {"spec": b"{}", "": b""})


def ids_of(encoder) -> list[list[int]]:
    return [encoder.encode(None, text) for text in TEXTS]


def open_file(native, path, key: bytes = KEY):
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return native.CompiledTokenizer(descriptor, key)
    finally:
        os.close(descriptor)


def memfd_of(content: bytes, seals: int) -> int:
    import fcntl

    descriptor = os.memfd_create("tokenizer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


@pytest.mark.row(40)
@pytest.mark.parametrize("damage", ["truncated", "cut", "changed", "replaced", "removed"])
def test_what_happens_to_a_file_does_not_reach_those_who_opened_it(
    native, encoder, content, tmp_path, damage
):
    path, expected = tmp_path / "file", ids_of(encoder)
    path.write_bytes(content)
    opened = open_file(native, path)
    if damage == "truncated":
        os.truncate(path, 0)
    elif damage == "cut":
        os.truncate(path, len(content) // 2)
    elif damage == "changed":
        with path.open("r+b") as file:
            file.write(bytes(len(content)))
    elif damage == "replaced":
        (tmp_path / "other").write_bytes(bytes(64))
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    assert ids_of(opened.encoder) == expected
    with pytest.raises((native.UnusableFileError, FileNotFoundError)):
        open_file(native, path)


@linux_only
def test_a_memfd_is_mapped_only_if_nobody_can_change_it(native, encoder, content):
    import fcntl

    expected = ids_of(encoder)
    write, rest = fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    for seals, is_shared in ((write | rest, True), (rest, False), (write, False), (0, False)):
        descriptor = memfd_of(content, seals)
        opened = native.CompiledTokenizer(descriptor, KEY)
        assert opened.is_shared == is_shared
        if is_shared:
            with pytest.raises(PermissionError):
                os.pwrite(descriptor, b"x", 0)
            with pytest.raises(PermissionError):
                os.truncate(descriptor, 0)
        elif not seals & fcntl.F_SEAL_SHRINK:
            os.truncate(descriptor, 0)
        os.close(descriptor)
        assert ids_of(opened.encoder) == expected


def test_files_of_others_and_damaged_ones_are_refused(native, content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(native.UnusableFileError, match="another source"):
        open_file(native, path, bytes(32))
    rng = random.Random(3)
    changes = [*range(0, 192, 9), *(rng.randrange(len(content)) for _ in range(60))]
    for at in changes:
        changed = bytearray(content)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(native.UnusableFileError):
            open_file(native, path)
    for end in (0, 1, 63, 64, len(content) - 64, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(native.UnusableFileError):
            open_file(native, path)
    for key in (b"", bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="length"):
            open_file(native, path, key)
    with pytest.raises(ValueError, match="no such descriptor"):
        native.CompiledTokenizer(-1, KEY)
