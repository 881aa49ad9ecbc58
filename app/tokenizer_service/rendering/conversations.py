"""Conversations of other servers' requests in the form that chat templates read.

Templates read the messages of OpenAI's chat completions as transformers gives them. vLLM changes a
request in a few ways before its template sees it, and `from_messages` makes the same changes, so
that the ids are those of a model that vLLM serves. Requests of Anthropic's and OpenAI's APIs become
chat messages first, as in vLLM. A part without text, such as an image, is refused by name: a count
without it would be wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tokenizer_client.schemas.chat import MAX_CHAT_NESTING
from tokenizer_service.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokenizer_client.schemas.chat import CountTokensRequest, InputTokensRequest

_TEXT_FIELDS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Type of a content part that is text -> the field with the text."""
_TOOL_FIELDS: Final = ("name", "description", "parameters")
_UNFINISHED: Final = ("in_progress", "incomplete")

Message = dict[str, Any]


@dataclass
class Conversation:
    """What a chat template renders, and the position of each message in the request."""

    messages: list[Message]
    pointers: list[str] = field(default_factory=list)
    """JSON pointers, one per message; empty if they are `/messages/0`, `/messages/1`, ..."""
    tools: list[Message] | None = None
    documents: Sequence[Message] | None = None
    chat_template: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool | str = False

    def pointer(self, index: int) -> str:
        """The JSON pointer of message `index` in the request."""
        return self.pointers[index] if self.pointers else f"/messages/{index}"


class _Collected:
    """Messages with their pointers, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pointers: list[str] = []

    def add(self, pointer: str, message: Message) -> None:
        self.messages.append(message)
        self.pointers.append(pointer)

    def assistant(self, pointer: str, missing: str) -> Message:
        """The last message if the assistant's and without the field `missing`, else a new one."""
        if self.messages:
            last = self.messages[-1]
            if last["role"] == "assistant" and last.get(missing) is None:
                return last
        self.add(pointer, {"role": "assistant"})
        return self.messages[-1]


