"""The file operations of a process below a folder, recorded by strace.

strace sees every system call, also those of SQLite and of the compiled engine. An operation that
this module does not know is an error, and the replayed operations must give the tree on the disk,
so that nothing is missed.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.power_loss.file_system import (
    ROOT,
    FileSystem,
    History,
    Link,
    Mark,
    Rename,
    Sync,
    Truncate,
    Unlink,
    Write,
    read_tree,
)

_REPOSITORY = Path(__file__).resolve().parents[3]
_MARK = "/end of a step of the recorded process"

_STRACE = ["strace", "-f", "--seccomp-bpf", "-xx", "-s", str(1 << 24), "-e", "signal=none"]
_MARKING = "access faccessat faccessat2"
_KNOWN = (
    "open openat close dup dup2 dup3 fcntl lseek write pwrite64 sendfile rename renameat renameat2 "
    "link linkat unlink unlinkat mkdir mkdirat rmdir fsync fdatasync ftruncate"
)
_REFUSED = (
    "creat openat2 writev pwritev pwritev2 symlink symlinkat mknod mknodat sync syncfs truncate "
    "fallocate copy_file_range splice"
)
"""Calls that change files and that this module cannot replay; nothing here uses them so far."""

_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)(?: .*)?", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_UNFINISHED = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def has_strace():
    """Whether strace is installed and may trace processes here."""
    if shutil.which("strace") is None:
        return False
    done = subprocess.run([*_STRACE, "true"], capture_output=True, check=False)
    return done.returncode == 0


def mark(folder):
    """Called by the recorded process at the end of a step below `folder`."""
    os.access(f"{_MARK}: {folder}", os.F_OK)


def record(command, folders, log):
    """Run `command` and return what it did below each of the folders, which are on the disk at the
    beginning.

    Raises:
        AssertionError: the command failed, or the record is incomplete.
    """
    recorders = [_Recorder(folder) for folder in folders]
    # A question mark: this processor may lack the call.
    calls = ",".join(f"?{call}" for call in f"{_KNOWN} {_REFUSED} {_MARKING}".split())
    done = subprocess.run(
        [*_STRACE, "-o", str(log), "-e", f"trace={calls}", *command],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=_REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, arguments, result in _calls(log):
        for recorder in recorders:
            recorder.add(name, arguments, result)
    for recorder, folder in zip(recorders, folders, strict=True):
        assert recorder.now.tree() == read_tree(folder), "the record is incomplete"
    return [recorder.history() for recorder in recorders]


def _calls(log):
    """Name, arguments and result of each call, in the order in which they ended."""
    begun = {}
    for line in log.read_text().splitlines():
        whole = line
        if match := _UNFINISHED.fullmatch(line):
            begun[match[1]] = match[2]
            continue
        if match := _RESUMED.fullmatch(line):
            whole = f"{match[1]} {begun.pop(match[1])}{match[2]}"
        if match := _LINE.fullmatch(whole):
            yield match[2], match[3].split(", "), int(match[4])


@dataclass
class _OpenFile:
    """A descriptor: its path, and its node if it is below the recorded folder."""

    path: str
    node: int | None
    appends: bool
    position: int = 0


class _Recorder:
    """Translates the calls of one process into operations."""

    def __init__(self, folder):
        self._root = str(folder.resolve())
        self._open = {}
        self.now, self._n_nodes = FileSystem(), 1
        for path in sorted(folder.rglob("*")):
            node = self._new_node(is_folder=path.is_dir())
            self.now.apply(Link(*self._place(str(path)), node))
            if path.is_file():
                self.now.apply(Write(node, 0, path.read_bytes()))
        self._before = self.now.copy()
        self._operations = []

    def history(self):
        """What was added so far."""
        new_folders = frozenset(self.now.folders.keys() - self._before.folders.keys())
        return History(self._before, self._operations, new_folders)

    def add(self, name, arguments, result):
        """Add a call."""
        if name in _MARKING.split():
            if f"{_MARK}: {self._root}" in map(_text, arguments):
                self._do(Mark())
        elif result >= 0:
            if name in _REFUSED.split():
                paths = [*map(_text, arguments), *(self._shown(given) for given in arguments)]
                assert not any(map(self._is_inside, paths)), f"cannot replay {name}"
            elif name in ("write", "pwrite64", "sendfile", "lseek", "ftruncate"):
                self._add_data(name, arguments, result)
            elif name in ("open", "openat", "close", "dup", "dup2", "dup3", "fcntl"):
                self._add_descriptor(name, arguments, result)
            elif name in ("fsync", "fdatasync"):
                file = self._open[int(arguments[0])]
                if file.node is not None:
                    self._do(Sync(file.node))
            else:
                self._add_name(name, arguments)

    def _add_descriptor(self, name, arguments, result):
        if name == "close":
            self._open.pop(int(arguments[0]), None)
        elif name.startswith("dup") or (name == "fcntl" and arguments[1].startswith("F_DUPFD")):
            if int(arguments[0]) in self._open:
                self._open[result] = self._open[int(arguments[0])]
        elif name != "fcntl":
            if name == "open":
                arguments = ["AT_FDCWD", *arguments]
            path, flags = self._path(*arguments[:2]), arguments[2].split("|")
            node = self._node(path)
            if node is None and self._is_inside(path):
                assert "O_CREAT" in flags
                node = self._new_node()
                self._do(Link(*self._place(path), node))
            elif node is not None and "O_TRUNC" in flags and self.now.files.get(node):
                self._do(Truncate(node, 0))
            self._open[result] = _OpenFile(path, node, "O_APPEND" in flags)

    def _add_data(self, name, arguments, result):
        file = self._open.get(int(arguments[0]))
        if file is None or file.node is None:
            return
        content = self.now.files.get(file.node, b"")
        if name == "lseek":
            file.position = result
        elif name == "ftruncate":
            self._do(Truncate(file.node, int(arguments[1])))
        elif name == "pwrite64":
            self._do(Write(file.node, int(arguments[3]), _bytes(arguments[1])[:result]))
        else:
            if name == "sendfile":
                source = self._open[int(arguments[1])]
                assert source.node is not None, "cannot replay sendfile from outside"
                start = int(arguments[2].partition(" ")[0].strip("[]"))
                data = self.now.files.get(source.node, b"")[start : start + result]
            else:
                data = _bytes(arguments[1])[:result]
            start = len(content) if file.appends else file.position
            if data:
                self._do(Write(file.node, start, data))
            file.position = start + len(data)

    def _add_name(self, name, arguments):
        if not name.rstrip("2").endswith("at"):  # the older form of the call
            arguments = [part for path in arguments for part in ("AT_FDCWD", path)]
        path = self._path(*arguments[:2])
        if name.startswith(("rename", "link")):
            new_path, node = self._path(*arguments[2:4]), self._node(path)
            assert self._is_inside(path) == self._is_inside(new_path), "cannot replay a move"
            assert "RENAME" not in str(arguments[4:]), "cannot replay the flags of renameat2"
            if node is not None and name.startswith("link"):
                self._do(Link(*self._place(new_path), node))
            elif node is not None:
                self._do(Rename(*self._place(path), *self._place(new_path), node))
        elif self._is_inside(path):
            if name.startswith("mkdir"):
                self._do(Link(*self._place(path), self._new_node(is_folder=True)))
            else:
                self._do(Unlink(*self._place(path)))

    def _do(self, operation):
        self._operations.append(operation)
        self.now.apply(operation)

    def _new_node(self, *, is_folder=False):
        node, self._n_nodes = self._n_nodes, self._n_nodes + 1
        if is_folder:
            self.now.folders[node] = {}
        return node

    def _path(self, folder, name):
        """The absolute path of a name in a folder, which is a descriptor or `AT_FDCWD`."""
        above = _REPOSITORY if folder == "AT_FDCWD" else self._shown(folder)
        return os.path.normpath(Path(above, _text(name)))

    def _shown(self, descriptor):
        file = self._open.get(int(descriptor)) if descriptor.isdecimal() else None
        return "" if file is None else file.path

    def _is_inside(self, path):
        return path == self._root or path.startswith(self._root + "/")

    def _node(self, path):
        """The node at a path; None if it is outside or does not exist."""
        if not self._is_inside(path):
            return None
        node = ROOT
        for part in Path(path).relative_to(self._root).parts:
            node = None if node is None else self.now.folders.get(node, {}).get(part)
        return node

    def _place(self, path):
        """The folder of a path below the root, and the name in it."""
        above, name = os.path.split(path)
        folder = self._node(above)
        assert folder is not None, path
        return folder, name


def _bytes(argument):
    match = _STRING.fullmatch(argument)
    assert match is not None, argument[:200]
    return bytes.fromhex(match[1].replace("\\x", ""))


def _text(argument):
    """The text of a string argument; "" for other arguments."""
    return os.fsdecode(_bytes(argument)) if argument.startswith('"') else ""
