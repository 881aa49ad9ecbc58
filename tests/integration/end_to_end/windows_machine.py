"""Make this process look like one on Windows to the packages of the project.

`become_windows` first imports the packages that support Windows themselves, then takes away what
Windows lacks: modules, functions and flags of `os`, folders that can be opened. It adds what
Windows does otherwise: files without `O_BINARY` or `newline` would change line ends, an open file
can be neither removed nor renamed, nothing is renamed over an existing file, `fsync` needs a file
that is open for writing, and `msvcrt` locks. What remains is that paths are those of POSIX.
"""

import builtins
import errno
import importlib
import io
import os
import signal
import struct
import sys
import types
from pathlib import Path

ABSENT_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "syslog", "pty", "tty", "readline")
KEPT_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
ABSENT_FUNCTIONS = """
    chown chroot confstr ctermid copy_file_range eventfd fchdir fchmod fchown fdatasync fork
    forkpty fpathconf fstatvfs getegid geteuid getgid getgroups getloadavg getpgid getpgrp
    getpriority getresuid getuid initgroups killpg lchown lockf major memfd_create minor
    mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate
    posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork
    sched_getaffinity sched_yield sendfile setegid seteuid setgid setpgid setpriority setsid
    setuid splice statvfs sync sysconf tcgetpgrp ttyname uname wait wait3 wait4 waitid
    writev
"""
USED = """
    anyio asyncio certifi concurrent.futures ctypes email.message fsspec getpass h11 httpx
    httpcore idna json logging.handlers multiprocessing numpy numpy.random platform psutil
    pyarrow pyarrow.parquet pydantic random regex selectors shutil socket ssl subprocess
    tempfile threading pydantic.main tqdm urllib.request uuid zipfile zoneinfo zstandard
    anyio._backends._asyncio compression.zstd gzip
"""
PRESENT_FLAGS = "RDONLY WRONLY RDWR APPEND CREAT EXCL TRUNC BINARY"
_O_BINARY = 1 << 40
_open_with_descriptor = os.open
_python_open = io.open


def become_windows():
    os.O_BINARY = _O_BINARY  # before `tempfile` asks for it
    for name in USED.split():
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # not installed: then the packages of the project do not use it either
    control = importlib.import_module("fcntl")
    _take_away()
    _open_as_windows(control)
    _rename_as_windows()
    sys.modules["msvcrt"] = _msvcrt(control)
    sys.platform = "win32"


def _take_away():
    for name in ABSENT_MODULES:
        sys.modules[name] = None  # an import raises ModuleNotFoundError
    for name in ABSENT_FUNCTIONS.split():
        if hasattr(os, name):
            delattr(os, name)
    present = {f"O_{name}" for name in PRESENT_FLAGS.split()}
    for name in dir(os):
        is_flag = name.startswith("O_") and name not in present
        if is_flag or name.startswith(("WN", "F_", "SCHED_", "POSIX_", "RTLD_", "CLD_", "PRIO_")):
            delattr(os, name)
    os.supports_dir_fd = os.supports_fd = set()
    for name in [*signal.Signals.__members__, "pthread_sigmask", "setitimer", "alarm", "pause"]:
        if name not in KEPT_SIGNALS and hasattr(signal, name):
            delattr(signal, name)
    importlib.import_module("shutil")._use_fd_functions = False


def _open_as_windows(control):
    scandir, fsync = os.scandir, os.fsync

    def open_descriptor(path, flags, mode=0o777, *, dir_fd=None):
        assert dir_fd is None, "Windows has no dir_fd"
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", path)
        is_ours = sys._getframe(1).f_globals.get("__name__", "").startswith("tokenizer_")
        is_lock = "lock" in Path(path).name  # never written
        assert flags & _O_BINARY or not is_ours or is_lock, f"{path}: not binary"
        return _open_with_descriptor(path, flags & ~_O_BINARY, mode)

    def open_file(file, mode="r", *rest, **options):
        if isinstance(file, int) and "b" in mode and not rest and not options:
            return _python_open(file, mode)
        newline_at = 3
        writes_text = "b" not in mode and set(mode) & set("wax+")
        if writes_text and len(rest) <= newline_at and options.get("newline") is None:
            options["newline"] = "\r\n"
            rest = rest[:newline_at]
        return _python_open(file, mode, *rest, **options)

    def scan(path="."):
        assert not isinstance(path, int), "Windows lists no descriptor"
        return scandir(path)

    def sync(file):
        descriptor = file if isinstance(file, int) else file.fileno()
        if control.fcntl(descriptor, control.F_GETFL) & os.O_RDWR + os.O_WRONLY == 0:
            raise PermissionError(errno.EBADF, "Bad file descriptor: it is open for reading only")
        fsync(descriptor)

    os.open, os.scandir, os.fsync = open_descriptor, scan, sync
    builtins.open = io.open = open_file


def _open_paths():
    """The files that this process has open or mapped."""
    process = importlib.import_module("psutil").Process()
    found = [*process.open_files(), *process.memory_maps()]
    return {file.path for file in found}


def _rename_as_windows():
    unlink, rename, replace = os.unlink, os.rename, os.replace

    def refuse_if_open(path):
        name = os.path.realpath(path)
        for other in _open_paths():
            if other == name or other.startswith(f"{name}/"):
                raise PermissionError(errno.EACCES, f"the process has {other} open", str(path))

    def unlink_closed(path, **options):
        refuse_if_open(path)
        unlink(path, **options)

    def rename_closed(source, target):
        refuse_if_open(source)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "File exists", str(source), None, str(target))
        rename(source, target)

    def replace_closed(source, target):
        refuse_if_open(source)
        refuse_if_open(target)
        if Path(target).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        replace(source, target)

    os.unlink = os.remove = unlink_closed
    os.rename, os.replace = rename_closed, replace_closed


def _msvcrt(control):
    """`locking` by locks of open file descriptions, which conflict within a process, too."""

    def locking(descriptor, mode, n_bytes):
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        kind = control.F_UNLCK if mode == module.LK_UNLCK else control.F_WRLCK
        lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, n_bytes, 0)
        try:
            control.fcntl(descriptor, control.F_OFD_SETLK, lock)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module = types.ModuleType("msvcrt")
    module.locking, module.get_osfhandle = locking, int
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = 0, 1, 2
    return module
