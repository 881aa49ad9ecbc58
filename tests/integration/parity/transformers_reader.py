"""Hugging Face `transformers`, in a separate process that all tests of a session share.

transformers needs a newer `regex` than the one that the tests here run on, so it is
installed in `.venv/transformers`, and tests do not import it. This file is also that process. A
request is one line of JSON, with the name of an action; so is the response.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
from collections import OrderedDict
from datetime import datetime
from pathlib import Path

FOLDER = Path(sys.prefix) / "transformers"
_MAX_LOADED = 8


class NOW(datetime):
    """A fixed time, because templates print dates."""

    @classmethod
    def now(cls, tz=None):
        """Always the same moment."""
        return cls(2024, 7, 26, 12, 30, 59, tzinfo=tz)


@functools.cache
def _process():
    process = subprocess.Popen(
        [sys.executable, __file__],
        env=os.environ | {"PYTHONPATH": str(FOLDER), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    atexit.register(process.wait)  # after the next one
    atexit.register(process.kill)
    return process


def _ask(action, **request):
    stdin, stdout = _process().stdin, _process().stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(json.dumps({"action": action, **request}) + "\n")
    stdin.flush()
    response = json.loads(stdout.readline())
    if isinstance(response, dict):
        raise RuntimeError(response["error"])
    return response


def apply_chat_template(**request):
    """For each of `chats` (arguments of `apply_chat_template`, with `kwargs` for the template) its
    text, its ids, or ids and mask, as `want` says; or an object with the error.

    The others are `file` (a `tokenizer.json`), `template`, and `variables` (special tokens by
    name).
    """
    return _ask("chat", **request)


class TransformersReader:
    """A tokenizer as transformers loads it."""

    def __init__(self, *arguments):
        """`"PreTrainedTokenizerFast", file`, `"GPT2Tokenizer", folder, special token, ...`, or
        `"AutoTokenizer", folder`, which also adds tokens at the ends."""
        self._number = _ask("load", arguments=arguments)
        self._adds = arguments[0] == "AutoTokenizer"

    @staticmethod
    def is_there():
        """Whether `make test-integration` has installed transformers for the process."""
        return FOLDER.is_dir()

    def encode(self, texts):
        """The ids of each text, special tokens recognised."""
        return _ask("encode", number=self._number, texts=texts, adds=self._adds)

    def decode(self, batch):
        """The text of each list of ids, without special tokens."""
        return _ask("decode", number=self._number, batch=batch)


class _Server:
    """The actions, in the process that imports transformers."""

    def __init__(self):
        self._loaded = OrderedDict()
        self._n_loaded = 0

    def _keep(self, key, tokenizer):
        self._loaded[key] = tokenizer
        if len(self._loaded) > _MAX_LOADED:
            self._loaded.popitem(last=False)
        return key

    def load(self, arguments):
        import transformers

        kind, path, *special_tokens = arguments
        if kind == "PreTrainedTokenizerFast":
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
        else:
            tokenizer = getattr(transformers, kind).from_pretrained(path)
        if special_tokens:
            tokenizer.add_special_tokens({"additional_special_tokens": special_tokens})
        self._n_loaded += 1
        return self._keep(self._n_loaded, tokenizer)

    def encode(self, number, texts, *, adds):
        return self._loaded[number](texts, add_special_tokens=adds)["input_ids"]

    def decode(self, number, batch):
        tokenizer = self._loaded[number]
        return [tokenizer.decode(ids, skip_special_tokens=True) for ids in batch]

    def chat(self, file, template, variables, chats, want):
        key = json.dumps([file, variables])
        if key not in self._loaded:
            self._keep(key, self._load_for_chats(file, variables))
        response = []
        for chat in chats:
            try:
                response.append(self._apply(self._loaded[key], template, chat, want))
            except Exception as error:
                response.append({"error": repr(error)[:300]})
        return response

    def _load_for_chats(self, file, variables):
        import tokenizers
        from transformers import PreTrainedTokenizerFast

        if file is not None:
            return PreTrainedTokenizerFast(tokenizer_file=file, **variables)
        empty = tokenizers.Tokenizer(tokenizers.models.BPE())
        return PreTrainedTokenizerFast(tokenizer_object=empty, **variables)

    def _apply(self, tokenizer, template, chat, want):
        kwargs = chat.pop("kwargs", {})
        messages = chat.pop("messages")
        options = {
            "text": {"tokenize": False},
            "ids": {"return_dict": False},
            "mask": {"return_assistant_tokens_mask": True},
        }[want]
        result = tokenizer.apply_chat_template(
            messages, chat_template=template, **chat, **options, **kwargs
        )
        return [result["input_ids"], result["assistant_masks"]] if want == "mask" else result


def _serve():
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = NOW
    sys.stdin.reconfigure(encoding="utf-8")
    server = _Server()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            response = getattr(server, request.pop("action"))(**request)
        except Exception as error:
            response = {"error": repr(error)}
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    _serve()
