"""Chat templates give the text that transformers gives for them, or both refuse the request.

Besides our own templates, the files `*.jinja` of the folder that `TOKENIZER_CHAT_TEMPLATES` names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chat_requests import chat_requests
from tests.integration.parity.transformers_chat import NOW, TransformersChat
from tests.integration.parity.transformers_reader import TransformersReader
from tests.tokenizer_core.chat.own_templates import OWN_TEMPLATES, template_request
from tokenizer_core.chat import template as template_module
from tokenizer_core.chat.template import ChatTemplate

pytestmark = pytest.mark.skipif(
    not TransformersReader.is_there(), reason="transformers is not there; make test-all installs it"
)

_FOLDER = os.environ.get("TOKENIZER_CHAT_TEMPLATES")
_NO_FOLDER = pytest.mark.skip("set TOKENIZER_CHAT_TEMPLATES to a folder of *.jinja files")
_VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def _templates() -> list[Any]:
    own = [pytest.param(source, 400, id=name) for name, source in OWN_TEMPLATES.items()]
    if not _FOLDER:
        return [*own, pytest.param("", 0, id="public", marks=_NO_FOLDER)]
    files = sorted(Path(_FOLDER).glob("*.jinja"))
    assert files, f"no *.jinja in {_FOLDER}"
    public = [pytest.param(path.read_bytes().decode(), 60, id=path.stem) for path in files]
    return [*own, *public]


@pytest.fixture(scope="module")
def transformers() -> Iterator[TransformersChat]:
    with TransformersChat() as process:
        yield process


def ours(template: ChatTemplate | None, chat: dict[str, Any]) -> str | None:
    """The text, or None where it is refused."""
    if template is None:
        return None
    try:
        return str(template.render(template_request(chat, _VARIABLES))[0])
    except Exception:
        return None


@pytest.mark.parametrize(("source", "count"), _templates())
def test_text(
    source: str, count: int, transformers: TransformersChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_module, "datetime", NOW)
    chats = list(chat_requests(26, count))
    expected = transformers.apply(
        file=None, template=source, variables=_VARIABLES, chats=chats, want="text"
    )
    try:
        template = ChatTemplate(source)
    except template_module.TemplateError:
        template = None
    for chat, text in zip(chats, expected, strict=True):
        assert ours(template, chat) == (text if isinstance(text, str) else None), chat
