"""Requests of every route that takes a conversation or a text, with a place for what is typed."""

from tests.security.typed_fields import ASK, FIELDS


def _own(chat):
    named = {"template_kwargs": "chat_template_kwargs"}
    return {named.get(key, key): value for key, value in chat.items()}


def _for_tokenize(chat):
    request = _own(chat)
    if "documents" in request:
        request["chat_template_kwargs"] = {"documents": request.pop("documents")}
    return request


SAME_FIELDS = {
    "/chat/encode": _own,
    "/chat/completions/render": _own,
    "/tokenize": _for_tokenize,
}
"""Path -> the body for a conversation of `FIELDS`."""

_USE = {"type": "tool_use", "id": "call12345", "name": "f", "input": {"a": "b"}}
_CALL = {"type": "function_call", "call_id": "call12345", "name": "f", "arguments": '{"a": "b"}'}


def _anthropic(*messages, **more):
    return {"messages": [ASK, *messages], **more}


def _blocks(role, *blocks):
    return {"role": role, "content": list(blocks)}


def _result(**fields):
    block = {"type": "tool_result", "tool_use_id": "call12345", "content": "a", **fields}
    return _anthropic(_blocks("assistant", _USE), _blocks("user", block))


def _use(**fields):
    return _anthropic(_blocks("assistant", {**_USE, **fields}))


def _schema_tools(**fields):
    return [{"name": "f", "input_schema": {"type": "object"}, **fields}]


ANTHROPIC = {
    "messages": {
        "system": _anthropic(system="%"),
        "parts of the system": _anthropic(system=[{"type": "text", "text": "%"}]),
        "content": _anthropic({"role": "user", "content": "%"}),
        "block": _anthropic(_blocks("user", {"type": "text", "text": "%"})),
        "blocks, split": _anthropic(
            _blocks("user", {"type": "text", "text": "%1"}, {"type": "text", "text": "%2"})
        ),
        "late system": _anthropic({"role": "system", "content": "%"}, ASK),
        "result": _result(content="%"),
        "parts of a result": _result(content=[{"type": "text", "text": "%"}]),
        "id of a use": _result(tool_use_id="%"),
    },
    "tools": {
        "name": _anthropic(tools=_schema_tools(name="%")),
        "description": _anthropic(tools=_schema_tools(description="%")),
        "schema": _anthropic(
            tools=_schema_tools(input_schema={"properties": {"%": {"enum": ["%"]}}})
        ),
    },
    "documents, variables": {
        "variable": _anthropic(chat_template_kwargs={"hint": "%", "bos_token": "%"}),
        "effort": _anthropic(output_config={"effort": "%"}),
    },
    "assistant": {
        "content": _anthropic({"role": "assistant", "content": "%"}, ASK),
        "thinking": _anthropic(
            _blocks("assistant", {"type": "thinking", "thinking": "%"}, _USE), ASK
        ),
        "name of a use": _use(name="%"),
        "input of a use": _use(input={"%": "%"}),
        "id of a use": _use(id="%"),
    },
}


def _responses(*items, **more):
    return {"input": [ASK, *items], **more}


RESPONSES = {
    "messages": {
        "input": {"input": "%"},
        "instructions": _responses(instructions="%"),
        "content": _responses({"role": "user", "content": "%"}),
        "role": _responses({"role": "%", "content": "a"}),
        "part": _responses(_blocks("user", {"type": "input_text", "text": "%"})),
        "output of a call": _responses(
            _CALL, {"type": "function_call_output", "call_id": "call12345", "output": "%"}
        ),
        "id of an output": _responses(
            _CALL, {"type": "function_call_output", "call_id": "%", "output": "a"}
        ),
    },
    "tools": {
        "name": _responses(tools=[{"type": "function", "name": "%"}]),
        "description": _responses(tools=[{"type": "function", "name": "f", "description": "%"}]),
        "parameters": _responses(
            tools=[{"type": "function", "name": "f", "parameters": {"properties": {"%": ["%"]}}}]
        ),
    },
    "documents, variables": {
        "variable": _responses(chat_template_kwargs={"hint": "%", "bos_token": "%"}),
        "effort": _responses(reasoning={"effort": "%"}),
    },
    "assistant": {
        "content": _responses({"role": "assistant", "content": "%"}, ASK),
        "reasoning": _responses(
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "%"}]}, _CALL
        ),
        "name of a call": _responses({**_CALL, "name": "%"}),
        "arguments of a call": _responses({**_CALL, "arguments": '{"%": "%"}'}),
        "id of a call": _responses({**_CALL, "call_id": "%"}),
    },
}

_TEXT = {"text": "%", "allowed_special": "none", "added_tokens": "none"}
_SEGMENTS = {"segments": [{"text": "%", "special": False}]}
_SPLIT = {"segments": [{"text": "%1", "special": False}, {"text": "%2", "special": False}]}
_SEGMENT_FIELDS = {
    "segment": _SEGMENTS,
    "segments, split": _SPLIT,
    "text": _TEXT,
}

ROUTES = {
    "/tokenize": {"special": {"content of llama.cpp": {"content": "%", "parse_special": False}}},
    "/messages/count_tokens": ANTHROPIC,
    "/responses/input_tokens": RESPONSES,
    "/encode": {"text": _SEGMENT_FIELDS},
    "/count": {"text": _SEGMENT_FIELDS},
    "/truncate": {"text": {"text": {**_TEXT, "max_tokens": 1000000}}},
    "/chunk": {"text": {"text": {**_TEXT, "max_tokens": 1000000}}},
}
"""Path -> group -> field -> body. Group `special`: only special tokens are typed."""

GEMINI = {
    "messages": {
        "part": {"contents": [{"role": "user", "parts": [{"text": "%"}]}]},
        "parts, split": {"contents": [{"role": "user", "parts": [{"text": "%1"}, {"text": "%2"}]}]},
    },
}

LIKE_ROUTES = {
    "/messages/render": {
        group: {name: {**body, "max_tokens": 9} for name, body in fields.items()}
        for group, fields in ANTHROPIC.items()
    },
    "/responses/render": RESPONSES,
    "/chat/completions/input_tokens": {
        group: {name: _own(chat) for name, chat in fields.items()}
        for group, fields in FIELDS.items()
    },
    "/models/{model:path}:countTokens": GEMINI,
}
"""Routes with the conversations of those above: typed into with fewer families."""

OTHER_ROUTES = {
    path: why
    for why, paths in {
        "texts, which are trusted, and ids": "/completions/render",
        "no ids in the response": "/apply-template /verify",
        "a stream: a test of its own": "/encode_stream",
        "a job: test_files_of_conversations_give_no_control_token": "/corpora/{corpus_id}/encode",
        "as /chat/encode: test_a_message_of_a_user_gives_no_control_token": "/extend",
        "the ids of /encode by two tokenizers, with the same policy": "/align",
        "ids": (
            "/decode /decode_stream /detokenize /chat/completions/derender "
            "/completions/derender /merges"
        ),
        "names": "/tokenizers/active /models/{model:path}",
        "files": "/tokenizers/{name} /corpora/{corpus_id} /train",
        "no body": "/rollback",
    }.items()
    for path in paths.split()
}
"""Routes that take a body -> why none is typed into here."""
