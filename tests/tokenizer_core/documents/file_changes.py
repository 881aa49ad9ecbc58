"""Every way in which a corpus file can change while it is read."""

import os
import time


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def append(path):
    with path.open("ab") as file:
        file.write(b"\nmore\n")


def rewrite(path):
    """As long as before, and not UTF-8: also an error for who reads it."""
    before = path.stat()
    _until(lambda: path.stat().st_mtime_ns != before.st_mtime_ns, lambda: _overwrite(path))


def rewrite_at_its_time(path):
    """As a program does that copies the time of modification."""
    before = path.stat()

    def write():
        _overwrite(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    _until(lambda: path.stat().st_ctime_ns != before.st_ctime_ns, write)


def replace(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def remove(path):
    path.unlink()


CHANGES = (truncate, append, rewrite, rewrite_at_its_time, replace, remove)


def add_name(path):
    """No change: a hard link, as backups make them."""
    os.link(path, path.with_name("link"))


def _overwrite(path):
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\xff" * size)


def _until(is_done, write):
    """Repeat `write` until the clock of the file system has moved on."""
    deadline = time.monotonic() + 60
    write()
    while not is_done():
        assert time.monotonic() < deadline
        write()
