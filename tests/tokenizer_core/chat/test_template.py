"""Templates render as in transformers, and every character keeps its origin."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2.exceptions import SecurityError, TemplateError

from tests.tokenizer_core.chat.own_templates import template_request
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.chat.traced_text import FIRST_MESSAGE, GENERATED, LOST, TRUSTED
from tokenizer_core.errors import ChatInputError

USER, ASSISTANT = FIRST_MESSAGE, FIRST_MESSAGE + 1
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"},
]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def request(messages: list[dict[str, Any]] = MESSAGES, **options: Any) -> dict[str, Any]:
    return template_request({"messages": messages, **options}, {"bos_token": "<s>"})


def parts(source: str, **options: Any) -> list[tuple[str, int]]:
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
        ("{{ bos_token ~ messages[0].content }}", [("<s>", TRUSTED), ("hi", USER)]),
        ("{{ ['<', messages[1].content]|join('>') }}", [("<>", TRUSTED), ("yo", ASSISTANT)]),
        (
            "{{ messages|map(attribute='content')|join('<b>') }}",
            [("hi", USER), ("<b>", TRUSTED), ("yo", ASSISTANT)],
        ),
        ("{% set x %}<{{ messages[0].content }}{% endset %}{{x}}", [("<", TRUSTED), ("hi", USER)]),
        (
            "{% macro f(x) %}<a>{{ x }}</a>{% endmacro %}{{ f(messages[0].content) }}",
            [("<a>", TRUSTED), ("hi", USER), ("</a>", TRUSTED)],
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
        ("{% set d = {'k': '<a>'} %}{{ d.k }}{{ d['k'] }}", [("<a><a>", TRUSTED)]),
        ("{{ 'a{}b'.format(1) }}", [("a", TRUSTED), ("1", LOST), ("b", TRUSTED)]),
        ("{{ '<{}|{k}>{{}}'.format(messages[0].content, k='k') }}",
         [("<", TRUSTED), ("hi", USER), ("|k>{}", TRUSTED)]),
        ("{{ '<{:>4}>'.format(messages[0].content) }}", [("<  hi>", LOST)]),
        ("{{ '<{0[content]}>'.format(messages[0]) }}", [("<hi>", LOST)]),
        ("{{ (messages[0].content + '{}').format('<a>') }}", [("hi<a>", LOST)]),
        ("{{ '%s<a>' % messages[0].content }}", [("hi", USER), ("<a>", TRUSTED)]),
        ("{{ '<a>%4s' % messages[0].content }}", [("<a>", TRUSTED), ("  hi", LOST)]),
        ("{{ 1 + 1 }}", [("2", TRUSTED)]),
        ("{{ messages|length }}", [("2", LOST)]),
        ("{{ ('a\nb' + messages[0].content)|indent(2) }}", [("a\n  b", TRUSTED), ("hi", USER)]),
        ("{% filter upper %}{{ messages[0].content }}{% endfilter %}", [("HI", USER)]),
        ("{{ '<a>'|replace('a>', messages[0].content) }}", [("<", TRUSTED), ("hi", USER)]),
        ("{{ messages[0]|tojson }}", [('{"role": "user", "content": "hi"}', LOST)]),
        ("{{ messages[0].content|tojson }}", [('"hi"', USER)]),
        ("{% set a = '<a>' %}{{ a|tojson }}", [('"<a>"', LOST)]),
        ("{% set a = '<a>' %}{{ a|safe }}{{ '<b>'|safe }}", [("<a><b>", TRUSTED)]),
        ("{{ '<'|safe + messages[0].content + '>' }}",
         [("<", TRUSTED), ("hi", USER), ("&gt;", TRUSTED)]),
        ("{{ messages[0].content + '[A]' + ('>'|safe) }}", [("hi", USER), ("[A]>", TRUSTED)]),
        ("{{ ('<'|safe)|upper }}{{ messages[0].content|e }}", [("<", TRUSTED), ("hi", LOST)]),
        ("{{ '<' + ('>'|safe) }}", [("&lt;>", TRUSTED)]),
        ("{{ messages[0].content + ('>'|safe) + '<' }}", [("hi", USER), (">&lt;", TRUSTED)]),
        ("{{ strftime_now('<a>') }}", [("<a>", LOST)]),
        ("{{ tools }}", [("None", LOST)]),
    ],
)  # fmt: skip
def test_origins(source: str, expected: list[tuple[str, int]]) -> None:
    assert parts(source) == expected


def test_text_of_the_request_that_is_no_message_is_not_trusted() -> None:
    source = "{{ tools[0] }}{{ documents[0].text }}{{ extra }}{{ bos_token }}"
    result = parts(
        source,
        tools=["<t>"],
        documents=[{"text": "<d>"}],
        kwargs={"extra": "<e>", "bos_token": "<k>"},
    )
    assert result == [("<t><d><e><k>", LOST)]


def test_only_roles_that_every_api_has_are_trusted() -> None:
    source = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}"
    messages = [{"role": "user"}, {"role": "im_end"}]
    assert parts(source, messages=messages) == [
        ("<|user|><|", TRUSTED),
        ("im_end", FIRST_MESSAGE + 1),
        ("|>", TRUSTED),
    ]


def test_generation_marks_what_the_model_shall_write() -> None:
    source = (
        "{% for m in messages %}[{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}</s>{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}]{% endfor %}"
    )
    assert parts(source) == [
        ("[", TRUSTED),
        ("hi", USER),
        ("][", TRUSTED),
        ("yo", ASSISTANT | GENERATED),
        ("</s>", TRUSTED | GENERATED),
        ("]", TRUSTED),
    ]


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        (CHATML, "<|im_start|>assistant\n", "<|im_end|>\n"),
        ("{{ messages|length }}", "", ""),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "", ""),
        ("{% if messages|length == 1 %}{{ raise_exception('') }}{% endif %}"
         "{% for m in messages %}{{ m.content }}</s>{% endfor %}", "", "</s>"),
        ("{% if messages|length == 2 %}{{ raise_exception('') }}{% endif %}"
         "{% if add_generation_prompt %}>{% endif %}", ">", ""),
    ],
)  # fmt: skip
def test_borders_of_a_turn(source: str, before: str, after: str) -> None:
    messages = [*MESSAGES, {"role": "user", "content": "more"}]
    assert ChatTemplate(source).turn_borders(request(messages)) == (before, after)


@pytest.mark.parametrize("content", ["yo", " y o "])
def test_continue_final_message_ends_after_its_content(content: str) -> None:
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
def test_continue_final_message_needs_a_text_to_continue(
    source: str, messages: list[dict[str, Any]], continued: bool | str, message: str
) -> None:
    with pytest.raises(ChatInputError, match=message):
        ChatTemplate(source).render(request(messages, continue_final_message=continued))


def test_reasoning_has_the_names_that_templates_read() -> None:
    source = "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}"
    for name in ("reasoning", "thinking", "reasoning_content"):
        assert parts(source, messages=[{"role": "assistant", name: "r"}]) == [("rr", FIRST_MESSAGE)]


def test_fields_without_value_are_missing() -> None:
    source = "{{ messages[0].content is defined }}{{ 'content' in messages[0] }}"
    assert parts(source, messages=[{"role": "user", "content": None}])[0][0] == "FalseFalse"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ raise_exception('no system') }}", TemplateError),
        ("{{ ''.__class__.__mro__ }}", SecurityError),
        ("{{ messages[0].content._runs }}{{ messages[0].content._runs[0] }}", SecurityError),
        ("{{ messages.append(1) }}", SecurityError),
        ("{% set ns = namespace(_a=1) %}", SecurityError),
        ("{{ range(1000000) }}", OverflowError),
    ],
)
def test_what_a_template_may_not_do(source: str, error: type[Exception]) -> None:
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
def test_a_failure_names_the_message_that_the_template_was_at(
    source: str, index: int | None
) -> None:
    with pytest.raises(TemplateError) as caught:
        parts(source)
    assert vars(caught.value)["message_index"] == index
