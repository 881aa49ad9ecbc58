"""The shapes of messages: what a template reads is found by rendering, and nothing is lost."""

import json

import pytest

from tokenizer_core import Tokenizer
from tokenizer_core.chat.messages import _find_contents, left_out
from tokenizer_core.chat.renderer import RenderLimits, render_chat
from tokenizer_core.errors import ChatInputError, ChatLimitError, ChatShapeError, ChatTemplateError


def turns(body):
    return "{% for m in messages %}" + body + "{% endfor %}"


CALLS = "{% for c in m.tool_calls or [] %}%s{% endfor %}"
# Each does with contents and arguments what the templates of the models in its comment do.
TEMPLATES = {
    # Qwen 3: no list is written; arguments are written as they are, or by `tojson`
    "text": turns(
        "<{{ m.role }}>{{ m.content if m.content is string else '' }}"
        + CALLS.replace(
            "%s",
            "{% set a = c.function.arguments %}{{ c.function.name }}"
            "{% if a is string %}{{ a }}{% else %}{{ a | tojson }}{% endif %}",
        )
    ),
    # Llama 3.1: a list is written as Python's repr, that of a tool as JSON; a string twice encoded.
    # Mistral: a system message is the first, and a result follows a call
    "trim": turns(
        "{% if (m.role == 'system' and not loop.first) or (m.role == 'tool'"
        " and not loop.previtem.tool_calls) %}{{ raise_exception('order') }}{% endif %}"
        "<{{ m.role }}>{% if m.tool_calls %}"
        + CALLS.replace("%s", "{{ c.function.name }}{{ c.function.arguments | tojson }}")
        + "{% elif m.role == 'tool' %}{{ m.content | tojson }}"
        "{% else %}{{ m.content | trim }}{% endif %}"
    ),
    # DeepSeek V3: texts are added, arguments too; a message with calls needs a content
    "added": turns(
        "{{ '<' + m.role + '>' + m.content }}"
        + CALLS.replace("%s", "{{ c.function.name + c.function.arguments }}")
    ),
    # Mistral Small 3.1: users write lists, the others one part; roles alternate
    "blocks": turns(
        "{% if loop.first and m.role != 'user' and m.role != 'system' %}"
        "{{ raise_exception('a user begins') }}{% endif %}<{{ m.role }}>"
        "{% if m.tool_calls %}"
        + CALLS.replace("%s", "{{ c.function.name }}{{ c.function.arguments | tojson }}")
        + "{% elif m.content is string %}{{ m.content }}"
        "{% elif m.role == 'user' %}{% for b in m.content %}"
        "{% if b.type == 'text' %}{{ b.text }}{% elif b.type == 'image' %}[IMG]{% endif %}"
        "{% endfor %}{% else %}{{ m.content[0].text }}{% endif %}"
    ),
    # SmolVLM: lists only, of a variable; GLM 4.5 and Qwen 3.5: each argument by itself
    "lists": turns(
        "<{{ m.role }}>{% set c = m.content %}{% for p in c %}{{ p.text }}{% endfor %}"
        + CALLS.replace(
            "%s",
            "{{ c.function.name }}{% for k, v in c.function.arguments | items %}"
            "{{ '{\"' + k + '\": \"' + v + '\"}' }}{% endfor %}",
        )
    ),
    # Phi-3: no tools
    "no_calls": turns("<{{ m.role }}>{{ m.content }}"),
    # Command A: calls only with tools
    "with_tools": turns(
        "<{{ m.role }}>{% if m.tool_calls and tools %}"
        + CALLS.replace("%s", "{{ c.function.name }}{{ c.function.arguments | tojson }}")
        + "{% else %}{{ m.content }}{% endif %}"
    ),
    # writes no system messages
    "no_system": turns("{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}"),
}
TOKENIZER = Tokenizer({i: bytes([i]) for i in range(256)}, []).with_chat_templates(TEMPLATES)


def part(text, **more):
    return {"type": "text", "text": text, **more}


def conversation(*, in_parts, as_text):
    def content(text):
        return [part(text, image=None)] if in_parts else text

    arguments = {"city": "Oslo"}
    function = {"name": "w", "arguments": json.dumps(arguments) if as_text else arguments}
    call = {"id": "call12345", "type": "function", "function": function}
    return [
        {"role": "system", "content": content("Be kind.")},
        {"role": "user", "content": content("Sun?")},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call12345", "content": content("Yes")},
        {"role": "assistant", "content": content("Sun.")},
    ]


def render(messages, template, form="decoded", **how):
    return TOKENIZER.render_chat(messages, chat_template=template, messages_form=form, **how).text


@pytest.mark.parametrize("template", ["text", "trim", "added", "blocks", "lists"])
def test_every_shape_of_a_conversation_is_written_alike(template):
    call, result = 'w{"city": "Oslo"}', '"Yes"' if template == "trim" else "Yes"
    expected = f"<system>Be kind.<user>Sun?<assistant>{call}<tool>{result}<assistant>Sun."
    for in_parts in (False, True):
        for as_text in (False, True):
            messages = conversation(in_parts=in_parts, as_text=as_text)
            assert render(messages, template) == expected, (in_parts, as_text)


