"""How much memory the system gives to this process."""

import psutil
import pytest

from tokenizer_service.jobs import job_limits
from tokenizer_service.jobs.job_limits import available_memory_bytes

MACHINE = psutil.virtual_memory().total
VERSION_1 = "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/"


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (None, {}, MACHINE),
        ("0::/", {}, MACHINE),
        ("0::/", {"memory.max": 2 * MACHINE}, MACHINE),
        ("0::/a/b", {"memory.max": 4096, "a/memory.max": "max", "a/b/memory.max": "max"}, 4096),
        ("0::/a/b", {"memory.max": "max", "a/memory.max": 4096, "a/b/memory.max": "max"}, 4096),
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "max", "a/b/memory.max": 4096}, 4096),
        ("0::/../outside", {"memory.max": 4096}, 4096),  # a container sees its own at the root
        (VERSION_1, {"memory/a/b/memory.limit_in_bytes": (1 << 63) - 4096}, MACHINE),
        (VERSION_1, {"memory/a/memory.limit_in_bytes": 4096}, 4096),
    ],
)
def test_the_memory_is_the_lowest_limit_of_the_groups_above(
    tmp_path, monkeypatch, own, limits, expected
):
    monkeypatch.setattr(job_limits, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(job_limits, "_OWN_GROUPS", tmp_path / "own")
    if own is not None:
        (tmp_path / "own").write_text(f"{own}\n")
    for name, value in limits.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    assert available_memory_bytes() == expected
