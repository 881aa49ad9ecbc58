"""Requests of Anthropic's, OpenAI's and Gemini's APIs as chat messages; the first two as by vLLM.

A part without text, such as an image, is refused by name: a count without it would be wrong. What
vLLM changes in chat messages before its template reads them is in `tokenizer_core.chat.messages`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tokenizer_client.schemas.chat import (
    MAX_CHAT_NESTING,
    CountTokensRequest,
    GeminiCountRequest,
    InputTokensRequest,
)
from tokenizer_core.chat.messages import (
    MessagesForm,
    list_of,
    object_of,
    refuse,
    refuse_part,
    string_of,
    texts_of,
)
from tokenizer_service.http.problem import Problem

_THINKING: Final = ("enabled", "adaptive", "disabled")
_UNFINISHED: Final = ("in_progress", "incomplete")
_GEMINI_FIELDS: Final = (
    "contents", "systemInstruction", "tools", "generationConfig", "labels", "model",
    "safetySettings", "serviceTier", "store", "toolConfig",
)  # fmt: skip
"""Fields of Gemini's `generateContentRequest` that are read or do not change the prompt."""

Message = dict[str, Any]


@dataclass
class RequestedConversation:
    """What a chat template renders, and the position of each message in the request."""

    messages: list[Message] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)
    """JSON pointers, one per message; empty if they are `/messages/0`, `/messages/1`, ..."""
    place: str = ""
    """JSON pointer of the conversation."""
    tools: list[Message] | None = None
    documents: Sequence[Message] | None = None
    chat_template: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool | str = False
    messages_form: MessagesForm = "vllm"
    with_loss: bool = False
    added_tokens: Literal["all", "none"] = "all"
    add_special_tokens: bool = False
    """Whether to add the post-processor's ids."""

    def pointer(self, index: int) -> str:
        """The JSON pointer of message `index` in the request."""
        return self.pointers[index] if self.pointers else f"/messages/{index}"

    def add(self, pointer: str, message: Message) -> None:
        """Add a message, which is at `pointer` in the request."""
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


def with_effort(kwargs: Mapping[str, Any] | None, effort: Any) -> dict[str, Any]:
    """The template variables of a request with `reasoning_effort`, as vLLM sets them."""
    variables = dict(kwargs or {})
    if effort is not None:
        variables.setdefault("enable_thinking", effort != "none")
        variables["reasoning_effort"] = effort
    return variables


def from_anthropic(
    request: CountTokensRequest, *, merges_system: bool = False, without_thinking: str = "none"
) -> RequestedConversation:
    """The conversation of a request to `/v1/messages/count_tokens`.

    `system` becomes the first message, with the text of the system messages if `merges_system`.
    `tool_use` becomes a tool call, `tool_result` a message of the role `tool` in front of the rest
    of its message, `thinking` the reasoning of its message. A last message of the assistant that
    ends in text is continued, as Anthropic's API does. `without_thinking` is the effort of a
    request that disables thinking.
    """
    conversation = RequestedConversation(chat_template=request.chat_template)
    system = [*texts_of(request.system, "/system")]
    if merges_system:
        for index, message in enumerate(request.messages):
            if message.get("role") == "system":
                system += texts_of(message.get("content"), f"/messages/{index}/content")
    if system:
        pointer = "/system" if request.system else "/messages"
        conversation.add(pointer, {"role": "system", "content": "".join(system)})
    for index, message in enumerate(request.messages):
        role, pointer = message.get("role"), f"/messages/{index}"
        if role in ("user", "assistant"):
            _add_anthropic(conversation, message, pointer)
        elif role != "system":
            refuse(f"{pointer}/role", "must be user, assistant or system")
        elif not merges_system:
            text = "".join(texts_of(message.get("content"), f"{pointer}/content"))
            if text:
                conversation.add(pointer, {"role": "system", "content": text})
    last = conversation.messages[-1] if conversation.messages else {}
    is_continued = last.get("role") == "assistant" and not last.get("tool_calls")
    is_continued = is_continued and bool(last.get("content"))
    effort = (request.output_config or {}).get("effort")
    if request.thinking is not None and request.thinking.get("type") not in _THINKING:
        refuse("/thinking/type", f"must be {', '.join(_THINKING)}")
    if request.thinking is not None and request.thinking["type"] == "disabled":
        effort = without_thinking
    conversation.tools = _tools(request.tools, _anthropic_tool)
    conversation.kwargs = with_effort(request.chat_template_kwargs, effort)
    conversation.continue_final_message = is_continued
    conversation.add_generation_prompt = not is_continued
    return conversation


