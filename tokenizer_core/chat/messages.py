"""What happens to messages before a chat template reads them: the one home of the three forms.

- `raw` (the default in Python and of `/chat/encode`): nothing, as `apply_chat_template` of
  transformers. A template gets what it may not read: a list of parts where it writes texts (it
  writes Python's repr, or nothing), arguments as a JSON string where it writes objects (they are
  encoded twice).
- `decoded` (corpora and `tokenizer chat`): each content and each tool call's arguments in the shape
  that the template reads, with nothing added or lost. What the template reads is not guessed: it
  renders small conversations, once for each template and role. What cannot be carried is refused
  with its place.
- `vllm` (the routes of other servers): what vLLM does to a request, which is not lossless:
  developer messages become system messages, missing fields become null, malformed arguments `{}`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from tokenizer_core.chat.renderer import check_request, render_chat
from tokenizer_core.chat.traced_text import REASONING_FIELDS, ROLES
from tokenizer_core.errors import ChatError, ChatInputError, ChatShapeError, ChatTemplateError
from tokenizer_core.strict_json import StrictJsonError, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_core.chat.renderer import RenderedChat, RenderLimits

MessagesForm = Literal["raw", "decoded", "vllm"]
Message = dict[str, Any]

_TEXT_FIELDS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Type of a content part that is text -> the field with the text."""
_TOOL_FIELDS: Final = ("name", "description", "parameters")

# The texts of the conversations that show what a template reads. A template that writes a list by
# `tojson` or as Python's repr has the key in front of the text.
_FIRST, _SECOND, _OTHER = "pq1x", "pq2x", "pq3x"
_WITH_KEY: Final = re.compile(rf"""text\\*['"]\s*:\s*\\*['"]({_FIRST}|{_SECOND})""")
_CALL_ID: Final = "call12345"  # Mistral's templates want at least 9 letters and digits
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _OTHER,
        "description": _OTHER,
        "parameters": {
            "type": "object",
            "properties": {_OTHER: {"type": "string", "description": _OTHER}},
            "required": [_OTHER],
        },
    },
}


