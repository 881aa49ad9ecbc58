"""Run the blocks of docs/client.md and examples/prepare_data.py against a service."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.integration.end_to_end.test_readme import blocks
from tests.integration.server_process import ADMIN_KEY, Server, publish_bytes, serve
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import TokenDataset
from tokenizer_core.registry import ArtifactStore

TEXTS = {
    "a.txt": "The lowest of the low went slowly west. " * 200,
    "below/b.txt": "A newer, wider river ran to the east, naïve and 東京. " * 200,
    "below/c.txt": "Short.",
}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client") / "artifacts"


@pytest.fixture(scope="module")
def server(artifacts: Path):
    publish_bytes(artifacts, "starter")
    with serve(artifacts) as server:
        yield server


def test_the_blocks_of_the_page_run(server: Server, tmp_path, monkeypatch, capsys):
    page = (REPOSITORY / "docs" / "client.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENIZER_URL", server.url)
    monkeypatch.setenv("TOKENIZER_API_KEY", ADMIN_KEY)
    names: dict[str, object] = {"__name__": "client_page"}
    found = blocks(page, "python")
    assert len(found) >= 8
    for block in found:
        exec(compile(block, "docs/client.md", "exec"), names)
    assert "too_many_tokens" in capsys.readouterr().out


def test_the_script_prepares_data(server: Server, artifacts: Path, tmp_path):
    folder = tmp_path / "texts"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "ignored.md").write_text("not a text")
    script = [sys.executable, str(REPOSITORY / "examples" / "prepare_data.py")]
    options = ["--name", "stories", "--vocab-size", "300", "--validation-share", "0.4"]
    done = subprocess.run(
        [*script, str(folder), str(tmp_path / "tokens"), *options, "--promote"],
        env=os.environ
        | {
            "TOKENIZER_URL": server.url,
            "TOKENIZER_API_KEY": ADMIN_KEY,
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for title in ("upload", "train", "encode", "download"):
        assert re.search(rf"{title}: .*100%", done.stderr), title
    store = ArtifactStore(artifacts)
    ref = store.resolve("stories")
    assert f"trained {ref}" in done.stdout
    assert store.active() == ref
    # The printed figures match the files, and the files contain the texts.
    tokenizer = Tokenizer.from_spec(store.open(ref))
    dataset = TokenDataset.open(tmp_path / "tokens", tokenizer)
    ids = np.memmap(tmp_path / "tokens" / "train.bin", np.uint16, mode="r")
    assert f"a batch (4, 32) of {len(ids)} mapped ids" in done.stdout
    files = dataset.files
    documents = [
        files.decode_document(index, tokenizer, split)
        for split in (record.name for record in files.manifest.splits)
        for index in range(files.n_documents(split))
    ]
    assert sorted(documents) == sorted(f"{text}<|endoftext|>" for text in TEXTS.values())