def test_vllm_refuses_a_part_without_its_text_and_no_content():
    for role, content, place in (
        ("user", [{"type": "text"}], "content[0].text"),
        ("user", [{"type": "text", "text": None}], "content[0].text"),
        ("system", None, "content"),
        ("tool", None, "content"),
    ):
        messages = [{"role": "user", "content": "a"}, {"role": role, "content": content}]
        with pytest.raises(ChatShapeError) as refused:
            render(messages, "text", "vllm")
        assert str(refused.value).startswith(f"messages[1].{place}:")
    render([{"role": "assistant", "content": None}], "text", "vllm")


def test_several_parts_stay_a_list_where_the_template_reads_one():
    for role, template, expected in (
        ("user", "blocks", "a[IMG]b"),
        ("user", "lists", "ab"),
        ("user", "text", "a\nb"),
        ("system", "blocks", "a\nb"),  # the template writes the first part only
    ):
        parts = [part("a"), "b" if role == "system" else {"type": "output_text", "text": "b"}]
        if "[IMG]" in expected:
            parts.insert(1, {"type": "image"})
        after = [{"role": "user", "content": ""}] if role == "system" else []
        text = render([{"role": role, "content": parts}, *after], template)
        assert text.split(">")[1].removesuffix("<user") == expected


def test_roles_that_a_template_does_not_name_are_asked_for_once(monkeypatch):
    asked = []

    def count(source, asking, **how):
        asked.append(asking)
        return render_chat(source, asking, **how)

    monkeypatch.setattr("tokenizer_core.chat.messages.render_chat", count)
    template = turns("{{ m.role }}:{{ m.content if m.content is string else '' }} {# once #}")
    messages = [{"role": f"r{number}", "content": [part("a")]} for number in range(20)]
    text = render(messages, template)
    assert text == " ".join(f"r{number}:a" for number in range(20)) + " "
    assert 0 < len(asked) < 40


def test_a_template_that_reads_shapes_by_a_variable():
    """The variables of requests may be large, and are not kept."""
    template = turns("{% if show %}{{ m.content if m.content is string else '' }}{% endif %}")
    before = _find_contents.cache_info().currsize
    for show in ("a", "b", "c"):
        messages = [{"role": "user", "content": [part("Hi")]}]
        assert render(messages, template, template_kwargs={"show": show}) == "Hi"
    assert _find_contents.cache_info().currsize <= before + 1


def test_what_no_template_could_write_stays_as_it_is():
    arguments = '{"n":1.50,  "s":"\\u00e9"}'
    calls = [{"function": {"name": "w", "arguments": arguments}}]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": calls}]
    # Written as they are by the templates that write texts, in Python's form of JSON by others.
    for template in ("text", "added"):
        assert render(messages, template).endswith(f"w{arguments}")
    assert render(messages, "trim").endswith('w{"n": 1.5, "s": "é"}')
    calls[0]["function"]["arguments"] = {"s": "é"}
    assert render(messages, "added").endswith('w{"s": "é"}')
    content = {"sum": "4"}
    tool = [*messages, {"role": "tool", "content": content}]
    assert render(tool, "trim").endswith('<tool>{"sum": "4"}')
    with pytest.raises(ChatShapeError, match=r"^messages\[2\]\.content: must be a text"):
        render(tool, "text")


def test_a_template_that_cannot_be_asked_within_its_limits_is_refused():
    """A guess would write the parts as Python's repr, or not, by the load of the machine."""
    template = turns(
        "{% if m.content is string %}{{ m.content }}{% else %}{{ 'x' * 99 }}{% endif %}"
    )
    message = {"role": "user", "content": [part("Hi")]}
    for _ in range(2):
        with pytest.raises(ChatLimitError, match="more than 50 characters"):
            render([message], template, limits=RenderLimits(chars=50))
    assert render([message], template) == "Hi"


def test_a_template_that_writes_calls_with_tools_only():
    messages = [{"role": "user", "content": "Hi"}, calling('{"a":1}')]
    tools = [{"type": "function", "function": {"name": "w"}}]
    assert render(messages, "with_tools", tools=tools) == '<user>Hi<assistant>w{"a": 1}'
    with pytest.raises(ChatShapeError, match="writes no tool calls where there are no tools"):
        render(messages, "with_tools")


def test_tools_are_objects():
    template = "{% for t in tools %}{{ t | tojson }}{% endfor %}"
    tool = {"type": "function", "function": {"name": "w", "parameters": {"type": "object"}}}
    packed = {**tool, "function": {"name": "w", "parameters": '{"type": "object"}'}}
    hello = [{"role": "user", "content": "Hi"}]
    for tools in ([tool], [packed], [json.dumps(tool)], json.dumps([packed])):
        assert render(hello, template, tools=tools) == json.dumps(tool)
    for bad in (["{"], [{"function": {"parameters": "[]"}}]):
        with pytest.raises(ChatShapeError, match=r"^tools\[0\].*: is no JSON object"):
            render(hello, template, tools=bad)


