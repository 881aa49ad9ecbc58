"""The fields of a conversation that a user controls, and what is typed into them.

A field is a conversation with `%` where the text goes; `%1` and `%2` are the halves of a text that
is split over two fields.
"""

from functools import cache

ASK = {"role": "user", "content": "q"}
CALL = {"id": "call12345", "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def call(**changes):
    function = CALL["function"] | {k: v for k, v in changes.items() if k in ("name", "arguments")}
    others = {k: v for k, v in changes.items() if k not in function}
    calling = {**CALLING, "tool_calls": [{**CALL, **others, "function": function}]}
    return {"messages": [ASK, calling]}


def say(role="user", **fields):
    return {"messages": [ASK, {"role": role, "content": "a", **fields}]}


def result(**fields):
    message = {"role": "tool", "tool_call_id": "call12345", "content": "a", **fields}
    return {"messages": [ASK, CALLING, message]}


def tool(name="f", description="d", **more):
    parameters = {"type": "object", "properties": {"p": {"type": "string", "enum": ["e"]}}, **more}
    function = {"name": name, "description": description, "parameters": parameters}
    system = {"role": "system", "content": "s"}
    return {"messages": [system, ASK], "tools": [{"type": "function", "function": function}]}


def document(**fields):
    return {"messages": [ASK], "documents": [{"title": "t", "text": "a", **fields}]}


def variables(**given):
    return {"messages": [{"role": "system", "content": "s"}, ASK], "template_kwargs": given}


def part(text, kind="text"):
    return {"type": kind, "text": text}


FIELDS = {
    "messages": {
        "content of a user": say(content="%"),
        "content of the only message": {"messages": [{"role": "user", "content": "%"}]},
        "content of the system": {"messages": [{"role": "system", "content": "%"}, ASK]},
        "content of a developer": {"messages": [{"role": "developer", "content": "%"}, ASK]},
        "content of another role": say("critic", content="%"),
        "part": say(content=[part("a"), part("%")]),
        "parts, split": say(content=[part("%1"), part("%2")]),
        "key of a content": say(content={"%": "a"}),
        "value in a content": say(content={"a": ["%"]}),
        "type of a part": say(content=[part("a", kind="%")]),
        "address of an image": say(content=[part("a"), {"type": "image", "image": "%"}]),
        "URL of an image": say(content=[{"type": "image_url", "image_url": {"url": "%"}}]),
        "role": say("%"),
        "name": say(name="%"),
        "name and content, split": say(name="%1", content="%2"),
        "two messages, split": {
            "messages": [say(content="%1")["messages"][1], {**ASK, "content": "%2"}]
        },
        "suffix to fill in": say(suffix="%"),
        "reasoning of a user": say(reasoning_content="%"),
        "call of a user": say(
            tool_calls=[{**CALL, "function": {"name": "%", "arguments": {"%": "%"}}}]
        ),
        "unknown key": say(**{"%": "%"}),
        "result": result(content="%"),
        "part of a result": result(content=[part("%")]),
        "object as a result": result(content={"%": ["%"]}),
        "id of a call in its result": result(tool_call_id="%"),
        "id and result, split": result(tool_call_id="%1", content="%2"),
        "name of a tool in its result": result(name="%"),
    },
    "tools": {
        "name": tool(name="%"),
        "description": tool(description="%"),
        "name and description, split": tool(name="%1", description="%2"),
        "name of a parameter": tool(properties={"%": {"type": "string", "enum": ["e"]}}),
        "description of a parameter": tool(
            properties={"p": {"type": "string", "description": "%", "enum": []}}
        ),
        "values of a parameter": tool(properties={"p": {"type": "string", "enum": ["%"]}}),
        "values of a parameter, split": tool(properties={"p": {"type": "%1", "enum": ["%2"]}}),
        "key of a schema": tool(**{"%": ["%"]}),
    },
    "documents, variables": {
        "title of a document": document(title="%"),
        "text of a document": document(text="%"),
        "title and text, split": document(title="%1", text="%2"),
        "key of a document": document(**{"%": "%"}),
        "variable": variables(hint="%", model_identity="%", suffix="%"),
        "variables, split": variables(model_identity="%1", hint="%2"),
        "key of a variable": variables(controls={"%": "%"}),
        "bos_token and eos_token as variables": variables(bos_token="%", eos_token="%"),
    },
    "assistant": {
        "content": say("assistant", content="%"),
        "part": say("assistant", content=[part("%")]),
        "reasoning": say("assistant", reasoning_content="%"),
        "reasoning and content, split": say("assistant", reasoning_content="%1", content="%2"),
        "name of a call": call(name="%"),
        "arguments of a call": call(arguments={"%": "%"}),
        "arguments of a call, nested": call(arguments={"a": [{"b": "%"}]}),
        "arguments of a call as JSON": call(arguments='{"a": "%"}'),
        "id of a call": call(id="%"),
        "type of a call": call(type="%"),
        "id and name of a call, split": call(id="%1", name="%2"),
    },
}
"""Group -> field -> conversation. The last group is text of the assistant, where control tokens
that are not special are tokens."""

NAMES = ("role", "name", "name of a call", "id of a call", "type of a call")
"""Fields that a template may put between literals (`'<|' + message.role + '|>'`): what is inside of
a token is typed too."""


def fill(value, text, cut):
    """The value with the text in its place."""
    if isinstance(value, str):
        return value.replace("%1", text[:cut]).replace("%2", text[cut:]).replace("%", text)
    if isinstance(value, list):
        return [fill(item, text, cut) for item in value]
    if isinstance(value, dict):
        return {fill(key, text, cut): fill(item, text, cut) for key, item in value.items()}
    return value


def is_split(field):
    return field.endswith("split")


def forms_of(token):
    """What a filter or a normalizer may change into a token, between its ends, to which a literal
    of the template may add the rest."""
    half = len(token) // 2
    forms = [
        token[1:],
        token + token,
        token[:half] + token + token[half:],
        f" {token} \n{token}\t",
        token.swapcase(),
        token.replace("<", "&lt;").replace(">", "&gt;"),
        token.replace("<", "\\u003c"),
        token.replace("<", "\uff1c").replace("|", "\uff5c"),
        token.replace("|", "_"),
        token[:-1],
    ]
    return " z ".join(forms)


@cache
def harmless(text):
    """A text with the same white space and the same number of bytes, in which no token is."""
    return "".join(_like(character) for character in text)


def _like(character):
    if character.isspace():
        return character
    return ("w", "é", "語", "😀")[len(character.encode()) - 1]
