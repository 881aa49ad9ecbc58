"""Rendering in child processes: results and errors, and what a template may not do."""

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.tokenizer_core.chat.own_templates import CHATML
from tests.tokenizer_core.chat.test_in_process import HOSTILE
from tokenizer_core.chat.renderer import ChildNeededError, RenderLimits, render_chat, without_child
from tokenizer_core.errors import ChatInputError, ChatLimitError, ChatTemplateError

MESSAGES = [
    {"role": "user", "content": "h\u00e9 \U0001f600"},
    {"role": "assistant", "content": "yo"},
]


# The limit that a test is not about is far away.
LIMITS = RenderLimits(memory_bytes=64 << 20, seconds=60, chars=1 << 20)
TIME = RenderLimits(memory_bytes=1 << 30, seconds=0.5, chars=1 << 20)


def render(template=CHATML, messages=MESSAGES, **options):
    options = {"variables": {"bos_token": "<s>"}, "limits": LIMITS, **options}
    return render_chat(template, messages, **options)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system message') }}", "no system message"),
        ("\n\n{{ x.y.z }}", r"'x' is undefined \(line 3 of the template\)"),
        ("\n{% if %}", r"line 2 of the template"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages[0].content + 1 }}", r"concatenate str|for \+: 'str' and 'int'"),
        ("{{ messages[0].content.x.y }}", "'str' has no|'str object' has no attribute 'x'"),
        ("{{ '\ud800' }}", "lone surrogate"),
    ],
)
def test_a_failing_template_says_where(template, message):
    with pytest.raises(ChatTemplateError, match=message):
        render(template)


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([], {}, "at least one message"),
        ("hi", {}, "must be a list"),
        (["hi"], {}, r"messages\[0\] is str"),
        ([{"role": "user", "content": object()}], {}, "plain data"),
        (MESSAGES, {"tools": "x"}, "tools must be a list"),
        (MESSAGES, {"tools": ["x"]}, r"tools\[0\] is str: it must be an object"),
        (MESSAGES, {"documents": [{}, None]}, r"documents\[1\] is NoneType: it must be an object"),
        (MESSAGES, {"kwargs": {"tools": []}}, "argument of its own"),
        (MESSAGES, {"add_generation_prompt": True, "continue_final_message": True}, "exclude"),
    ],
)
def test_bad_input_names_the_remedy(messages, options, message):
    with pytest.raises(ChatInputError, match=message):
        render(messages=messages, **options)


def test_threads_get_their_own_results_from_more_templates_than_are_kept():
    def run(number):
        message = [{"role": "user", "content": f"number {number} " * 1000}]
        template = "%s{{ messages[0].content }}"
        return [render(template % (number + at), message).text for at in (0, 0, 20)]

    with ThreadPoolExecutor(6) as pool:
        for number, texts in zip(range(20), pool.map(run, range(20)), strict=True):
            content = f"number {number} " * 1000
            assert texts == [f"{number + at}{content}" for at in (0, 0, 20)]


def test_a_killed_process_is_replaced():
    render()
    children = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "render_worker"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if not children:
        pytest.skip("pgrep is not installed")
    for child in children:
        os.kill(int(child), signal.SIGKILL)
        os.waitid(os.P_PID, int(child), os.WEXITED | os.WNOWAIT)
    assert render().text.startswith("<|im_start|>user")