def calling(arguments, name="tool_calls"):
    return {"role": "assistant", name: [{"function": {"name": "w", "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("message", "template", "place"),
    [
        (calling("{"), "text", "tool_calls[0].function.arguments: is no JSON object"),
        (calling("[]"), "trim", "tool_calls[0].function.arguments: is no JSON object"),
        (calling(None), "added", "tool_calls[0].function.arguments: is no JSON object"),
        (calling('{"a": 1, "a": 2}'), "text", "tool_calls[0].function.arguments: is no JSON"),
        (calling({}), "no_calls", "tool_calls: the template writes no tool calls"),
        (calling({}, "function_call"), "text", "function_call: is what no chat template reads"),
        (calling({}, "toolCalls"), "text", "toolCalls: is what no chat template reads"),
        ({"role": "assistant", "refusal": "No."}, "text", "content: is missing"),
        ({"role": "user", "content": [{"image": {}}]}, "text", "content[0]: has no text"),
        ({"role": "assistant", "tool_calls": "w()"}, "text", "tool_calls: must be a list"),
        ({"role": "user", "content": 4}, "text", "content: must be a text or a list of parts"),
        ({"role": "user", "content": [{"type": "image"}]}, "text", "content[0]: this type has no"),
        ({"role": "user", "content": [part("a"), 1]}, "text", "content[1]: must be an object"),
        ({"role": "user", "content": [part(1)]}, "text", "content[0].text: must be a string"),
    ],
)
def test_what_cannot_be_carried_is_refused_with_its_place(message, template, place):
    with pytest.raises(ChatShapeError) as refused:
        render([{"role": "user", "content": "Hi"}, message], template)
    assert str(refused.value).startswith(f"messages[1].{place}")
    assert refused.value.message_index == 1


def test_what_the_template_leaves_out_is_named():
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    nothing = [{"role": "assistant", "content": content} for content in (" ", [part(" ")])]
    lists = [{"role": "user", "content": [part("Hi")]}, *nothing]
    called = [messages[1], {**calling({}), "content": "Let me see."}]
    reasoned = [messages[1], {**called[1], "reasoning_content": "Hm"}]
    for template, given, form, expected in (
        ("no_system", messages, "decoded", [(0, "content")]),
        ("text", messages, "decoded", []),
        ("text", lists, "decoded", []),
        ("text", lists, "raw", [(0, "content")]),
        ("no_calls", lists, "raw", [(0, "content")]),  # as Python's repr
        ("text", reasoned, "decoded", [(1, "reasoning")]),
        ("trim", reasoned, "decoded", [(1, "content"), (1, "reasoning")]),
        ("no_calls", called, "raw", [(1, "tool_calls")]),
        (turns("{{ m | tojson }}"), called, "raw", []),
        (turns("{{ [m.content, m.tool_calls] | tojson }}"), called[1:], "raw", []),
        (turns("{{ {'a': m.content} | tojson }}"), called[1:], "raw", [(0, "tool_calls")]),
    ):
        rendered = TOKENIZER.render_chat(given, chat_template=template, messages_form=form)
        assert left_out(rendered) == expected, (template, form)


def test_the_form_of_vllm():
    messages = [
        {"role": "user", "content": [part("a"), part("b")]},
        {"role": "developer", "content": "Be kind."},
        calling("{"),
    ]
    encoding = TOKENIZER.encode_chat(messages, chat_template="trim", messages_form="vllm")
    assert encoding.text == "<system>Be kind.<user>a\nb<assistant>w{}"
    assert encoding.roles == ["system", "user", "assistant"]
    # vLLM gives an object, with which this template fails.
    for arguments in ('{"a":1}', {"a": 1}):
        text = render([messages[0], calling(arguments)], "added", "vllm")
        assert text.replace(" ", "") == '<user>a\nb<assistant>w{"a":1}'
    function = {"strict": None, "name": "w", "other": 1, "parameters": {}}
    tool = {"function": function, "defer_loading": True, "cache_control": {}}
    deferred = {"name": "w", "description": None, "parameters": {}, "defer_loading": True}
    written = render(messages[:1], "{{ tools[0] | tojson }}", "vllm", tools=[tool])
    assert written == json.dumps({"type": "function", "function": deferred, "defer_loading": True})
    refused = [*messages[:2], messages[1], {"role": "user", "content": "x" * 3}]
    only = turns(
        "{% if m.role == 'user' and m.content == 'xxx' %}{{ raise_exception('no') }}{% endif %}"
    )
    with pytest.raises(ChatTemplateError) as error:
        render(refused, only, "vllm")
    assert error.value.message_index == 3
    assert str(error.value).endswith(", at messages[3]")
    with pytest.raises(ChatInputError, match="there is no form of messages 'other'"):
        render(messages, "text", "other")