@dataclass(frozen=True, slots=True)
class FormedMessages:
    """Messages and tools as the template gets them, and the index in the request of each."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None
    indices: Sequence[int] | None = None
    """None if they are those of the request."""

    @contextlib.contextmanager
    def naming_request(self) -> Iterator[None]:
        """Errors in the block name the message of the request."""
        try:
            yield
        except ChatError as error:
            if self.indices is not None and error.message_index is not None:
                error.message_index = self.indices[error.message_index]
            raise


def form_messages(
    form: MessagesForm,
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None,
    documents: Sequence[Any] | None = None,
    *,
    variables: Mapping[str, Any],
    kwargs: Mapping[str, Any] | None = None,
    may_run_here: bool = False,
    limits: RenderLimits | None = None,
) -> FormedMessages:
    """The messages and tools in this form, for the template with this source. It is asked in this
    process or in another one, see `render_chat`.

    Raises:
        ChatShapeError: a message or tool has another shape than the form can carry.
        ChatInputError: `form` is none of the three, or the messages are no list of objects.
        ChatLimitError: the template needs more than `limits` for a small conversation.
    """
    if form == "raw":
        return FormedMessages(messages, tools)
    if form not in ("decoded", "vllm"):
        raise ChatInputError(
            f"there is no form of messages {form!r:.40}; name raw, decoded or vllm"
        )
    check_request(messages, tools if form == "vllm" else None, None)
    # Some templates write no calls without tools or documents.
    has = bool(tools), bool(documents)
    reader = _Reader(
        template, _as_key(variables), _as_key(kwargs or {}), *has, may_run_here, limits
    )
    if form == "vllm":
        return _as_vllm(messages, tools, reader)
    decoded = [_decode(dict(message), index, reader) for index, message in enumerate(messages)]
    if tools is not None:
        listed = _decode_list(tools, "/tools")
        tools = [_decode_tool(tool, f"/tools/{number}") for number, tool in enumerate(listed)]
    return FormedMessages(decoded, tools)


def left_out(rendered: RenderedChat) -> list[tuple[int, str]]:
    """Index and field (`content`, `tool_calls`, `reasoning`) of all that has text and of which the
    template writes none."""
    written = rendered.written_fields()
    found = []
    for index, message in enumerate(rendered.messages):
        given = {
            "content": _has_text(message.get("content")),
            "tool_calls": bool(message.get("tool_calls")),
            "reasoning": any(_has_text(message.get(name)) for name in REASONING_FIELDS),
        }
        found += [(index, name) for name in given if given[name] and (index, name) not in written]
    return found


def _has_text(content: object) -> bool:
    if isinstance(content, Mapping):
        return any(_has_text(value) for name, value in content.items() if name != "type")
    if isinstance(content, list | tuple):
        return any(map(_has_text, content))
    return bool(content.strip()) if isinstance(content, str) else content is not None


# --- What a template reads ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reader:
    """A template with the variables of its tokenizer and of the request, as JSON."""

    source: str
    variables: str
    kwargs: str
    has_tools: bool
    has_documents: bool
    may_run_here: bool
    limits: RenderLimits | None
    found: dict[tuple[Any, ...], Any] = field(default_factory=dict, compare=False, repr=False)
    """What this request has asked with its own variables."""

    def ask(self, find: Any, *arguments: str) -> Any:
        """The shapes that a cached function finds without the variables of the request, or else
        with them. The latter are kept for this request only: few templates read shapes by its
        variables, which may be large."""
        shapes = find(replace(self, kwargs="{}"), *arguments)
        if shapes != type(shapes)():
            return shapes
        key = (find, *arguments)
        if key not in self.found:
            self.found[key] = find.__wrapped__(self, *arguments)
        return self.found[key]

    def write(self, messages: Sequence[Message]) -> str:
        """What the template writes; empty if it refuses these messages."""
        for tools in ([_TOOL], None) if self.has_tools else (None,):
            with contextlib.suppress(ChatTemplateError, ChatInputError):
                return render_chat(
                    self.source,
                    messages,
                    tools=tools,
                    documents=[{"title": _OTHER, "text": _OTHER}] if self.has_documents else None,
                    variables=json.loads(self.variables),
                    kwargs=json.loads(self.kwargs),
                    may_run_here=self.may_run_here,
                    limits=self.limits,
                ).text
        return ""


@dataclass(frozen=True, slots=True)
class _Contents:
    """The shapes of a role's content that a template writes as text: a text, a list of any number
    of parts, a list of one part, an object as JSON."""

    text: bool = False
    parts: bool = False
    part: bool = False
    mapping: bool = False


@dataclass(frozen=True, slots=True)
class _Calls:
    """The shapes of a tool call's arguments that a template writes as JSON; `are_equal`: both, with
    the same result. `needs_content`: it fails where the message has no content."""

    mapping: bool = False
    text: bool = False
    are_equal: bool = False
    needs_content: bool = False


@lru_cache(maxsize=256)
def _find_contents(reader: _Reader, role: str) -> _Contents:
    """The shapes that the first conversation shows in which the template writes any."""
    for in_parts in (False, True):
        for before, after in _around(reader, role, in_parts=in_parts):

            def write(content: Any, before: Any = before, after: Any = after) -> str:
                message = {"role": role, "content": content}
                if role not in ("system", "developer", "user", "assistant"):
                    message |= {"tool_call_id": _CALL_ID, "name": _OTHER}
                return reader.write([*before, message, *after])

            two = write([_part(_FIRST), _part(_SECOND)])
            found = _Contents(
                text=_FIRST in write(_FIRST),
                parts=_shows(two, _FIRST) and _shows(two, _SECOND),
                part=_shows(write([_part(_FIRST)]), _FIRST),
                mapping=re.search(rf'"{_FIRST}":\s*"{_SECOND}"', write({_FIRST: _SECOND}))
                is not None,
            )
            if found != _Contents():
                return found
    return _Contents()


def _around(
    reader: _Reader, role: str, *, in_parts: bool
) -> list[tuple[list[Message], list[Message]]]:
    """Messages before and after one of a role; templates have rules about who follows whom."""
    user: list[Message] = [{"role": "user", "content": [_part(_OTHER)] if in_parts else _OTHER}]
    if role == "user":
        return [([], [])]
    if role == "assistant":
        return [(user, [])]
    calls: _Calls = reader.ask(_find_calls)
    arguments: Any = {_OTHER: _OTHER} if calls.mapping or not calls.text else "{}"
    calling: Message = {"role": "assistant", "tool_calls": [_call(arguments)]}
    if calls.needs_content:
        calling["content"] = ""
    if role == "system":
        return [([], user), (user, []), ([*user, calling], [])]
    return [([*user, calling], []), ([], user), (user, [])]


@lru_cache(maxsize=256)
def _find_calls(reader: _Reader) -> _Calls:
    text = json.dumps({_FIRST: _SECOND})
    user = {"role": "user", "content": _OTHER}
    result = {"role": "tool", "content": _OTHER, "tool_call_id": _CALL_ID, "name": _OTHER}
    for content, after in itertools.product(({}, {"content": ""}), ([], [result])):

        def write(arguments: Any, content: Any = content, after: Any = after) -> str:
            calling = {"role": "assistant", **content, "tool_calls": [_call(arguments)]}
            return reader.write([user, calling, *after])

        with_mapping, with_text = write({_FIRST: _SECOND}), write(text)
        # Python's repr has the key between single quotes.
        reads_mapping = all(part in with_mapping for part in (_FIRST, _SECOND))
        reads_mapping = reads_mapping and f"'{_FIRST}'" not in with_mapping
        if reads_mapping or text in with_text:
            are_equal = reads_mapping and with_mapping == with_text
            return _Calls(reads_mapping, text in with_text, are_equal, bool(content))
    return _Calls()


def _part(text: str) -> Message:
    return {"type": "text", "text": text}


def _call(arguments: Any) -> Message:
    function = {"name": _OTHER, "arguments": arguments}
    return {"id": _CALL_ID, "type": "function", "function": function}


def _names(source: str, word: str) -> bool:
    """Whether a template has this text between quotes."""
    return f"'{word}'" in source or f'"{word}"' in source


def _shows(written: str, text: str) -> bool:
    """Whether a text was written, and not the list that holds it."""
    return text in written and all(match[1] != text for match in _WITH_KEY.finditer(written))


def _as_key(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), default=str)


# --- decoded --------------------------------------------------------------------------------------


def _decode(message: Message, index: int, reader: _Reader) -> Message:
    role, content = message.get("role"), message.get("content")
    for name in ("function_call", "tool_call", "toolCalls"):
        if message.get(name) and name not in reader.source:
            refuse(f"/{name}", "is what no chat template reads; write tool_calls", index)
    if content is None and not any(map(message.get, ("tool_calls", *REASONING_FIELDS))):
        refuse("/content", "is missing; write the text there, or leave the message out", index)
    if content is not None:
        role = role if isinstance(role, str) else ""
        message["content"] = _decode_content(content, role, index, reader)
    if message.get("tool_calls"):
        reads: _Calls = reader.ask(_find_calls)
        if not (reads.mapping or reads.text):
            detail = "the template writes no tool calls" + (
                "" if reader.has_tools else " where there are no tools"
            )
            refuse("/tool_calls", f"{detail}; leave the message out, or name another", index)
        calls = _decode_list(message["tool_calls"], "/tool_calls", index)
        message["tool_calls"] = [
            _decode_call(call, f"/tool_calls/{number}", index, reader)
            for number, call in enumerate(calls)
        ]
        if content is None and reads.needs_content:
            message["content"] = ""
    return message


def _decode_content(content: object, role: str, index: int, reader: _Reader) -> object:
    if role not in ROLES and not _names(reader.source, role):
        role = _OTHER  # a request may have any number of roles that the template does not know
    reads: _Contents = reader.ask(_find_contents, role)
    if isinstance(content, str):
        is_list = not reads.text and (reads.parts or reads.part)
        return [_part(content)] if is_list else content
    if isinstance(content, Mapping) and reads.mapping:
        return content
    if not isinstance(content, list | tuple):
        refuse("/content", "must be a text or a list of parts: the template reads no other", index)
    parts = [
        _decode_part(part, f"/content/{number}", index, reader.source if reads.parts else "")
        for number, part in enumerate(content)
    ]
    if reads.parts:
        return parts
    text = "\n".join(part["text"] for part in parts)
    return [_part(text)] if reads.part and not reads.text else text


def _decode_part(part: object, place: str, index: int, source: str) -> Message:
    """A part of text with the type `text`; another one only if `source` names its type."""
    if isinstance(part, str):
        return _part(part)
    fields = {
        name: value for name, value in object_of(part, place, index).items() if value is not None
    }
    kind = fields.get("type", "text")
    name = _TEXT_FIELDS.get(kind) if isinstance(kind, str) and kind != "thinking" else None
    if name is not None:
        if name not in fields:
            refuse(place, f"has no {name}; write its text there, or leave the part out", index)
        text = string_of(fields.pop(name), f"{place}/{name}", index)
        return {**fields, "type": "text", "text": text}
    if not (isinstance(kind, str) and _names(source, kind)):
        refuse_part(place, "what the chat template reads: text", index)
    return fields


def _decode_call(value: object, place: str, index: int, reader: _Reader) -> Message:
    """A tool call with the arguments that the template reads; what it reads both ways alike stays
    as it is."""
    call = object_of(value, place, index)
    function, within = call, place  # some data sets write the function alone
    if isinstance(call.get("function"), Mapping):
        function, within = call["function"], f"{place}/function"
    if "arguments" not in function:
        return call
    given = function["arguments"]
    as_mapping = _parse_object(given) if isinstance(given, str) else given
    if not isinstance(as_mapping, Mapping):
        refuse(f"{within}/arguments", "is no JSON object; mend it, or leave the call out", index)
    reads: _Calls = reader.ask(_find_calls)
    arguments = given
    if reads.mapping and not reads.are_equal:
        arguments = as_mapping
    elif reads.text and not reads.mapping and not isinstance(given, str):
        arguments = json.dumps(given, ensure_ascii=False)
    changed = {**function, "arguments": arguments}
    return changed if function is call else {**call, "function": changed}


def _decode_tool(value: object, place: str) -> object:
    """A tool, and its parameters, as objects; data sets write them as JSON."""
    tool = _parse_object(value) if isinstance(value, str) else value
    if not isinstance(tool, Mapping):
        refuse(place, "is no JSON object; mend it, or leave it out")
    function = tool.get("function")
    inner, within = (
        (function, f"{place}/function") if isinstance(function, Mapping) else (tool, place)
    )
    if not isinstance(inner.get("parameters"), str):
        return tool
    parameters = _parse_object(inner["parameters"])
    if parameters is None:
        refuse(f"{within}/parameters", "is no JSON object; mend it, or leave it out")
    inner = {**inner, "parameters": parameters}
    return {**tool, "function": inner} if within != place else inner


def _decode_list(value: object, place: str, index: int | None = None) -> Sequence[Any]:
    if isinstance(value, str):
        with contextlib.suppress(StrictJsonError, UnicodeEncodeError):
            value = read_json(value.encode())
    return list_of(value, place, index)


def _parse_object(text: str) -> Message | None:
    try:
        value = read_json(text.encode())
    except (StrictJsonError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


# --- vllm -----------------------------------------------------------------------------------------


def _as_vllm(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, reader: _Reader
) -> FormedMessages:
    """Content becomes a list of parts if vLLM finds a loop over it in the template, else one text.
    Arguments of tool calls become objects; a template that reads only texts gets texts, where vLLM
    fails. A template that does not name the role `developer` gets `system` instead."""
    # Here: a process without chats does not load Jinja.
    from tokenizer_core.chat.content_loops import loops_over_content

    as_parts = loops_over_content(reader.source)
    changed = [
        _vllm_message(message, index, reader, as_parts=as_parts)
        for index, message in enumerate(messages)
    ]
    indices = list(range(len(changed)))
    names_developer = _names(reader.source, "developer")
    if not names_developer and any(message["role"] == "developer" for message in changed):
        changed, indices = _with_one_system_message(changed)
    if tools is not None:
        tools = [_vllm_tool(tool, f"/tools/{index}") for index, tool in enumerate(tools)]
    return FormedMessages(changed, tools, indices)


def _vllm_message(
    message: Mapping[str, Any], index: int, reader: _Reader, *, as_parts: bool
) -> Message:
    role, content = message.get("role"), message.get("content")
    string_of(role, "/role", index)
    if content is None and "content" in message and role not in ("assistant", "function"):
        refuse("/content", "must be a string or a list of parts", index)
    texts = texts_of(content, "/content", index)
    result: Message = {"role": role, "content": "\n".join(texts)}
    if as_parts and role != "tool":
        result["content"] = [_part(text) for text in texts]
    if role == "assistant":
        if calls := message.get("tool_calls"):
            result["tool_calls"] = [
                _vllm_call(call, f"/tool_calls/{number}", index, reader)
                for number, call in enumerate(list_of(calls, "/tool_calls", index))
            ]
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


def _vllm_call(value: object, place: str, index: int, reader: _Reader) -> Message:
    call = object_of(value, place, index)
    if call.get("type", "function") != "function":
        refuse(f"{place}/type", "must be function", index)
    function = object_of(call.get("function"), f"{place}/function", index)
    given = arguments = function.get("arguments")
    if isinstance(given, str):
        try:
            arguments = json.loads(given)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        given = arguments = {}
    reads: _Calls = reader.ask(_find_calls)
    if reads.text and not reads.mapping:
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _vllm_tool(value: object, place: str) -> Message:
    """A tool with the fields and the order in which vLLM gives it to templates."""
    tool = object_of(value, place)
    if tool.get("type", "function") != "function":
        refuse(f"{place}/type", "must be function: other tools have no text here")
    function = object_of(tool.get("function"), f"{place}/function")
    string_of(function.get("name"), f"{place}/function/name")
    known = {name: function.get(name) for name in _TOOL_FIELDS}
    deferred = tool.get("defer_loading")
    own = function.get("defer_loading")
    further = {"strict": function.get("strict"), "defer_loading": deferred if own is None else own}
    known |= {name: given for name, given in further.items() if given is not None}
    whole: Message = {"type": "function", "function": known}
    return whole if deferred is None else {**whole, "defer_loading": deferred}


def _with_one_system_message(messages: list[Message]) -> tuple[list[Message], list[int]]:
    """Developer messages as system messages, with indices; several become one, in front."""
    result = []
    for message in messages:
        if message["role"] == "developer":
            message = {name: value for name, value in message.items() if name != "tools"}
            message["role"] = "system"
        result.append(message)
    systems = [index for index, message in enumerate(result) if message["role"] == "system"]
    if not any(systems):  # none, or the first message alone
        return result, list(range(len(result)))
    texts = ["\n".join(texts_of(result[index]["content"], "/content")) for index in systems]
    merged = {"role": "system", "content": "\n\n".join(filter(None, texts))}
    others = [index for index in range(len(result)) if index not in systems]
    return [merged, *(result[index] for index in others)], [systems[0], *others]


# --- Checks ---------------------------------------------------------------------------------------


def texts_of(content: object, place: str, index: int | None = None) -> list[str]:
    """The texts of a message's content: a string, parts of text, or nothing. Raises ChatShapeError:
    another shape, or a part without text."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list | tuple):
        refuse(place, "must be a string or a list of parts", index)
    texts: list[str] = []
    for number, part in enumerate(content):
        where = f"{place}/{number}"
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            refuse(where, "must be an object with type and text", index)
        name = _TEXT_FIELDS.get(kind) if isinstance(kind := part.get("type"), str) else None
        if name is None:
            refuse_part(where, "text, refusal and thinking", index)
        texts.append(string_of(part.get(name), f"{where}/{name}", index))
    return texts


def string_of(value: object, place: str, index: int | None = None) -> str:
    """The value, if it is a string, else a ChatShapeError."""
    if not isinstance(value, str):
        refuse(place, "must be a string", index)
    return value


def object_of(value: object, place: str, index: int | None = None) -> Message:
    """The value, if it is an object, else a ChatShapeError."""
    if not isinstance(value, Mapping):
        refuse(place, "must be an object", index)
    return dict(value)


def list_of(value: object, place: str, index: int | None = None) -> Sequence[Any]:
    """The value, if it is a list, else a ChatShapeError."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        refuse(place, "must be a list", index)
    return value


def refuse_part(place: str, known: str, index: int | None = None) -> NoReturn:
    """Raise ChatShapeError; a type is the client's word, which is not repeated."""
    refuse(place, f"this type has no text whose tokens could be counted; known are {known}", index)


def refuse(place: str, detail: str, index: int | None = None) -> NoReturn:
    """Raise ChatShapeError."""
    raise ChatShapeError(place, detail, index)
