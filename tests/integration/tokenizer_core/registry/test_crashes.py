"""Promise P1: a published version is whole or absent, and the pointer is old or new, wherever the
process dies. `tests/integration/power_loss` checks what a disk loses with its power."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dying_calls import DEAD
from tests.tokenizer_core.registry.test_folder_store import A, B

# Forks once for each operation k: the child does the work and dies at its k-th call, the parent
# looks at what is left. It forks in a separate process, because pytest's may have threads.
DRIVER = """
import json, shutil, sys
from pathlib import Path
from tests.dying_calls import die_at
from tests.tokenizer_core.registry.test_folder_store import A, B
from tokenizer_core.registry import ArtifactStore

what, when, base = sys.argv[1], sys.argv[2], Path(sys.argv[3])
def work(store):
    if what == "publish":
        store.publish(B, name="t")
    else:
        store.promote(store.resolve("u"))

def look(store):
    refs = store.list()
    for ref in refs:
        store.open(ref)
    return {
        "digests": [ref.digest for ref in refs],
        "damaged": store.damaged(),
        "active": store.active().digest,
    }

fresh = ArtifactStore(base / "fresh")
fresh.promote(fresh.publish(A, name="t"))
if what == "promote":
    fresh.publish(B, name="u")
found = []
k = 0
while True:
    k += 1
    root = base / str(k)
    shutil.copytree(base / "fresh", root)
    store = ArtifactStore(root)
    code = die_at(k, when, lambda: work(store))
    after = look(store)
    left = [p.name for p in (root / "tokenizers" / ".staging").iterdir()]
    work(store)
    found.append({"code": code, "after": after, "left": left, "again": look(store),
                  "left_again": [p.name for p in (root / "tokenizers" / ".staging").iterdir()]})
    shutil.rmtree(root)
    if code == 0:
        break
print(json.dumps(found))
"""


def run(what: str, when: str, folder: Path) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, what, when, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert [entry["code"] for entry in found] == [DEAD] * (len(found) - 1) + [0]
    return found


@pytest.mark.promise(1)
@pytest.mark.parametrize("when", ["before", "torn"])
def test_a_publisher_that_dies_leaves_the_version_whole_or_absent(when, tmp_path):
    found = run("publish", when, tmp_path)
    a, b = A.fingerprint, B.fingerprint
    states = [entry["after"]["digests"] for entry in found]
    assert all(state in ([a], [a, b]) for state in states)
    assert [a] in states
    assert states == sorted(states, key=len), "once there, it must stay"
    assert all(not entry["after"]["damaged"] for entry in found)
    assert all(entry["after"]["active"] == a for entry in found)
    assert len([entry for entry in found if entry["code"] == 9]) >= 30
    assert any(entry["left"] for entry in found), "no crash left anything staged: not tested"
    for entry in found:
        assert entry["again"]["digests"] == [a, b]
        assert entry["left_again"] == [] or entry["after"]["digests"] == [a, b]


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("when", ["torn"])
def test_a_promoter_that_dies_leaves_the_old_pointer_or_the_new(when, tmp_path):
    found = run("promote", when, tmp_path)
    states = [entry["after"]["active"] for entry in found]
    assert set(states) == {A.fingerprint, B.fingerprint}
    assert states == sorted(states, key=[A.fingerprint, B.fingerprint].index)
    assert all(entry["again"]["active"] == B.fingerprint for entry in found)