def require_shallow(value: Any) -> None:
    """Raise 422 for a request whose objects and lists are nested too deeply for a template."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_CHAT_NESTING + 1):
        level = [
            member
            for outer in level
            for member in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(member, dict | list)
        ]
        if not level:
            return
    raise Problem(
        422,
        "nested_too_deep",
        f"Messages, tools and template arguments nest at most {MAX_CHAT_NESTING} objects and "
        f"lists; send them flatter.",
        limit=MAX_CHAT_NESTING,
    )


def without_nulls(value: Any) -> Any:
    """`value` without its null members, which other servers treat as absent."""
    if isinstance(value, dict):
        return {key: member for key, member in value.items() if member is not None}
    return value


def with_effort(kwargs: Mapping[str, Any] | None, effort: Any) -> dict[str, Any]:
    """The template variables of a request with `reasoning_effort`, as vLLM sets them."""
    variables = dict(kwargs or {})
    if effort is not None:
        variables.setdefault("enable_thinking", effort != "none")
        variables["reasoning_effort"] = effort
    return variables


def as_vllm(conversation: Conversation, source: str, loops_over_content: bool) -> Conversation:
    """Change the messages and tools as vLLM does before it renders the template `source`.

    Content becomes a list of parts if the template loops over it, else one text. Arguments of tool
    calls become objects. A template that does not name the role `developer` gets `system` instead.

    Raises:
        Problem: 422 for a message, part, tool call or tool that has no text or another shape.
    """
    collected = _Collected()
    for index, message in enumerate(conversation.messages):
        pointer = conversation.pointer(index)
        collected.add(pointer, _message(message, pointer, as_parts=loops_over_content))
    names_developer = "'developer'" in source or '"developer"' in source
    if not names_developer and any(m["role"] == "developer" for m in collected.messages):
        collected = _with_one_system_message(collected)
    tools = conversation.tools
    if tools is not None:
        tools = [_tool(tool, f"/tools/{index}") for index, tool in enumerate(tools)]
    return replace(
        conversation, messages=collected.messages, pointers=collected.pointers, tools=tools
    )


def from_anthropic(request: CountTokensRequest) -> Conversation:
    """The conversation of a request to `/v1/messages/count_tokens`.

    `system` and system messages become the first message. `tool_use` becomes a tool call,
    `tool_result` a message of the role `tool` in front of the rest of its message, `thinking` the
    reasoning of its message. A last message of the assistant that ends in text is continued, as
    Anthropic's API does.

    Raises:
        Problem: 422 for a block that is no text, or of another shape.
    """
    collected = _Collected()
    system = [*_texts(request.system, "/system")]
    for index, message in enumerate(request.messages):
        if message.get("role") == "system":
            system += _texts(message.get("content"), f"/messages/{index}/content")
    if system:
        pointer = "/system" if request.system else "/messages"
        collected.add(pointer, {"role": "system", "content": "".join(system)})
    for index, message in enumerate(request.messages):
        role, pointer = message.get("role"), f"/messages/{index}"
        if role in ("user", "assistant"):
            _add_anthropic(collected, message, pointer)
        elif role != "system":
            _refuse(f"{pointer}/role", "must be user, assistant or system")
    last = collected.messages[-1] if collected.messages else {}
    is_continued = last.get("role") == "assistant" and not last.get("tool_calls")
    is_continued = is_continued and bool(last.get("content"))
    return Conversation(
        collected.messages,
        collected.pointers,
        _tools(request.tools, _anthropic_tool),
        chat_template=request.chat_template,
        kwargs=with_effort(
            request.chat_template_kwargs, (request.output_config or {}).get("effort")
        ),
        add_generation_prompt=not is_continued,
        continue_final_message=is_continued,
    )


def from_responses(request: InputTokensRequest) -> Conversation:
    """The conversation of a request to `/v1/responses/input_tokens`.

    `instructions` become a system message. A `function_call` becomes a tool call and `reasoning`
    the reasoning of the assistant's message around it, `function_call_output` a message of
    the role `tool`. A last item whose status is unfinished is continued, as by vLLM.

    Raises:
        Problem: 422 for an item that is no text or of another shape.
    """
    collected = _Collected()
    if request.instructions:
        collected.add("/instructions", {"role": "system", "content": request.instructions})
    items: list[Message] = []
    if isinstance(request.input, str):
        collected.add("/input", {"role": "user", "content": request.input})
    else:
        items = request.input or []
        for index, item in enumerate(items):
            _add_item(collected, item, f"/input/{index}")
    if not collected.messages:
        _refuse("/input", "the input is empty: give a text or at least one item")
    is_continued = bool(items) and items[-1].get("status") in _UNFINISHED
    is_continued = is_continued and collected.messages[-1]["role"] == "assistant"
    kwargs = dict(request.chat_template_kwargs or {})
    effort = (request.reasoning or {}).get("effort")
    if effort is not None:
        kwargs["reasoning_effort"] = effort
    return Conversation(
        collected.messages,
        collected.pointers,
        _tools(request.tools, _responses_tool),
        chat_template=request.chat_template,
        kwargs=kwargs,
        add_generation_prompt=not is_continued,
        continue_final_message=is_continued,
    )


def _refuse(pointer: str, detail: str) -> NoReturn:
    raise Problem(422, "invalid_request", f"{pointer}: {detail}", errors=[(pointer, detail)])


def _refuse_part(pointer: str, kind: object, known: str) -> NoReturn:
    # A type is the client's word: repeat it only if it reads like one.
    is_word = isinstance(kind, str) and len(kind) <= 40 and kind.replace("_", "").isalnum()
    what = f"`{kind}`" if is_word and isinstance(kind, str) and kind.isascii() else "this type"
    _refuse(pointer, f"{what} has no text whose tokens could be counted; known are {known}")


def _message(message: Message, pointer: str, *, as_parts: bool) -> Message:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        _refuse(f"{pointer}/role", "must be a string")
    texts = _texts(content, f"{pointer}/content")
    result: Message = {"role": role, "content": "\n".join(texts)}
    if as_parts and role != "tool":
        result["content"] = [{"type": "text", "text": text} for text in texts]
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls:
            result["tool_calls"] = _tool_calls(calls, f"{pointer}/tool_calls")
        for name in ("reasoning", "reasoning_content"):
            if message.get(name) is not None:
                result["reasoning"] = result["reasoning_content"] = message[name]
                break
    if role == "tool" and "tool_call_id" in message:
        result["tool_call_id"] = message["tool_call_id"]
    result |= {
        name: message[name] for name in ("name", "task") if isinstance(message.get(name), str)
    }
    if role == "developer":
        result["tools"] = message.get("tools")
    return result


def _texts(content: object, pointer: str) -> list[str]:
    """The texts of a message's content: a string, parts of text, or nothing."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        _refuse(pointer, "must be a string or a list of parts")
    texts: list[str] = []
    for index, part in enumerate(content):
        where = f"{pointer}/{index}"
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            _refuse(where, "must be an object with type and text")
        name = _TEXT_FIELDS.get(kind) if isinstance(kind := part.get("type"), str) else None
        if name is None:
            _refuse_part(where, kind, "text, refusal and thinking")
        text = part.get(name)
        if text is not None:
            texts.append(_string(text, f"{where}/{name}"))
    return texts


