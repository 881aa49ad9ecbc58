"""What is recorded: each scenario does some durable steps below a folder, and says what a folder
that a power loss left must hold.

`python -m tests.integration.power_loss.scenarios FOLDER` does the steps of all, for the recorder.
"""

import hashlib
import shutil
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.integration.power_loss.recorder import mark
from tests.tokenizer_core.corpus.small_corpora import NARROW, TEXTS, content, write_texts
from tests.tokenizer_core.registry.test_folder_store import RICH, A, B
from tests.tokenizer_service.jobs.test_corpora import put
from tests.tokenizer_service.jobs.test_queue import ME, add
from tokenizer_core.blobs.atomic_files import replace_synced
from tokenizer_core.corpus import (
    TokenDataset,
    TokenFilesWriter,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.errors import TokenFilesError
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.registry.bucket_store import BucketArtifactStore
from tokenizer_service.jobs.corpora import CorpusStore
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.token_files import TokenFilesFolder


class Scenario:
    """`steps`, each of which is durable when it returns; `observe`, the state of a folder, which it
    may change, where any error means that it is damaged; and `go_on`, which uses the folder after
    that: leftovers must not hinder, or must go."""

    unseen = "no path"
    """A pattern of paths that nothing reads: trees that differ only there are checked once."""

    def run(self, root, after_step):
        """Do the steps."""
        for step in self.steps():
            step(root)
            after_step()


class Registry(Scenario):
    """Versions and the active pointer, in a folder."""

    def store(self, root):
        return ArtifactStore(root / "artifacts")

    def steps(self):
        def remove(root):
            (ref,) = self.store(root).versions("t")
            self.store(root).remove(ref.name, ref.version)

        return [
            lambda root: self.store(root).publish(A, name="t"),
            lambda root: self.store(root).promote(self.store(root).resolve("t")),
            lambda root: self.store(root).publish(B, name="u"),
            lambda root: self.store(root).promote(self.store(root).resolve("u")),
            remove,
            lambda root: self.store(root).publish(RICH, name="t"),
            lambda root: self.store(root).fence(),
        ]

    def observe(self, root):
        store = self.store(root)
        assert store.damaged() == {}
        found = store.list()
        for ref in found:
            store.verify(ref)
        active = store.active()
        if active is not None:
            store.verify(active)
        names = [(ref.name, ref.digest) for ref in found]
        return names, active and active.digest, store.pointer_state().generation

    def go_on(self, root):
        store = self.store(root)
        for spec in (B, A):
            ref = store.publish(spec, name="v")
            store.promote(ref)
            assert store.active() == ref
        staging = root / "artifacts" / "tokenizers" / ".staging"
        assert not list(staging.iterdir()), "a leftover stays"


class BucketRegistry(Registry):
    """Versions and the pointer, file by file in a storage."""

    unseen = "^storage/.staging/[0-9a-f]{32}$"

    def store(self, root):
        cache = root.with_name(f"cache of {root.name}")
        shutil.rmtree(cache, ignore_errors=True)  # another host
        return BucketArtifactStore(str(root / "storage"), cache)

    def go_on(self, root):
        store = self.store(root)
        store.promote(store.publish(B, name="v"))


class Corpora(Scenario):
    """Uploaded corpora."""

    def steps(self):
        return [
            lambda root: put(self.store(root), "one", b"1" * 1500),
            lambda root: put(self.store(root), "two", b"2"),
            lambda root: put(self.store(root), "one", b"one"),
            lambda root: self.store(root).remove("two"),
        ]

    def observe(self, root):
        store = self.store(root)
        store.sweep()
        found = {}
        for corpus in store.all():
            data = (root / "artifacts" / "corpora" / "files" / corpus.file).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (corpus.bytes, corpus.sha256)
            found[corpus.id] = data
        assert store.used_bytes() == sum(map(len, found.values())), "a leftover stays"
        return found

    def go_on(self, root):
        put(self.store(root), "one", b"new")
        put(self.store(root), "three", b"new")

    @staticmethod
    def store(root):
        return CorpusStore(root / "artifacts" / "corpora", 1_000_000)


class Checkpoints(Scenario):
    """Token files with checkpoints: an abandoned run, and another one in its place."""

    RUNS: ClassVar = {
        "old": [list(range(80, 200))] * 12,
        "new": [[id_ for text in TEXTS for id_ in NARROW.encode(text)] * 3] * 12,
    }

    def __init__(self):
        self.plan = plan_token_files(NARROW, tokens_per_shard=700, loss_mask=True)
        self.writers = []

    def steps(self):
        return [
            lambda root: self.begin(root, "old"),
            lambda _: self.append(6),
            lambda root: self.begin(root, "new"),
            lambda _: self.append(2),
            lambda _: self.append(5),
            lambda _: self.append(9),
            lambda _: self.append(12) or self.writers[-1].finish(),
        ]

    def begin(self, root, run):
        for writer in self.writers:
            writer.__exit__(None, None, None)
            TokenFilesWriter(root / "data" / "t", self.plan, resume=True).abort()
        self.run_name, self.n_done = run, 0
        self.writers.append(TokenFilesWriter(root / "data" / "t", self.plan))

    def append(self, until):
        documents = self.RUNS[self.run_name][self.n_done : until]
        for document in documents:
            self.writers[-1].append(document, mask=[id_ % 2 for id_ in document])
        self.n_done = until
        if until < 12:
            self.writers[-1].checkpoint({"run": self.run_name, "done": until})

    def observe(self, root):
        folder = root / "data" / "t"
        if folder.exists():
            verify_token_files(folder)
            return content(folder)
        with TokenFilesWriter(folder, self.plan, resume=True) as writer:
            return writer.position

    def go_on(self, root):
        folder = root / "data" / "t"
        run = "new"
        if folder.exists():
            with pytest.raises(TokenFilesError, match="is there already"):
                TokenFilesWriter(folder, self.plan)
        else:
            with TokenFilesWriter(folder, self.plan, resume=True) as writer:
                position = writer.position or {"run": "new", "done": 0}
                run = position["run"]
                for document in self.RUNS[run][position["done"] :]:
                    writer.append(document, mask=[id_ % 2 for id_ in document])
                writer.finish()
        verify_token_files(folder)
        ids = [id_ for document in self.RUNS[run] for id_ in document]
        data = b"".join(path.read_bytes() for path in sorted(folder.glob("train*.bin")))
        assert np.array(ids, dtype=np.uint16).tobytes() in data, "the files mix two runs"
        mask = TokenDataset.open(folder).mask().tolist()
        assert mask == [id_ % 2 for id_ in ids], "the mask is out of step"
        assert [path.name for path in (root / "data").iterdir()] == ["t"], "a leftover stays"


class JobTokenFiles(Scenario):
    """Token files that a job publishes, and that are removed later."""

    JOB = "20261121T041500Z-0123456789ab"

    def steps(self):
        def note(root):
            growing = self.folder(root).growing(self.JOB)
            replace_synced(self.folder(root).note(growing), b"{}")

        return [
            lambda root: write_texts(self.folder(root).growing(self.JOB)),
            note,
            lambda root: self.folder(root).publish(self.folder(root).growing(self.JOB), "stories"),
            lambda root: self.folder(root).remove("stories"),
        ]

    def observe(self, root):
        folder = self.folder(root)
        for name in folder.names():
            verify_token_files(folder.path(name))
        growing = folder.growing(self.JOB)
        if growing.exists():
            verify_token_files(growing)
        return folder.names(), growing.exists(), folder.notes(self.JOB)

    def go_on(self, root):
        folder = self.folder(root)
        folder.sweep(folder.left_over(), set())
        assert folder.left_over() == []
        write_texts(folder.growing(self.JOB))
        folder.publish(folder.growing(self.JOB), "more")

    @staticmethod
    def folder(root):
        return TokenFilesFolder.of(root / "artifacts")


class Jobs(Scenario):
    """The job database in SQLite, and the inline documents of a job."""

    IDS: ClassVar = [f"20261121T041500Z-{number:012x}" for number in range(3)]

    def steps(self):
        def accept(number):
            def do(root):
                self.documents(root, number).make()
                self.documents(root, number).write_documents(["one", "two"], None)
                add(self.open(root), self.IDS[number])

            return do

        return [
            self.open,
            accept(0),
            lambda root: self.open(root).claim_next(ME),
            lambda root: self.open(root).finish(self.open(root).running()[0], "succeeded"),
            accept(1),
            lambda root: self.open(root).request_cancel(self.IDS[1]),
        ]

    def observe(self, root):
        path = root / "artifacts" / DATABASE_NAME
        jobs = {job.id: job.state for job in self.open(root).latest()}
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        connection.close()
        for number, job_id in enumerate(self.IDS):
            if job_id in jobs:
                documents = content(self.documents(root, number).documents_path)
                assert documents == {"00000.txt": b"one", "00001.txt": b"two"}
        return jobs

    def go_on(self, root):
        add(self.open(root), self.IDS[2])

    def open(self, root):
        return JobStore.open(root / "artifacts")

    def documents(self, root, number):
        return JobFolder.of(root / "artifacts", self.IDS[number])


SCENARIOS = {
    "registry": Registry,
    "registry in a storage": BucketRegistry,
    "corpora": Corpora,
    "token files with checkpoints": Checkpoints,
    "token files of a job": JobTokenFiles,
    "jobs": Jobs,
}


if __name__ == "__main__":
    for scenario_name, make in SCENARIOS.items():
        root = Path(sys.argv[1], scenario_name)
        make().run(root, partial(mark, root))