def from_responses(request: InputTokensRequest) -> RequestedConversation:
    """The conversation of a request to `/v1/responses/input_tokens`.

    `instructions` become a system message. A `function_call` becomes a tool call and `reasoning`
    the reasoning of the assistant's message around it, `function_call_output` a message of
    the role `tool`. A last item whose status is unfinished is continued, as by vLLM.
    """
    kwargs = with_effort(request.chat_template_kwargs, (request.reasoning or {}).get("effort"))
    conversation = RequestedConversation(chat_template=request.chat_template, kwargs=kwargs)
    if request.instructions:
        conversation.add("/instructions", {"role": "system", "content": request.instructions})
    items: list[Message] = []
    if isinstance(request.input, str):
        conversation.add("/input", {"role": "user", "content": request.input})
    else:
        items = request.input or []
        for index, item in enumerate(items):
            _add_item(conversation, item, f"/input/{index}")
    if not conversation.messages:
        refuse("/input", "the input is empty: give a text or at least one item")
    is_continued = bool(items) and items[-1].get("status") in _UNFINISHED
    is_continued = is_continued and conversation.messages[-1]["role"] == "assistant"
    conversation.tools = _tools(request.tools, _responses_tool)
    conversation.continue_final_message = is_continued
    conversation.add_generation_prompt = not is_continued
    return conversation


def from_gemini(request: GeminiCountRequest) -> RequestedConversation:
    """The conversation of a request to `models/{model}:countTokens`.

    `systemInstruction` becomes a system message, a `functionCall` a tool call, a
    `functionResponse` a message of the role `tool` with the response as JSON, text of a thought
    the reasoning of its message.
    """
    whole, place = request.generateContentRequest, ""
    if request.tools:
        refuse("/tools", "send generateContentRequest with tools, in place of contents")
    if (whole is None) == (request.contents is None):
        refuse("/contents", "give either contents or generateContentRequest")
    if whole is not None:
        place = "/generateContentRequest"
        for name in whole:
            if name not in _GEMINI_FIELDS and whole[name] not in (None, [], {}, ""):
                refuse(f"{place}/{name}", "is not supported here")
    fields = whole or {"contents": request.contents}
    conversation = RequestedConversation(
        chat_template=request.chat_template, kwargs=dict(request.chat_template_kwargs or {})
    )
    system = fields.get("systemInstruction")
    if system is not None:
        at = f"{place}/systemInstruction"
        parts = list_of(object_of(system, at).get("parts"), f"{at}/parts")
        at = f"{at}/parts"
        texts = [_gemini_text(part, f"{at}/{index}") for index, part in enumerate(parts)]
        conversation.add(at, {"role": "system", "content": "\n".join(texts)})
    contents = list_of(fields.get("contents"), f"{place}/contents")
    for index, content in enumerate(contents):
        at = f"{place}/contents/{index}"
        _add_gemini(conversation, object_of(content, at), at)
    if not contents:
        refuse(f"{place}/contents", "is empty: give at least one content")
    tools: list[Message] = []
    for index, tool in enumerate(list_of(fields.get("tools") or [], f"{place}/tools")):
        at = f"{place}/tools/{index}"
        for name, value in object_of(tool, at).items():
            if name != "functionDeclarations":
                refuse(f"{at}/{name}", "is not supported here: send functionDeclarations")
            for number, declared in enumerate(list_of(value, f"{at}/{name}")):
                tools.append(_gemini_tool(declared, f"{at}/{name}/{number}"))
    conversation.tools = tools or None
    return conversation


def _add_gemini(conversation: RequestedConversation, content: Message, pointer: str) -> None:
    role = content.get("role") or "user"
    if role not in ("user", "model", "function"):
        refuse(f"{pointer}/role", "must be user or model")
    message: Message = {"role": "assistant" if role == "model" else "user"}
    texts: list[str] = []
    thoughts: list[str] = []
    for index, given in enumerate(list_of(content.get("parts"), f"{pointer}/parts")):
        place = f"{pointer}/parts/{index}"
        part = object_of(given, place)
        if "functionCall" in part and role == "model":
            at = f"{place}/functionCall"
            call = object_of(part["functionCall"], at)
            name = string_of(call.get("name"), f"{at}/name")
            arguments = {} if call.get("args") is None else object_of(call["args"], f"{at}/args")
            message.setdefault("tool_calls", []).append(_call(call.get("id"), name, arguments))
        elif "functionResponse" in part and role != "model":
            result = object_of(part["functionResponse"], f"{place}/functionResponse")
            response = object_of(result.get("response"), f"{place}/functionResponse/response")
            text = json.dumps(response, ensure_ascii=False)
            fields = {"tool_call_id": result.get("id"), "name": result.get("name")}
            conversation.add(place, {"role": "tool", "content": text, **fields})
        else:
            (thoughts if part.get("thought") else texts).append(_gemini_text(part, place))
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if texts or message.keys() != {"role"}:
        message["content"] = [{"type": "text", "text": text} for text in texts]
    if message.keys() != {"role"}:
        conversation.add(pointer, message)


