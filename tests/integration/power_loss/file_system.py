"""A model of what a disk holds after a power loss, as in ALICE (Pillai et al., OSDI 2014).

`history` is a list of operations as a process did them. `crash_states` yields the trees that a
power loss can leave: at every moment, each operation that no fsync covers may be lost, and those
that are kept need not be the first ones.

- A fsync of a file covers its bytes and its size, not its name.
- A fsync of a folder covers the names that were added to it and removed from it.
- A rename is done or not, also between two folders; a fsync of one of them covers it. File systems
  with a journal (ext4, XFS, Btrfs, ZFS) do this.
- A write that no fsync covers may be torn at a block of 512 or 4,096 bytes, or leave zeros.
- The bytes around a write are not damaged, and a sync that has returned is kept.
"""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

ROOT = 0
"""The node of the recorded folder."""


@dataclass(frozen=True, slots=True)
class Link:
    """A new name of a node: a file that is created, a folder, or a hard link."""

    folder: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Unlink:
    """A removed name of a file or folder."""

    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A name that became another one, in one step."""

    folder: int
    name: str
    new_folder: int
    new_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes in a file; no bytes if only the size grows, to `offset`."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new size of a file."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A fsync of a file or folder that has returned."""

    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a step of the recorded process: from here its result must survive."""


Operation = Link | Unlink | Rename | Write | Truncate | Sync | Mark


@dataclass
class FileSystem:
    """Folders and files by node. The bytes of a file are replaced, never changed."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self):
        return FileSystem({node: {**names} for node, names in self.folders.items()}, {**self.files})

    def apply(self, operation):
        """Do an operation; earlier ones may be missing."""
        match operation:
            case Link(folder, name, node):
                self._names(folder)[name] = node
            case Unlink(folder, name):
                self._names(folder).pop(name, None)
            case Rename(folder, name, new_folder, new_name, node):
                if self._names(folder).get(name) == node:
                    del self._names(folder)[name]
                self._names(new_folder)[new_name] = node
            case Write(node, offset, data):
                old = self.files.get(node, b"").ljust(offset, b"\0")
                self.files[node] = old[:offset] + data + old[offset + len(data) :]
            case Truncate(node, size):
                self.files[node] = self.files.get(node, b"")[:size].ljust(size, b"\0")

    def tree(self):
        """All paths below the root: the bytes of a file, None for a folder."""
        found = {}
        waiting = [("", ROOT)]
        while waiting:
            above, folder = waiting.pop()
            for name, node in self._names(folder).items():
                path = above + name
                found[path] = self.files.get(node, b"") if node not in self.folders else None
                if node in self.folders:
                    waiting.append((path + "/", node))
        return found

    def _names(self, folder):
        return self.folders.setdefault(folder, {})


@dataclass(frozen=True)
class History:
    """The tree on the disk at the beginning, the operations, and the nodes that are folders."""

    before: FileSystem
    operations: Sequence[Operation]
    new_folders: frozenset[int] = frozenset()

    def start(self):
        """The file system at the beginning; it knows the new folders, which have no names yet."""
        system = self.before.copy()
        for node in self.new_folders:
            system.folders[node] = {}
        return system


def crash_states(history, *, n_samples=64, unseen="no path"):
    """(steps that ended, steps that began, tree) for all states that a power loss can leave.

    Of up to eight operations that no fsync covers, every subset is kept once; of more, all, none,
    each alone, all but each, and `n_samples` random subsets. Equal trees are yielded once for each
    pair of numbers; `unseen` is a pattern of paths in which they may differ.
    """
    random_numbers = random.Random(0)
    base, n_base, n_ended, n_begun = history.start(), 0, 0, 0
    uncovered = {}  # operation -> nodes of which one must be synced
    seen = set()
    for n_done in range(len(history.operations) + 1):
        if n_done:
            last = history.operations[n_done - 1]
            n_ended += isinstance(last, Mark)
            n_begun = n_ended + (not isinstance(last, Mark))
            _cover(uncovered, n_done - 1, last)
        while n_base < n_done and n_base not in uncovered:
            base.apply(history.operations[n_base])
            n_base += 1
        for chosen in _choices(history, list(uncovered), random_numbers, n_samples):
            system = base.copy()
            for index in range(n_base, n_done):
                operation = chosen.get(index) if index in uncovered else history.operations[index]
                if operation is not None:
                    system.apply(operation)
            tree = system.tree()
            looked_at = {path: data for path, data in tree.items() if not re.search(unseen, path)}
            key = n_ended, n_begun, frozenset(looked_at.items())
            if key not in seen:
                seen.add(key)
                yield n_ended, n_begun, tree


def _cover(uncovered, index, operation):
    """Add an operation, or drop those that a sync covers."""
    match operation:
        case Link(folder) | Unlink(folder):
            uncovered[index] = {folder}
        case Rename(folder, _, new_folder):
            uncovered[index] = {folder, new_folder}
        case Write(node) | Truncate(node):
            uncovered[index] = {node}
        case Sync(node):
            for earlier in [index for index, nodes in uncovered.items() if node in nodes]:
                del uncovered[earlier]


def _choices(history, indices, random_numbers, n_samples):
    """What is kept of the uncovered operations: index -> the operation or a torn part of it."""
    operations = history.operations

    def whole(kept):
        return {index: operations[index] for index in kept}

    def sample():
        return [index for index in indices if random_numbers.random() < 0.5]

    n_all = len(indices)
    for n_kept in range(n_all + 1) if n_all <= 8 else (0, 1, n_all - 1, n_all):
        yield from map(whole, itertools.combinations(indices, n_kept))
    if n_all > 8:
        for _ in range(n_samples):
            yield whole(sample())
    for index in indices:
        for torn in _torn(operations[index]):
            for kept in ([], indices, sample()):
                yield whole(kept) | {index: torn}


def _torn(operation):
    """The parts of a write that may reach the disk alone."""
    if not isinstance(operation, Write) or not operation.data:
        return
    node, start, data = operation.node, operation.offset, operation.data
    end = start + len(data)
    yield Write(node, end, b"")
    for size in (512, 4096):
        cut = (start + end) // 2 // size * size
        if start < cut < end:
            yield Write(node, start, data[: cut - start])
            yield Write(node, cut, data[cut - start :])


def read_tree(folder):
    """The tree of a folder on the disk."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def write_tree(folder, tree):
    """Make the new folder `folder` with a tree."""
    folder.mkdir()
    for path, data in sorted(tree.items()):
        if data is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(data)
