"""Templates: their text, the origin of each character, loops over content, and what is sent to the
process that renders."""

import json
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2.exceptions import SecurityError, TemplateError, TemplateRuntimeError

from tests.tokenizer_core.chat.own_templates import CHATML, template_request
from tokenizer_core.chat.content_loops import loops_over_content
from tokenizer_core.chat.render_worker import _read_request
from tokenizer_core.chat.renderer import _dump
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.chat.traced_text import FIRST_MESSAGE, LOST, REASONED, TRUSTED
from tokenizer_core.errors import ChatInputError

USER, ASSISTANT, REASONING = FIRST_MESSAGE, FIRST_MESSAGE + 1, FIRST_MESSAGE | REASONED
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def request(messages=MESSAGES, **options):
    return template_request({"messages": messages, **options}, {"bos_token": "<s>"})


def parts(source, **options):
    """The text of each run, with its origin."""
    text, runs = ChatTemplate(source).render(request(**options))
    result, at = [], 0
    for length, origin in runs:
        result.append((str(text[at : at + length]), origin))
        at += length
    assert at == len(text)
    return result


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<s>{{ messages[0].content }}", [("<s>", TRUSTED), ("hi", USER)]),
        ("{{ ['<', messages[1].content]|join('>') }}", [("<>", TRUSTED), ("yo", ASSISTANT)]),
        (
            "{{ messages|map(attribute='content')|join('<b>') }}",
            [("hi", USER), ("<b>", TRUSTED), ("yo", ASSISTANT)],
        ),
        (
            "{% macro f() %}<{{ caller() }}>{% endmacro %}"
            "{% call f() %}{{ messages[0].content }}{% endcall %}",
            [("<", TRUSTED), ("hi", USER), (">", TRUSTED)],
        ),
        (
            "{% set ns = namespace(t='<a>') %}{% for m in messages %}"
            "{% set ns.t = ns.t + m.content %}{% endfor %}{{ ns.t }}",
            [("<a>", TRUSTED), ("hi", USER), ("yo", ASSISTANT)],
        ),
        ("{{ 'a{}b'.format(1) }}", [("a", TRUSTED), ("1", LOST), ("b", TRUSTED)]),
        ("{{ '<{}|{k}>{{}}'.format(messages[0].content, k='k') }}",
         [("<", TRUSTED), ("hi", USER), ("|k>{}", TRUSTED)]),
        ("{{ '<{:>4}>'.format(messages[0].content) }}", [("<  hi>", LOST)]),
        ("{{ (messages[0].content + '{}').format('<a>') }}", [("hi<a>", LOST)]),
        ("{{ '<a>%4s' % messages[0].content }}", [("<a>", TRUSTED), ("  hi", LOST)]),
        ("{{ 1 + 1 }}", [("2", TRUSTED)]),
        ("{{ ('a\nb' + messages[0].content)|indent(2) }}", [("a\n  b", TRUSTED), ("hi", USER)]),
        ("{{ messages[0]|tojson }}", [('{"role": "user", "content": "hi"}', USER)]),
        ("{{ messages|map(attribute='content')|list|tojson }}", [('["hi", "yo"]', LOST)]),
        ("{{ messages[0].content|tojson }}", [('"hi"', USER)]),
        ("{% set a = '<a>' %}{{ a|tojson }}", [('"<a>"', LOST)]),
        ("{% set a = '<a>' %}{{ a|safe }}{{ '<b>'|safe }}", [("<a><b>", TRUSTED)]),
        ("{{ '<'|safe + messages[0].content + '>' }}",
         [("<", TRUSTED), ("hi", USER), ("&gt;", TRUSTED)]),
        ("{{ ('<'|safe)|upper }}{{ messages[0].content|e }}", [("<", TRUSTED), ("hi", LOST)]),
        ("{{ messages[0].content + ('>'|safe) + '<' }}", [("hi", USER), (">&lt;", TRUSTED)]),
        ("{{ strftime_now('<a>') }}", [("<a>", LOST)]),
        ("{{ (' ' ~ messages[0].content ~ ' ')|trim }}", [("hi", USER)]),
        ("{{ ('<a> ' ~ messages[0].content).split()|join('-') }}",
         [("<a>-", TRUSTED), ("hi", USER)]),
        ("{{ ('<a>=' ~ messages[0].content).partition('=')|last }}", [("hi", USER)]),
        ("{{ (messages[0].content ~ '\n<a>').splitlines()|last }}", [("<a>", TRUSTED)]),
        ("{{ ('<a>' ~ messages[1].content).replace('o', messages[0].content) }}",
         [("<a>", TRUSTED), ("y", ASSISTANT), ("hi", USER)]),
        ("{{ (messages[0].content ~ messages[1].content)[1:3] }}",
         [("i", USER), ("y", ASSISTANT)]),
        ("{{ (messages[0].content ~ '<a>')|upper }}", [("HI", USER), ("<A>", TRUSTED)]),
        ("{{ ('<a>ß' ~ messages[0].content)|upper }}", [("<A>SSHI", LOST)]),
        ("{{ (messages[0].content ~ '<') * 2 }}",
         [("hi", USER), ("<", TRUSTED), ("hi", USER), ("<", TRUSTED)]),
        ("{{ '<a>'.center(5) }}{{ '<a>'.swapcase() }}", [(" <a> <A>", LOST)]),
    ],
)  # fmt: skip
def test_origins(source, expected):
    assert parts(source) == expected