def _gemini_text(part: object, place: str) -> str:
    """The text of a part that has nothing else that a template could write."""
    fields = object_of(part, place)
    for name in fields:
        if name not in ("text", "thought", "thoughtSignature"):
            refuse_part(place, "text, functionCall of the model and functionResponse of the user")
    return string_of(fields.get("text"), f"{place}/text")


def _gemini_tool(declared: object, place: str) -> Message:
    fields = object_of(declared, place)
    function = {
        "name": string_of(fields.get("name"), f"{place}/name"),
        "description": fields.get("description"),
        "parameters": fields.get("parametersJsonSchema", fields.get("parameters")),
    }
    return {"type": "function", "function": function}


def _tools(
    tools: list[Message] | None, convert: Callable[[Message, str], Message]
) -> list[Message] | None:
    if tools is None:
        return None
    return [convert(tool, f"/tools/{index}") for index, tool in enumerate(tools)]


def _call(id_: object, name: str, arguments: object) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": id_, "type": "function", "function": function}


def _add_anthropic(conversation: RequestedConversation, message: Message, pointer: str) -> None:
    role, content = message["role"], message.get("content")
    if not isinstance(content, list):
        text = string_of(content, f"{pointer}/content")
        conversation.add(pointer, {"role": role, "content": text})
        return
    thoughts: list[str] = []
    calls: list[Message] = []
    texts: list[Message] = []
    for index, given in enumerate(content):
        place = f"{pointer}/content/{index}"
        block = object_of(given, place)
        kind = block.get("type")
        if kind == "text":
            if text := string_of(block.get("text"), f"{place}/text"):
                texts.append({"type": "text", "text": text})
        elif kind == "thinking":
            thoughts.append(string_of(block.get("thinking"), f"{place}/thinking"))
        elif kind == "redacted_thinking":
            pass  # encrypted, so that no template can write it
        elif kind == "tool_use" and role == "assistant":
            name = string_of(block.get("name"), f"{place}/name")
            arguments = object_of(block.get("input", {}), f"{place}/input")
            calls.append(_call(block.get("id"), name, arguments))
        elif kind == "tool_result" and role == "user":
            text = "\n".join(texts_of(block.get("content"), f"{place}/content"))
            fields = {"tool_call_id": block.get("tool_use_id"), "content": text}
            conversation.add(place, {"role": "tool", **fields})
        else:
            known = "text, thinking, and tool_use of the assistant or tool_result of the user"
            refuse_part(place, known)
    parts = {"reasoning": "".join(thoughts), "tool_calls": calls, "content": texts}
    result = {"role": role, **{name: part for name, part in parts.items() if part}}
    if result != {"role": "user"}:  # which had only tool results
        conversation.add(pointer, result)


def _anthropic_tool(tool: Message, pointer: str) -> Message:
    if tool.get("type", "custom") not in ("custom", None):
        refuse_part(f"{pointer}/type", "tools with input_schema")
    schema = object_of(tool.get("input_schema"), f"{pointer}/input_schema")
    function = {
        "name": string_of(tool.get("name"), f"{pointer}/name"),
        "description": tool.get("description"),
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
        "strict": tool.get("strict"),
        "defer_loading": tool.get("defer_loading"),
    }
    return {"type": "function", "function": function}


def _add_item(conversation: RequestedConversation, item: Message, pointer: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = string_of(item.get("role"), f"{pointer}/role")
        content = item.get("content")
        if role == "assistant":
            conversation.assistant(pointer, "content")["content"] = content or ""
        else:
            conversation.add(pointer, {"role": role, "content": content})
    elif kind == "function_call":
        name = string_of(item.get("name"), f"{pointer}/name")
        call = _call(item.get("call_id"), name, item.get("arguments"))
        conversation.assistant(pointer, "").setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        conversation.add(
            pointer,
            {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")},
        )
    elif kind == "reasoning":
        if item.get("encrypted_content"):
            refuse(f"{pointer}/encrypted_content", "encrypted reasoning cannot be counted")
        at = f"{pointer}/{'content' if item.get('content') else 'summary'}"
        parts = list_of(item.get("content") or item.get("summary") or [], at)
        texts = [
            string_of(object_of(part, f"{at}/{index}").get("text"), f"{at}/{index}/text")
            for index, part in enumerate(parts)
        ]
        conversation.assistant(pointer, "reasoning")["reasoning"] = "\n".join(texts)
    else:
        refuse_part(pointer, "message, function_call, function_call_output and reasoning")


def _responses_tool(tool: Message, pointer: str) -> Message:
    if tool.get("type", "function") != "function":
        refuse_part(f"{pointer}/type", "functions")
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": function}
