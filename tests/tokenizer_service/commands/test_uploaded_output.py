"""Token files that could not be uploaded are uploaded later, if the corpus is still the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW
from tokenizer_core.corpus import TokenManifest, encode_corpus, plan_token_files
from tokenizer_core.errors import StorageError
from tokenizer_service.commands import uploaded_output
from tokenizer_service.commands.command_line import CommandError
from tokenizer_service.commands.uploaded_output import encode_and_upload


def test_a_changed_corpus_is_not_uploaded_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, waiting = tmp_path / "a.txt", tmp_path / "waiting"
    corpus.write_text("the old text")
    plan = plan_token_files(NARROW)
    uploaded: list[str] = []
    is_down = True

    def upload(folder: Path, address: str, progress: object) -> TokenManifest:
        if is_down:
            raise StorageError("the bucket is away")
        uploaded.append((folder / "train.bin").read_bytes().hex())
        return TokenManifest.from_json((folder / "manifest.json").read_bytes())

    def run(*, resume: bool) -> None:
        encode_and_upload(
            lambda folder: encode_corpus(NARROW, [corpus], folder, plan),
            "s3://bucket/t",
            ("the same settings",),
            files=[str(corpus)],
            temp_dir=waiting,
            resume=resume,
            quiet=True,
        )

    monkeypatch.setattr(uploaded_output, "upload_token_files", upload)
    monkeypatch.setattr(uploaded_output, "require_free", lambda address: None)
    with pytest.raises(CommandError, match="the bucket is away"):
        run(resume=False)
    is_down, before = False, corpus.stat()
    corpus.write_text("the new text, and more")
    with pytest.raises(CommandError, match=r"the corpus has changed since an earlier run.*remove"):
        run(resume=True)
    assert uploaded == []
    corpus.write_text("the old text")
    os.utime(corpus, ns=(before.st_atime_ns, before.st_mtime_ns))
    run(resume=True)
    assert len(uploaded) == 1
    assert list(waiting.iterdir()) == []