def _string(value: object, pointer: str) -> str:
    if not isinstance(value, str):
        _refuse(pointer, "must be a string")
    return value


def _object(value: object, pointer: str) -> Message:
    if not isinstance(value, dict):
        _refuse(pointer, "must be an object")
    return value


def _tool_calls(calls: object, pointer: str) -> list[Message]:
    if not isinstance(calls, list):
        _refuse(pointer, "must be a list")
    return [_tool_call(call, f"{pointer}/{index}") for index, call in enumerate(calls)]


def _tool_call(value: object, pointer: str) -> Message:
    call = _object(value, pointer)
    if call.get("type", "function") != "function":
        _refuse(f"{pointer}/type", "must be function")
    function = _object(call.get("function"), f"{pointer}/function")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(value: object) -> Message:
    """The arguments of a call as an object; what is no object becomes an empty one, as by vLLM."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _tool(value: object, pointer: str) -> Message:
    """A tool with the fields and the order in which vLLM gives it to templates."""
    tool = _object(value, pointer)
    if tool.get("type", "function") != "function":
        _refuse(f"{pointer}/type", "must be function: other tools have no text here")
    function = _object(tool.get("function"), f"{pointer}/function")
    _string(function.get("name"), f"{pointer}/function/name")
    known = {name: function.get(name) for name in _TOOL_FIELDS}
    others = {name: value for name, value in function.items() if name not in known}
    if others.get("defer_loading", 0) is None:
        del others["defer_loading"]
    return {"type": "function", "function": known | others}


def _tools(
    tools: list[Message] | None, convert: Callable[[Message, str], Message]
) -> list[Message] | None:
    if tools is None:
        return None
    return [convert(tool, f"/tools/{index}") for index, tool in enumerate(tools)]


def _with_one_system_message(collected: _Collected) -> _Collected:
    """Developer messages as system messages; several become one, in front."""
    result = _Collected()
    for pointer, message in zip(collected.pointers, collected.messages, strict=True):
        if message["role"] == "developer":
            message = {name: value for name, value in message.items() if name != "tools"}
            message["role"] = "system"
        result.add(pointer, message)
    is_system = [message["role"] == "system" for message in result.messages]
    if not any(is_system[1:]):
        return result
    merged = _Collected()
    texts = [_joined(m["content"]) for m in result.messages if m["role"] == "system"]
    content = "\n\n".join(filter(None, texts))
    pointer = result.pointers[is_system.index(True)]
    merged.add(pointer, {"role": "system", "content": content})
    for pointer, message in zip(result.pointers, result.messages, strict=True):
        if message["role"] != "system":
            merged.add(pointer, message)
    return merged


def _joined(content: str | list[Message]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def _add_anthropic(collected: _Collected, message: Message, pointer: str) -> None:
    role, content = message["role"], message.get("content")
    result: Message = {"role": role}
    if isinstance(content, list):
        blocks = _Blocks(collected, pointer, role)
        for index, block in enumerate(content):
            blocks.add(_object(block, f"{pointer}/content/{index}"), f"{pointer}/content/{index}")
        result |= blocks.fields()
        if result == {"role": "user"}:
            return  # only tool results
    else:
        result["content"] = _string(content, f"{pointer}/content")
    collected.add(pointer, result)


class _Blocks:
    """The content blocks of one message of Anthropic's API."""

    def __init__(self, collected: _Collected, pointer: str, role: str) -> None:
        self._collected, self._pointer, self._role = collected, pointer, role
        self._texts: list[Message] = []
        self._reasoning: list[str] = []
        self._calls: list[Message] = []

    def add(self, block: Message, pointer: str) -> None:
        """Add one block. Raises Problem for one that is no text."""
        kind = block.get("type")
        if kind == "text":
            text = _string(block.get("text"), f"{pointer}/text")
            if text:
                self._texts.append({"type": "text", "text": text})
        elif kind == "thinking":
            self._reasoning.append(_string(block.get("thinking"), f"{pointer}/thinking"))
        elif kind == "redacted_thinking":
            pass  # encrypted, so that no template can write it
        elif kind == "tool_use" and self._role == "assistant":
            name = _string(block.get("name"), f"{pointer}/name")
            given = _object(block.get("input", {}), f"{pointer}/input")
            function = {"name": name, "arguments": given}
            self._calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result" and self._role == "user":
            text = "\n".join(_texts(block.get("content"), f"{pointer}/content"))
            call_id = block.get("tool_use_id")
            self._collected.add(pointer, {"role": "tool", "tool_call_id": call_id, "content": text})
        else:
            known = "text, thinking, and tool_use of the assistant or tool_result of the user"
            _refuse_part(pointer, kind, known)

    def fields(self) -> Message:
        """The fields of the message."""
        fields: Message = {}
        if self._reasoning:
            fields["reasoning"] = "".join(self._reasoning)
        if self._calls:
            fields["tool_calls"] = self._calls
        if self._texts:
            fields["content"] = self._texts
        return fields


