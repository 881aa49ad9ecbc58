"""Conversations in records of JSON lines and Parquet: OpenAI's shape and ShareGPT's.

- OpenAI: `{"messages": [{"role": ..., "content": ...}], "tools": [...]}`; a message with
  `"weight": 0` is not learned. `documents` and `chat_template_kwargs` go to the chat template.
- ShareGPT: `{"conversations": [{"from": "human", "value": ...}], "tools": [...]}`.

`system` or `system_prompt` beside the messages is the first of them, as in axolotl, ms-swift and
LLaMA-Factory. Parquet and some data sets store lists as JSON strings; those are parsed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import ConversationError
from tokenizer_core.strict_json import StrictJsonError, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SYSTEM: Final = ("system", "system_prompt")
_UNREAD: Final = ("functions", "image", "images", "videos", "audios")
"""Fields of a record that change what a model reads, and that no template gets here."""

_VERDICTS: Final = ("label", "kto_tag", "weight")
"""What says that a whole record is worse (KTO of LLaMA-Factory and ms-swift), or its weight
(Fireworks)."""

_LEARNED: Final = (
    *("loss", "loss_scale", "loss_weight"),
    *("train", "training", "training_detail", "masked"),
)
"""What ms-swift, LLaMA-Factory, axolotl (by its configuration) and torchtune call `weight`."""

CONVERSATION_FIELDS: Final = (
    *("messages", "conversations", *_SYSTEM),
    *("tools", "documents", "chat_template_kwargs", *_UNREAD, *_VERDICTS, "chosen"),
)
"""The fields of a record that are read or refused; others may be there."""

_ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
    "system": "system", "tool": "tool", "observation": "tool",
}  # fmt: skip
"""ShareGPT's names of roles."""

_NOT_ASSISTANT: Final = ("gpt", "model", "bot", "chatbot", "ai", "tool_call", "function_call")
"""Roles of other data whose messages a template would write as those of somebody else."""


@lru_cache(64)
def _is_assistant(role: str) -> bool:
    """Whether another role means the assistant, also if it is misspelt."""
    from difflib import get_close_matches  # most conversations do not need it

    return role in _NOT_ASSISTANT or bool(get_close_matches(role, ["assistant"], cutoff=0.8))


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
    """The conversation in a JSON object. Raises ConversationError: it is not one of the two shapes;
    the message names the remedy.

    Example:
        >>> parse_conversation(b'{"conversations": [{"from": "human", "value": "Hi"}]}').messages
        [{'role': 'user', 'content': 'Hi'}]
    """
    try:
        record = _read_record(data)
    except StrictJsonError as error:
        raise ConversationError(
            f"the record {error}; mend it, or leave it out", error.code
        ) from None
    has_messages, has_turns = ("messages" in record, "conversations" in record)
    if has_messages == has_turns:
        both = "both messages and conversations"
        raise ConversationError(
            f"the record has {both if has_messages else f'no messages, but {list(record)!r:.80}'}; "
            f'write {{"messages": [{{"role": "user", "content": ...}}]}} or '
            f'{{"conversations": [{{"from": "human", "value": ...}}]}}; no other shape is read',
            "two_conversations" if has_messages else "no_messages",
        )
    for name in _UNREAD:
        if record.get(name):
            raise ConversationError(
                f"the record has {name}, which is not encoded; write functions as tools, and leave "
                f"out records with media"
            )
    for name in _VERDICTS:
        # A label of another type is no verdict, and a weight of 1 changes nothing.
        if (value := record.get(name)) is False or (name == "weight" and value not in (None, 1)):
            raise ConversationError(
                f"the record has {name} {value!r:.40}; leave it out if it is not to be learned, or "
                f"write a weight of 0 or 1 into its messages"
            )
    if record.get("chosen") not in (None, record.get("messages")):  # UltraFeedback has it twice
        raise ConversationError(
            "the record has its last message in chosen; write it at the end of the messages"
        )
    if has_turns:
        messages = _messages_of_turns(_list(record, "conversations"))
    else:
        messages = _list(record, "messages")
    if not messages:
        raise ConversationError("the conversation has no messages; leave the record out")
    kept, unlearned = list(_system_messages(record, messages[0])), []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise ConversationError(
                f'messages[{index}] has no role; write {{"role": "user", "content": ...}}'
            )
        if role != "assistant" and _is_assistant(role.lower()):
            raise ConversationError(
                f"messages[{index}] has the role {role}, whose text would not be learned; write "
                f"assistant, and calls as its tool_calls"
            )
        for name in _LEARNED:
            if message.get(name) is not None:
                raise ConversationError(
                    f"messages[{index}] has {name}; write what is learned as weight, 0 or 1"
                )
        _check_parts(message.get("content"), f"messages[{index}].content")
        weight = message.get("weight")
        if weight is not None and (isinstance(weight, bool) or weight not in (0, 1)):
            raise ConversationError(f"messages[{index}].weight must be 0 or 1")
        if weight == 0:
            unlearned.append(len(kept))
        kept.append({name: value for name, value in message.items() if name != "weight"})
    kwargs = record.get("chat_template_kwargs") or {}
    if not isinstance(kwargs, dict):
        raise ConversationError("chat_template_kwargs must be an object")
    tools = _list(record, "tools") if record.get("tools") else None
    documents = _list(record, "documents") if record.get("documents") else None
    return Conversation(kept, tools, documents, kwargs, frozenset(unlearned))


def _read_record(data: bytes) -> Any:
    try:
        return read_json(data)
    except StrictJsonError as error:
        if error.code not in ("not_a_number", "lone_surrogate"):
            raise
    # Other fields may hold them: `json.dumps` writes NaN. A template could write those of these.
    record = read_json(data, is_lenient=True)
    read = {name: record[name] for name in CONVERSATION_FIELDS if name in record}
    return read_json(json.dumps(read).encode())


def _check_parts(content: object, where: str) -> None:
    """Refuse a part of which a model reads more than the template writes, or with its own weight
    (axolotl)."""
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict):
            continue
        if any(medium in str(part.get("type")) for medium in ("image", "video", "audio")):
            raise ConversationError(f"{where}[{number}] is no text; leave out records with media")
        if any(part.get(name) is not None for name in ("weight", *_LEARNED)):
            raise ConversationError(
                f"{where}[{number}] says what is learned, which only a message can; write several "
                f"messages with a weight"
            )


def _system_messages(record: Mapping[str, Any], first: object) -> Iterator[dict[str, Any]]:
    """The message that a record has beside its messages, of which `first` is the first."""
    given = [record[name] for name in _SYSTEM if record.get(name)]
    if not given:
        return
    message = {"role": "system", "content": given[0]}
    if len(given) > 1 or not isinstance(given[0], str):
        raise ConversationError(f"{_SYSTEM[0]} must be one text; write it as the first message")
    if not isinstance(first, dict) or first.get("role") != "system":
        yield message
    elif first.get("content") != given[0]:
        raise ConversationError(
            "the record has two system messages, one of them beside the messages; leave one out"
        )


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
        others = {name: value for name, value in turn.items() if name not in ("from", "value")}
        messages.append({**others, "role": role, "content": turn["value"]})
    return messages
