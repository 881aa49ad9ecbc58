"""Reads a tokenizer with Hugging Face `transformers`, in a separate process.

transformers needs a newer `regex` than the one that the tests here run on, so it is
installed in `.venv/transformers`, and tests do not import it. Arguments: the class, then the
arguments of its `from_pretrained` or constructor. Each line of standard input is a JSON list of
texts, each line of standard output the list of their ids; or the other way about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

FOLDER = Path(sys.prefix) / "transformers"


class TransformersReader:
    """A tokenizer as transformers loads it; a context manager."""

    def __init__(self, *arguments: str) -> None:
        """`"PreTrainedTokenizerFast", file`, `"GPT2Tokenizer", folder, special token, ...`, or
        `"AutoTokenizer", folder`, which also adds tokens at the ends."""
        environment = os.environ | {"PYTHONPATH": str(FOLDER), "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    @staticmethod
    def is_there() -> bool:
        """Whether `make test-integration` has installed transformers for the process below."""
        return FOLDER.is_dir()

    def __enter__(self) -> TransformersReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, special tokens recognised."""
        ids: list[list[int]] = self._ask(texts)
        return ids

    def decode(self, batch: list[list[int]]) -> list[str]:
        """The text of each list of ids, without special tokens."""
        texts: list[str] = self._ask(batch)
        return texts

    def _ask(self, items: list[Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(items) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())


def _load(kind: str, path: str, *special_tokens: str) -> Any:
    import transformers

    if kind == "PreTrainedTokenizerFast":
        return transformers.PreTrainedTokenizerFast(tokenizer_file=path)
    tokenizer = getattr(transformers, kind).from_pretrained(path)
    if special_tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": list(special_tokens)})
    return tokenizer


def _serve(tokenizer: Any, requests: IO[str], *, add_special_tokens: bool) -> None:
    for line in requests:
        items = json.loads(line)
        if isinstance(items[0], str):
            answer = tokenizer(items, add_special_tokens=add_special_tokens)["input_ids"]
        else:
            answer = [tokenizer.decode(ids, skip_special_tokens=True) for ids in items]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    _serve(_load(*sys.argv[1:]), sys.stdin, add_special_tokens=sys.argv[1] == "AutoTokenizer")