def _anthropic_tool(tool: Message, pointer: str) -> Message:
    if tool.get("type", "custom") not in ("custom", None):
        _refuse_part(f"{pointer}/type", tool.get("type"), "tools with input_schema")
    function = {
        "name": _string(tool.get("name"), f"{pointer}/name"),
        "description": tool.get("description"),
        "parameters": _object(tool.get("input_schema"), f"{pointer}/input_schema"),
    }
    return {"type": "function", "function": function}


def _add_item(collected: _Collected, item: Message, pointer: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = _string(item.get("role"), f"{pointer}/role")
        content = item.get("content")
        if role == "assistant":
            collected.assistant(pointer, "content")["content"] = content or ""
        else:
            collected.add(pointer, {"role": role, "content": content})
    elif kind == "function_call":
        function = {
            "name": _string(item.get("name"), f"{pointer}/name"),
            "arguments": item.get("arguments"),
        }
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        collected.assistant(pointer, "").setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        collected.add(
            pointer,
            {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")},
        )
    elif kind == "reasoning":
        if item.get("encrypted_content"):
            _refuse(f"{pointer}/encrypted_content", "encrypted reasoning cannot be counted")
        texts = _reasoning_texts(item, pointer)
        collected.assistant(pointer, "reasoning")["reasoning"] = "\n".join(texts)
    else:
        known = "message, function_call, function_call_output and reasoning"
        _refuse_part(pointer, kind, known)


def _reasoning_texts(item: Message, pointer: str) -> list[str]:
    for name in ("content", "summary"):
        parts = item.get(name)
        if parts:
            if not isinstance(parts, list):
                _refuse(f"{pointer}/{name}", "must be a list of parts")
            return [
                _string(_object(part, f"{pointer}/{name}/{i}").get("text"), f"{pointer}/{name}/{i}")
                for i, part in enumerate(parts)
            ]
    return []


def _responses_tool(tool: Message, pointer: str) -> Message:
    if tool.get("type", "function") != "function":
        _refuse_part(f"{pointer}/type", tool.get("type"), "functions")
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": function}