def test_text_of_the_request_that_is_no_message_is_not_trusted():
    source = "{{ tools[0] }}{{ documents[0].text }}{{ documents[0].n }}{{ extra }}{{ bos_token }}"
    documents, kwargs = [{"text": "<d>", "n": [1]}], {"extra": "<e>", "bos_token": "<k>"}
    result = parts(source, tools=["<t>"], documents=documents, kwargs=kwargs)
    assert result == [("<t><d>[1]<e><k>", LOST)]


def test_only_roles_that_every_api_has_are_trusted():
    source = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}"
    messages = [{"role": "user"}, {"role": "im_end"}]
    assert parts(source, messages=messages) == [
        ("<|user|><|", TRUSTED),
        ("im_end", FIRST_MESSAGE + 1),
        ("|>", TRUSTED),
    ]


@pytest.mark.parametrize("content", ["yo", " y o "])
def test_continue_final_message_ends_after_its_content(content):
    messages = [MESSAGES[0], {"role": "assistant", "content": content}]
    found = parts(CHATML, messages=messages, continue_final_message=True)
    assert found[-2:] == [("<|im_end|>\n<|im_start|>assistant\n", TRUSTED), (content, ASSISTANT)]


@pytest.mark.parametrize(
    ("source", "messages", "continued", "message"),
    [
        (CHATML, [{"role": "user"}], True, "needs a last message with 'content'"),
        (CHATML, MESSAGES, "thinking", "needs a last message with 'thinking'"),
        ("{{ messages[0].content }}", MESSAGES, True, "leaves out the end"),
        ("{{ messages[0] }}", MESSAGES, True, "does not read the field"),
        (CHATML, [{"role": "user", "content": [{"type": "image"}]}], True, "no text to continue"),
    ],
)
def test_continue_final_message_needs_a_text_to_continue(source, messages, continued, message):
    with pytest.raises(ChatInputError, match=message):
        ChatTemplate(source).render(request(messages, continue_final_message=continued))


def test_reasoning_has_every_name_and_fields_without_value_are_missing():
    source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}"
    for name in ("reasoning", "thinking", "reasoning_content"):
        assert parts(source, messages=[{"role": "assistant", name: "r"}]) == [("rr", REASONING)]
    source = "{{ messages[0].content is defined }}{{ 'content' in messages[0] }}"
    assert parts(source, messages=[{"role": "user", "content": None}])[0][0] == "FalseFalse"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ messages[0].content._runs }}{{ messages[0].content._runs[0] }}", SecurityError),
        ("{{ messages.append(1) }}", SecurityError),
        ("{% set ns = namespace(_a=1) %}", SecurityError),
        ("{{ range(1000000) }}", OverflowError),
        ("{{ messages[0].content | attr('upper') }}", TemplateRuntimeError),
        ("{{ 'a' ~ messages[0].content.upper }}", TemplateRuntimeError),
        ("{{ namespace }}", TemplateRuntimeError),
        ("{{ messages | map('upper') }}", TemplateRuntimeError),
    ],
)
def test_what_a_template_may_not_do(source, error):
    with pytest.raises(error):
        ChatTemplate(source).render(request())