def test_processes_do_not_see_the_environment_and_alone_load_jinja(monkeypatch):
    monkeypatch.setenv("TOKENIZER_ADMIN_KEYS", "secret")
    # In a fresh parent, so that its process starts with this environment.
    program = (
        "import os, sys\n"
        "from tokenizer_core import Tokenizer\n"
        "from tokenizer_core.chat.renderer import render_chat\n"
        "render_chat('x', [{'role': 'user'}], variables={})\n"
        "children = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split()\n"
        "print(any(b'secret' in open(f'/proc/{c}/environ', 'rb').read() for c in children),\n"
        "      len(children), 'jinja2' in sys.modules)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == "False 1 False\n"


def require_child(template):
    """The process that asks leaves the template to a child."""
    with without_child(), pytest.raises(ChildNeededError):
        render(template, may_run_here=True)


def still_works():
    return render("{{ bos_token }}{{ messages[0].content }}").text == "<s>h\u00e9 \U0001f600"


REACHING = [
    "cycler.__init__.__globals__",
    "namespace()._Namespace__attrs",
    "lipsum.__globals__.os",
    "range.__class__.__base__",
    "strftime_now.__code__.co_consts",
    "''.__class__.__mro__[1].__subclasses__()",
    "messages[0].content.__class__.__new__",
    "messages[0].content._runs[0]",
    "messages[0].__class__.fromkeys",
    "messages|attr('__class__')|attr('__mro__')|first",
    "messages|map(attribute='__class__.__mro__')|list|first|first",
    "(messages|select).gi_frame.f_globals",
    "self._TemplateReference__context.environment",
    "'{0.__class__.__mro__}'.format(messages)",
    "'{m.__class__.__mro__}'.format_map({'m': 1})",
    "'{0._runs[0]}'.format(messages[0].content)",
    "(''|attr('format')).__self__.__class__",
    "('<b>'|safe).__html__.__self__.__class__",
    "messages.append(1)",
    "messages[0].update({'content': bos_token})",
    "messages[0].__setitem__('content', bos_token)",
]
STATEMENTS = [
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% set ns = namespace() %}{% set ns._Namespace__attrs = {} %}",
    "{% macro m() %}{% endmacro %}{{ m._environment.globals }}",
    *("{{ " + expression + ".x }}" for expression in REACHING),
]


@pytest.mark.parametrize("template", STATEMENTS)
def test_it_reads_and_changes_nothing_but_its_values(template):
    require_child(template)
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
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{% set ns = namespace(v=[]) %}{% for i in range(5000) %}{% set ns.v = [ns.v] %}"
        "{% endfor %}{{ ns.v|tojson }}",
        "{{ 10 ** 5000 }}",
    ],
    ids=lambda template: template[:30],
)
def test_ranges_and_recursion_end_in_an_error(template):
    require_child(template)
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
def test_it_ends_when_its_time_is_over(template):
    require_child(template)
    with pytest.raises(ChatLimitError, match=r"longer than 0\.5 s"):
        render(template, limits=TIME)
    assert still_works()


def grown(start, operation):
    return (
        "{% set ns = namespace(x=" + start + ") %}{% for i in range(60) %}"
        "{% set ns.x = " + operation + " %}{% endfor %}{{ ns.x }}"
    )


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux limits the memory")
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ [0] * 10**9 }}",
        grown("'a'", "ns.x ~ ns.x"),
        grown("messages[0].content", "ns.x + ns.x"),
        grown("[1]", "ns.x + ns.x"),
        "{{ messages[0].content.rjust(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ [[1]]|tojson(indent=10**9) }}",
        "{{ 'x'.join(['y' * 1000] * 10**7) }}",
        "{{ messages|batch(10**9, 'x')|list }}",
        "{{ (range(99999)|list * 1000)|sort }}",
    ],
)
def test_it_ends_when_it_needs_too_much_memory(template):
    require_child(template)
    with pytest.raises(ChatLimitError, match="more than 64 MiB of memory"):
        render(template)
    assert still_works()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux limits the memory")
@pytest.mark.parametrize("name", HOSTILE)
def test_what_has_bounds_only_by_a_budget_ends_in_a_child_too(name):
    messages = [{"role": "user", "content": "a" * 300_000}]
    limits = RenderLimits(memory_bytes=64 << 20, seconds=0.5, chars=1 << 20)
    with contextlib.suppress(ChatLimitError, ChatTemplateError):
        assert not render(HOSTILE[name], messages, limits=limits).text
    assert still_works()


def test_output_is_limited():
    for template, with_borders in (
        ("{{ 'a' * (2**20 + 1) }}", False),
        ("{% for i in range(1050) %}{{ 'a' * 999 }}{% endfor %}", False),
        # The text and what asks for a turn are within the limit, not both together.
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}{{ 'a' * 2**19 }}"
            "{% if add_generation_prompt %}{{ 'b' * 2**19 }}{% endif %}",
            True,
        ),
    ):
        with pytest.raises(ChatLimitError, match="more than 1,048,576 characters"):
            render(template, with_turn_borders=with_borders)
    with pytest.raises(ChatTemplateError) as caught:
        render("{{ raise_exception('x' * 10**6) }}")
    assert len(str(caught.value)) < 3000
    assert still_works()
