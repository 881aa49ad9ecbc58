"""The clients of other servers, unchanged, with a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.server_process import serve
from tests.tokenizer_service.chats import END_ID, SPEC, chatml_ids, with_templates
from tokenizer_core.registry import ArtifactStore

SDKS = Path(sys.prefix) / "sdks"
KEY = "a-read-key-for-clients"
N_HELLO = len(chatml_ids(("user", "Hello"), prompt=True))
EXPECTED = {
    "openai models": ["chat"],
    "openai model": "chat",
    "openai count": N_HELLO,
    "openai render": [[257, 72, 105], [257, 97]],
    "openai unknown": ["NotFoundError", 404],
    "openai no key": ["AuthenticationError", 401],
    "openai large": ["APIStatusError", 413],
    "openai image": ["BadRequestError", 400],
    "anthropic models": ["chat"],
    "anthropic count": N_HELLO,
    "anthropic beta": N_HELLO,
    "anthropic unknown": ["NotFoundError", 404],
    "anthropic no key": ["AuthenticationError", 401],
    "anthropic large": ["ContentTooLargeError", 413],
    "anthropic image": ["BadRequestError", 400],
    **{
        f"{name} {call}": outcome
        for name in ("cohere", "cohere prefix")
        for call, outcome in {
            "tokens": [72, 105],
            "text": "Hi",
            "unknown": ["NotFoundError", 404],
            "no key": ["UnauthorizedError", 401],
            "large": ["ApiError", 413],
        }.items()
    },
    "google count": N_HELLO,
    "google unknown": ["ClientError", 404],
    "google no key": ["ClientError", 401],
    "google large": ["ClientError", 400],
    "google image": ["ClientError", 400],
    "lm-eval tokens": [72, 105, END_ID],
    "lm-eval text": "Hi",
    "lm-eval end": [None, None],
    "lm-eval no key": ["RuntimeError", None],
    "tei tokens": [[END_ID, 72, 105], [END_ID, 97]],
    "tei text": ["Hi", "a"],
    "tei health": True,
    "tei prompts": [],
    "tei info": ["StopIteration", None],  # it wants the type of a model
}


def test_unchanged_clients_get_counts_and_their_own_errors(tmp_path):
    if not SDKS.is_dir():
        pytest.skip("the clients are not there; make test-integration installs them")
    ArtifactStore(tmp_path / "artifacts").publish(with_templates(SPEC), name="chat")
    limits = {"default": "chat", "read_keys": KEY, "max_body_bytes": "16384"}
    with serve(tmp_path / "artifacts", **limits) as server:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("calls.py"), server.url, KEY],
            env=os.environ | {"PYTHONPATH": str(SDKS)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == EXPECTED