@pytest.mark.parametrize(
    ("source", "index"),
    [
        ("{% for m in messages %}{{ m.content.no.such }}{% endfor %}", 0),
        (
            "{% set first = messages[0] %}{% for m in messages %}"
            "{% if loop.last %}{{ m.a.b }}{% endif %}{% endfor %}",
            1,
        ),
        ("{% macro f(m) %}{{ raise_exception(m.role) }}{% endmacro %}{{ f(messages[1]) }}", 1),
        ("{{ raise_exception('never') }}", None),
        ("{% for m in messages %}{% endfor %}{{ a.b.c }}", None),
    ],
)
def test_a_failure_names_the_message_that_the_template_was_at(source, index):
    with pytest.raises(TemplateError) as caught:
        parts(source)
    assert vars(caught.value)["message_index"] == index


def turn(body):
    return "{% for m in messages %}" + body + "{% endfor %}"


SHOW = "{% macro show(parts) %}{% for p in parts %}{{ p.text }}{% endfor %}{% endmacro %}"


@pytest.mark.parametrize(
    ("source", "is_over_content"),
    [
        (turn("{% for part in m.content %}{{ part.text }}{% endfor %}"), True),
        (turn("{% for part in m['content'] %}{{ part.text }}{% endfor %}"), True),
        (turn("{% for part in m.content | list %}{{ part.text }}{% endfor %}"), True),
        (turn("{% for part in m.content[1:] %}{{ part.text }}{% endfor %}"), True),
        (turn("{% set content = m.content %}{% for p in content %}{{ p }}{% endfor %}"), True),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{{ p }}"
            "{% endfor %}{% endfor %}",
            True,
        ),
        (SHOW + turn("{{ show(m.content) }}"), True),
        (SHOW + turn("{{ show(parts=m.content) }}"), True),
        (turn("{% generation %}{% for p in m.content %}{% endfor %}{% endgeneration %}"), True),
        (turn("{{ m.content }}"), False),
        (turn("{% for call in m.tool_calls %}{{ call.function.name }}{% endfor %}"), False),
        (turn("{% for x in other.content %}{{ x }}{% endfor %}"), False),
        ("{% for t in tools %}{% for x in t.content %}{{ x }}{% endfor %}{% endfor %}", False),
        (SHOW.replace("parts", "content") + turn("{{ show(m.tool_calls) }}"), False),
        ("{% for %}", False),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", False),
    ],
)
def test_loops_over_the_parts_of_content_are_found(source, is_over_content):
    assert loops_over_content(source) == is_over_content


values = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2)
messages = st.dictionaries(st.sampled_from(["role", "content", "name"]), values)


@given(st.lists(messages, max_size=5), values)
@example([{"content": "ab\u00e9"}, {"role": "x"}, {"content": "c\U0001f600"}], None)
def test_a_process_reads_what_json_gives(chat, tools):
    request = {"messages": chat, "tools": tools}
    read = _read_request(_dump(request))
    assert list(read.pop("content_lengths")) == [
        len(message["content"]) if isinstance(message.get("content"), str) else None
        for message in chat
    ]
    # The same order of fields, which `tojson` writes.
    assert json.dumps(read) == json.dumps(request)


def test_messages_of_other_types_are_read_as_objects_or_refused():
    class Text(str):
        __slots__ = ()

    chat = [MappingProxyType({"content": "a"}), {"content": Text("b")}, {"content": ("c", "d")}]
    read = _read_request(_dump({"messages": chat}))
    assert read["messages"] == [{"content": "a"}, {"content": "b"}, {"content": ["c", "d"]}]
    for message, words in (
        ({"content": b"hello"}, "no JSON type; decode it first"),
        ({"content": [{"type": "text", "text": bytearray(b"hello")}]}, "no JSON type; decode it"),
        ({"content": memoryview(b"hello")}, "no JSON type; decode it first"),
        ({"role": "\ud800", "content": ""}, "lone surrogate"),
    ):
        with pytest.raises(ChatInputError, match=words):
            _dump({"messages": [message]})
