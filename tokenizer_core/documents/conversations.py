"""Conversations in records of JSON lines and Parquet: OpenAI's shape and ShareGPT's.

- OpenAI: `{"messages": [{"role": ..., "content": ...}], "tools": [...]}`; a message with
  `"weight": 0` is not learned. `documents` and `chat_template_kwargs` go to the chat template.
- ShareGPT: `{"conversations": [{"from": "human", "value": ...}], "system": ..., "tools": [...]}`.

Parquet and some data sets store lists as JSON strings; those are parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import ConversationError
from tokenizer_core.strict_json import StrictJsonError, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONVERSATION_FIELDS: Final = (
    "messages",
    "conversations",
    "system",
    "tools",
    "documents",
    "chat_template_kwargs",
)
"""The fields of a record that are read; others may be there."""

_ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "system": "system", "tool": "tool", "observation": "tool",
}  # fmt: skip
"""ShareGPT's names of roles."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The arguments of `Tokenizer.encode_chat`, and the messages that are not learned."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None = None
    documents: Sequence[Any] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    unlearned: frozenset[int] = frozenset()
    """Indices of the messages of weight 0."""


def parse_conversation(data: bytes) -> Conversation:
    """The conversation in a JSON object.

    Raises:
        ConversationError: it is not one of the two shapes; the message names the remedy.

    Example:
        >>> parse_conversation(b'{"conversations": [{"from": "human", "value": "Hi"}]}').messages
        [{'role': 'user', 'content': 'Hi'}]
    """
    try:
        record = read_json(data)
    except StrictJsonError as error:
        raise ConversationError(
            f"the record {error}; mend it, or leave it out", error.code
        ) from None
    has_messages, has_turns = ("messages" in record, "conversations" in record)
    if has_messages == has_turns:
        both = "both messages and conversations" if has_messages else "no messages"
        raise ConversationError(
            f'the record has {both}; write {{"messages": [{{"role": "user", "content": ...}}]}} or '
            f'{{"conversations": [{{"from": "human", "value": ...}}]}}'
        )
    if has_turns:
        messages = _messages_of_turns(_list(record, "conversations"))
        if isinstance(system := record.get("system"), str) and system:
            messages.insert(0, {"role": "system", "content": system})
    else:
        messages = _list(record, "messages")
    if not messages:
        raise ConversationError("the conversation has no messages; leave the record out")
    kept, unlearned = [], []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise ConversationError(
                f'messages[{index}] has no role; write {{"role": "user", "content": ...}}'
            )
        weight = message.get("weight")
        if weight is not None and (isinstance(weight, bool) or weight not in (0, 1)):
            raise ConversationError(f"messages[{index}].weight must be 0 or 1")
        if weight == 0:
            unlearned.append(index)
        kept.append({name: value for name, value in message.items() if name != "weight"})
    kwargs = record.get("chat_template_kwargs") or {}
    if not isinstance(kwargs, dict):
        raise ConversationError("chat_template_kwargs must be an object")
    tools = _list(record, "tools") if record.get("tools") else None
    documents = _list(record, "documents") if record.get("documents") else None
    return Conversation(kept, tools, documents, kwargs, frozenset(unlearned))


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    value = record[name]
    if isinstance(value, str):
        try:
            value = read_json(value.encode())
        except (StrictJsonError, UnicodeEncodeError):
            value = None
    if not isinstance(value, list):
        raise ConversationError(f"{name} must be a list")
    return value


def _messages_of_turns(turns: Sequence[Any]) -> list[dict[str, Any]]:
    messages = []
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            raise ConversationError(
                f'conversations[{index}] has no text; write {{"from": "human", "value": ...}}'
            )
        role = _ROLES.get(str(turn.get("from")))
        if role is None:
            raise ConversationError(
                f"conversations[{index}] is from {turn.get('from')!r:.40}; there are "
                f"{', '.join(_ROLES)}"
            )
        weight = {"weight": turn["weight"]} if "weight" in turn else {}
        messages.append({"role": role, "content": turn["value"], **weight})
    return messages
