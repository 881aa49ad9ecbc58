"""Locks between processes."""

import os
import subprocess
import sys
import time

import pytest

from tokenizer_core.blobs.locks import hold_lock, locked_folder, try_lock, try_record_lock


class BusyError(Exception):
    pass


def test_one_holder_at_a_time(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path, timeout_seconds=1, refusal=BusyError()):
        began = time.monotonic()
        with (
            pytest.raises(BusyError),
            hold_lock(path, timeout_seconds=0.1, refusal=BusyError()),
        ):
            raise AssertionError
        assert time.monotonic() - began >= 0.1
        with path.open() as other:
            assert not try_lock(other)
    with hold_lock(path, timeout_seconds=0, refusal=BusyError()):
        pass


def test_the_kernel_frees_the_lock_of_a_process_that_dies(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from tokenizer_core.blobs import locks; file = open(sys.argv[1]);"
            "locks.try_lock(file); print('held', flush=True); time.sleep(60)",
            str(path),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with path.open() as file:
            assert not try_lock(file)
    finally:
        holder.kill()
        holder.wait()
    with path.open() as file:
        assert try_lock(file)


def test_a_folder_is_locked(tmp_path):
    with locked_folder(tmp_path):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert not try_lock(descriptor)
        os.close(descriptor)
        with pytest.raises(BlockingIOError), locked_folder(tmp_path, wait=False):
            raise AssertionError
    with locked_folder(tmp_path, wait=False):
        pass


def test_one_process_holds_a_record_lock(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        assert try_record_lock(file)
        check = "import sys; from tokenizer_core.blobs.locks import try_record_lock;"
        check += "sys.exit(try_record_lock(open(sys.argv[1], 'a')))"
        arguments = [sys.executable, "-c", check, str(tmp_path / "lock")]
        assert subprocess.run(arguments, check=False).returncode == 0
    assert subprocess.run(arguments, check=False).returncode == 1
