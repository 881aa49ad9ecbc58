"""A template can neither read what is not its own, nor run or grow without end."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tokenizer_core.chat.renderer import RenderedChat, RenderLimits, render_chat
from tokenizer_core.errors import ChatLimitError, ChatTemplateError

MESSAGES = [{"role": "user", "content": "hi"}]
# The limit that a test is not about is far away.
LIMITS = RenderLimits(memory_bytes=64 << 20, seconds=60, chars=1 << 20)
TIME = RenderLimits(memory_bytes=1 << 30, seconds=0.5, chars=1 << 20)


def render(template: str, limits: RenderLimits = LIMITS) -> RenderedChat:
    return render_chat(template, MESSAGES, variables={"bos_token": "<s>"}, limits=limits)


def still_works() -> bool:
    return render("{{ bos_token }}{{ messages[0].content }}").text == "<s>hi"


REACHING = [
    "cycler.__init__.__globals__",
    "namespace()._Namespace__attrs",
    "lipsum.__globals__.os",
    "range.__class__.__base__",
    "strftime_now.__code__.co_consts",
    "''.__class__.__mro__[1].__subclasses__()",
    "messages[0].content.__class__.__new__",
    "messages[0].content._runs[0]",
    "messages[0].content._part(0, 1)",
    "messages[0].content.split.__func__.__globals__",
    "messages[0].__class__.fromkeys",
    "messages|attr('__class__')|attr('__mro__')|first",
    "messages|map(attribute='__class__.__mro__')|list|first|first",
    "(messages|select).gi_frame.f_globals",
    "(messages|map('string')).gi_code.co_consts",
    "self._TemplateReference__context.environment",
    "self.__init__.__func__",
    "'{0.__class__.__mro__}'.format(messages)",
    "'{m.__class__.__mro__}'.format_map({'m': 1})",
    "'{0._runs[0]}'.format(messages[0].content)",
    "''.format.__self__.__class__",
    "(''|attr('format')).__self__.__class__",
    "('<b>'|safe).__html__.__self__.__class__",
    "messages.append(1)",
    "messages[0].update({'content': bos_token})",
    "messages[0].pop('content')",
    "messages[0].__setitem__('content', bos_token)",
]
STATEMENTS = [
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends '/etc/passwd' %}",
    "{% debug %}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% set ns = namespace() %}{% set ns._Namespace__attrs = {} %}",
    "{% macro m() %}{% endmacro %}{{ m._environment.globals }}",
    "{% macro m() %}{% endmacro %}{{ m._func.x }}",
    *("{{ " + expression + ".x }}" for expression in REACHING),
]


@pytest.mark.parametrize("template", STATEMENTS)
def test_it_reads_and_changes_nothing_but_its_values(template: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(template)
    assert still_works()


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ range(10**9)|list }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% call m() %}{% endcall %}{% endmacro %}"
        "{% call m() %}{% endcall %}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "not " * 5000 + "1 }}",
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{% set ns = namespace(v=[]) %}{% for i in range(5000) %}{% set ns.v = [ns.v] %}"
        "{% endfor %}{{ ns.v|tojson }}",
        "{{ 10 ** 5000 }}",
    ],
    ids=lambda template: template[:30],
)
def test_ranges_and_recursion_end_in_an_error(template: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(template)
    assert still_works()


@pytest.mark.skipif(os.name != "posix", reason="the limit of time is a signal")
@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(90) }}",
        "{% set n = 10 ** 99999999 %}",
        "{{ lipsum(n=10 ** 8) }}",
        "{{ 'x' }}" * 100_000,
    ],
    ids=["loops", "calls", "power", "lipsum", "compilation"],
)
def test_it_ends_when_its_time_is_over(template: str) -> None:
    with pytest.raises(ChatLimitError, match=r"longer than 0\.5 s"):
        render(template, TIME)
    assert still_works()


def grown(start: str, operation: str) -> str:
    return (
        "{% set ns = namespace(x=" + start + ") %}{% for i in range(60) %}"
        "{% set ns.x = " + operation + " %}{% endfor %}{{ ns.x }}"
    )


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux limits the memory")
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ bos_token * 10**9 }}",
        "{{ [0] * 10**9 }}",
        grown("'a'", "ns.x ~ ns.x"),
        grown("messages[0].content", "ns.x + ns.x"),
        grown("messages[0].content", "[ns.x, ns.x]|join"),
        grown("[1]", "ns.x + ns.x"),
        "{{ messages[0].content.rjust(10**9) }}",
        "{{ '\\t'.expandtabs(10**9) }}",
        "{{ 'a\\nb'|indent(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ [[1]]|tojson(indent=10**9) }}",
        "{{ 'x'.join(['y' * 1000] * 10**7) }}",
        "{{ messages|batch(10**9, 'x')|list }}",
        "{{ (range(99999)|list * 1000)|sort }}",
    ],
)
def test_it_ends_when_it_needs_too_much_memory(template: str) -> None:
    with pytest.raises(ChatLimitError, match="more than 64 MiB of memory"):
        render(template)
    assert still_works()


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("{{ 'a' * (2**20 + 1) }}", {}),
        ("{% for i in range(1050) %}{{ 'a' * 999 }}{% endfor %}", {}),
        # Each of the three texts is within the limit, not all together.
        ("{{ 'a' * 2**19 }}{% if add_generation_prompt %}{{ 'b' * 2**19 }}b{% endif %}",
         {"with_turn_borders": True}),
    ],
)  # fmt: skip
def test_it_writes_only_so_much(template: str, options: dict[str, Any]) -> None:
    with pytest.raises(ChatLimitError, match="more than 1,048,576 characters"):
        render_chat(template, MESSAGES, variables={}, limits=LIMITS, **options)
    assert still_works()


def test_an_error_message_is_short() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render("{{ raise_exception('x' * 10**6) }}")
    assert len(str(caught.value)) < 3000
