"""Renders and encodes chats with Hugging Face `transformers`, in a separate process.

A request is one line of JSON: `file` (a `tokenizer.json`), `template`, `variables` (special tokens
by name), `chats` (keyword arguments of `apply_chat_template`, with `kwargs` for the template) and
`want` (`"text"`, `"ids"` or `"mask"`). The response is a list: the text, the ids or both lists for
each chat, or an object with the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

FOLDER = Path(sys.prefix) / "transformers"


class NOW(datetime):
    """A clock that stands still: templates print dates."""

    @classmethod
    def now(cls, tz: Any = None) -> NOW:
        """Always the same moment."""
        return cls(2024, 7, 26, 12, 30, 59, tzinfo=tz)


class TransformersChat:
    """`apply_chat_template` of transformers; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"PYTHONPATH": str(FOLDER), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> TransformersChat:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def apply(self, **request: Any) -> list[Any]:
        """The response to a request."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        response: list[Any] = json.loads(stdout.readline())
        return response


def _load(file: str | None, variables: dict[str, str]) -> Any:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    if file is not None:
        return PreTrainedTokenizerFast(tokenizer_file=file, **variables)
    empty = tokenizers.Tokenizer(tokenizers.models.BPE())
    return PreTrainedTokenizerFast(tokenizer_object=empty, **variables)


def _apply(tokenizer: Any, template: str, chat: dict[str, Any], want: str) -> Any:
    kwargs = chat.pop("kwargs", {})
    messages = chat.pop("messages")
    options: dict[str, Any] = {
        "text": {"tokenize": False},
        "ids": {"return_dict": False},
        "mask": {"return_assistant_tokens_mask": True},
    }[want]
    result = tokenizer.apply_chat_template(
        messages, chat_template=template, **chat, **options, **kwargs
    )
    return [result["input_ids"], result["assistant_masks"]] if want == "mask" else result


def _serve() -> None:
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = NOW  # type: ignore[misc]
    tokenizers: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = json.dumps([request["file"], request["variables"]])
        if key not in tokenizers:
            tokenizers[key] = _load(request["file"], request["variables"])
        response: list[Any] = []
        for chat in request["chats"]:
            try:
                response.append(_apply(tokenizers[key], request["template"], chat, request["want"]))
            except Exception as error:
                response.append({"error": f"{type(error).__name__}: {error}"[:300]})
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    _serve()
