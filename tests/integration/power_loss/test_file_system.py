"""The model of a disk: what it may lose, and what it must keep."""

from __future__ import annotations

from tests.integration.power_loss.file_system import (
    ROOT,
    FileSystem,
    History,
    Link,
    Mark,
    Operation,
    Rename,
    Sync,
    Tree,
    Truncate,
    Unlink,
    Write,
    crash_states,
)

OLD, NEW, FOLDER = 1, 2, 3


def states(*operations: Operation) -> list[Tree]:
    """What a power loss leaves of operations on a folder that holds the file `x`."""
    before = FileSystem({ROOT: {"x": OLD}}, {OLD: b"old"})
    history = History(before, operations, frozenset({FOLDER}))
    return [tree for _, n_begun, tree in crash_states(history) if n_begun]


def test_a_rename_may_come_before_the_bytes_of_its_file():
    write = [Link(ROOT, "new", NEW), Write(NEW, 0, b"new")]
    rename = Rename(ROOT, "new", ROOT, "x", NEW)
    assert {"x": b""} in states(*write, rename)
    assert {"x": b"\0\0\0"} in states(*write, rename)
    found = [tree["x"] for tree in states(*write, Sync(NEW), rename)]
    assert set(found) == {b"old", b"new"}


def test_a_name_is_kept_once_its_folder_is_synced_not_its_file():
    made = [Link(ROOT, "new", NEW), Write(NEW, 0, b"new"), Sync(NEW)]
    for synced, expected in (([], [{}, {"new": b"new"}]), ([Sync(ROOT)], [{"new": b"new"}])):
        history = History(FileSystem(), [*made, *synced, Mark()])
        assert [tree for n_ended, _, tree in crash_states(history) if n_ended] == expected


def test_a_later_operation_may_be_kept_without_an_earlier_one():
    assert {"x": b"old", "b": b""} in states(Link(ROOT, "a", NEW), Link(ROOT, "b", FOLDER + 1))
    assert {} in states(Link(ROOT, "a", NEW), Unlink(ROOT, "x"))
    assert {"x": b"\0\0\0\0\0end"} in states(Truncate(OLD, 0), Write(OLD, 5, b"end"))


def test_a_write_is_torn_at_blocks_only():
    data = b"1" * 512 + b"2" * 512
    found = {tree["x"] for tree in states(Truncate(OLD, 0), Sync(OLD), Write(OLD, 0, data))}
    assert found == {b"old", b"", bytes(1024), data[:512], bytes(512) + data[512:], data}
