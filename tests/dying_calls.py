"""Processes that die at their k-th system call: for tests of the files they leave.

For drivers that fork: each runs in a separate process, because pytest's may have threads.
"""

import os
from functools import partial

_ON_FILES = ["open", "write", "lseek", "fsync", "close"]
_ON_FOLDERS = ["mkdir", "rename", "replace", "unlink", "rmdir"]
DEAD = 9
"""Exit status of a process that died as planned; 0 means that its work ended first."""


def die_at(k, when, work):
    """Do `work` in a child that dies `before` or `after` its k-th call, or during it (`torn`);
    return the child's exit status, 1 if the work itself failed."""
    child = os.fork()
    if child == 0:
        try:
            _arm(k, when)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _arm(k, when):
    calls = 0

    def call(real, *args, **kwargs):
        nonlocal calls
        calls += 1
        mine = calls
        if mine == k and when == "before":
            os._exit(DEAD)
        try:
            return real(*args, **kwargs)
        finally:  # a process may die at a refused call, too
            if mine == k:
                os._exit(DEAD)

    for name in _ON_FILES + _ON_FOLDERS:
        setattr(os, name, partial(call, getattr(os, name)))
    counted_write = os.write

    def torn(descriptor, data):  # half of the bytes reach the file before the end
        if when == "torn" and calls + 1 == k:
            counted_write(descriptor, data[: len(data) // 2])
            os._exit(DEAD)
        return counted_write(descriptor, data)

    os.write = torn
