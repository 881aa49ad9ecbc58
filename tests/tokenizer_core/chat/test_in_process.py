"""Templates in this process: each result is that of the child process, and nothing has no bound."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chat_requests import chat_requests
from tests.security.families import CONTENT
from tests.security.families import FAMILIES as PUBLIC
from tests.tokenizer_core.chat.own_templates import CHATML, OWN_TEMPLATES, template_request
from tests.tokenizer_core.chat.test_as_plain_jinja import _SETTINGS, texts
from tests.tokenizer_service.chats import TEMPLATES
from tokenizer_core.chat.admission import TESTS
from tokenizer_core.chat.checked_operations import Budget, ElsewhereError
from tokenizer_core.chat.in_process import MOST_UNITS, admit
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.errors import ChatInputError

ROOT = Path(__file__).resolve().parents[3]
# Templates of the shapes that public families have.
FAMILIES = {
    "default system": "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' "
    "%}{{ '<s>system\nYou are helpful<e>\n' }}{% endif %}{{'<s>' + m['role'] + '\n' + "
    "m['content'] + '<e>' + '\n'}}{% endfor %}",
    "alternating": "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m['content'] | trim + ' ' + "
    "eos_token }}{% endfor %}",
    "last question": "{% set ns = namespace(last=messages|length - 1, open=true) %}{% for m in "
    "messages[::-1] %}{% set at = (messages|length - 1) - loop.index0 %}{% if ns.open and m.role "
    "== 'user' and m.content is string and not m.content.startswith('<r>') %}{% set ns.open = "
    "false %}{% set ns.last = at %}{% endif %}{% endfor %}{% for m in messages %}{% if loop.index0 "
    "> ns.last and m.content is string %}{{ m.content.split('</think>')[-1].lstrip('\n') }}"
    "{% endif %}{{ loop.last }}{% endfor %}",
    "parts in a macro": "{% macro show(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}"
    "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
    "{% for m in messages %}{{ '<' ~ m.role ~ '>' }}{% set x = show(m.content) %}"
    "{{ x }}{% endfor %}",
    "tools": "{% for t in tools or [] %}{{ t | tojson }}{{ t|tojson(indent=2) }}{% for k, v in "
    "t.items() %}{{ k }}{% if v is mapping %}{% for a, b in v|dictsort %}{{ a ~ ':' ~ b|string }}"
    "{% endfor %}{% endif %}{% endfor %}{% endfor %}{% for m in messages %}{% for c in "
    "m.tool_calls if c.function %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}",
    "filters": "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='role')|list|join("
    "', ') }}{% for m in messages %}{{ m.content|default('no', true)|string|upper }}{{ m.get("
    "'name', 'none') }}{{ m.name|d('-')|safe }}{{ m.role|capitalize|replace('s', '<') }}"
    "{% endfor %}",
    "a set and tags": "{% for m in messages %}{% set t %}{{ m.role }}{% endset %}{{ t }}"
    "{% generation %}{{ m.content }}{% endgeneration %}{% if loop.nextitem is defined "
    "and loop.nextitem.role in ['tool', 'user'] %}{% continue %}{% endif %}"
    "{{ eos_token }}{% endfor %}",
    "slices": "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}{% for m "
    "in rest %}{{ m.content[:2] }}{{ rest[loop.index0 - 1].role }}{{ -loop.index }}"
    "{{ 'x' in m.content and m.content is not mapping }}{% endfor %}",
}
SOURCES = OWN_TEMPLATES | TEMPLATES | FAMILIES | {"chatml": CHATML}
SOURCES |= {
    name: family.template.replace("CONTENT", CONTENT.replace("MEDIA", family.media))
    for name, family in PUBLIC.items()
}
LEFT_TO_THE_CHILD = {"macros", "broken"}


def of_child(source, chat):
    """What the program of the child process gives; None if it refuses the conversation."""
    try:
        text, runs = ChatTemplate(source).render(template_request(json.loads(json.dumps(chat))))
    except Exception:
        return None
    return str(text), runs


def here(source, chat, units=MOST_UNITS, errors=None):
    """The result in this process; None if it has none. `errors` gets what stopped it."""
    template = admit(source)
    try:
        return template and template.render_within(template_request(chat), Budget(units))
    except ElsewhereError as error:
        if errors is not None:
            errors.append(error.__cause__)
        return None


def is_equal(source, chat):
    """Compare the two ways; whether this process had a result."""
    found = here(source, chat)
    assert found is None or found == of_child(source, chat), (source, chat)
    return found is not None


@pytest.mark.parametrize("name", SOURCES)
def test_a_result_is_that_of_the_child_process(name):
    n_here = [is_equal(SOURCES[name], chat) for chat in chat_requests(31, 120)].count(True)
    assert bool(n_here) == (name not in LEFT_TO_THE_CHILD)


_ATOMS = (
    "t", "u", "m", "'<a>X x'", "' b\n'", "'X'", "''", "bos_token", "messages[0].role", "nothing",
    "1", "2", "-1", "none", "true", "['X', t, m]", "{'X': t, 't': 'x'}", "(t, u)", "messages",
    "range(3)", "t|safe", "messages[0]", "n", "kw", "2.5",
)  # fmt: skip
_FILTERS = (
    "capitalize", "count", "d('X')", "default(t, true)", "dictsort", "items|list", "join",
    "join('X')", "length", "list", "lower", "map('upper')|list", "map(attribute='t')|list",
    "reject('equalto', 'X')|list", "replace('X', t)", "safe", "string", "tojson",
    "select('==', t)|list", "tojson(indent=2)", "trim", "upper", "map('tojson')|join('<a>')",
    "selectattr('t', 'eq', 'X')|list|length", "items", "map('trim')", "indent", "indent(1, true)",
    "indent(2, blank=true)",
)  # fmt: skip
_METHODS = (
    "capitalize()", "endswith('X')", "get('X')", "get('t', u)", "items()|list", "keys()|list",
    "lower()", "lstrip('X')", "replace('X', u)", "rstrip()", "split()", "split('X')", "split(t)",
    "split('X', 1)[0]", "startswith(u)", "strip('X ')", "upper()", "values()|list", "t", "role",
)  # fmt: skip


def _operations(inner):
    index = st.integers(-3, 3).map(str) | st.just("")
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+~-%"), inner),
        st.builds("({} + {} + {})".format, inner, inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(("==", "!=", "<", ">=")), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(("in", "not in")), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(("and", "or")), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({})[{}:{}]".format, inner, index, index),
        st.builds("({})[{}]".format, inner, st.integers(-3, 3)),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({})[::-1]".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("{}.format({}, {})".format, st.just("'<a>{}X{}'"), inner, inner),
        st.builds("({} % ({}, {}))".format, st.just("'%s<a>%s'"), inner, inner),
        st.builds("({} % {})".format, st.sampled_from(("'<%s>'", "'%s'", "'%d%%'")), inner),
        st.builds("({}|format({}))".format, st.sampled_from(("'<%s>'", "'%s'")), inner),
        st.builds("({})|{}".format, inner, st.sampled_from(_FILTERS)),
        st.builds("({}).{}".format, inner, st.sampled_from(_METHODS)),
        st.builds("({} is {})".format, inner, st.sampled_from(sorted(TESTS))),
    )


expressions = st.recursive(st.sampled_from(_ATOMS), _operations, max_leaves=6)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of expressions such as 1[0]
@given(expressions, texts, texts)
def test_an_expression_gives_the_same_text_and_origins(expression, t, u):
    source = f"{_SETTINGS}{{% set n = 1.5 %}}{{{{ {expression} }}}}"
    source += f"{{% set x %}}|{{{{ {expression} }}}}{{% endset %}}{{{{ x }}}}"
    chat = {"messages": [{"role": "user", "t": t, "u": u}], "kwargs": {"kw": u}}
    is_equal(source, chat)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 2 ** 9 }}", "{{ 'a' * 9 }}", "{{ [0] * 9 }}", "{{ 9 // 2 }}", "{{ 9 / 2 }}",
        "{{ 'x'.center(9) }}", "{{ 'x'.format(1) }}", "{{ '{:9}'.format(n) }}",
        "{{ '%9s'|format(n) }}", "{{ '%(a)s'|format(a=n) }}", "{{ n.format(n) }}",
        "{{ '{}{0}'.format(n) }}", "{{ '{n}'.format(n=n) }}", "{{ '{}'.format(*n) }}",
        "{{ 'x'|indent(9) }}", "{{ '%s'|format(1) }}",
        "{{ lipsum() }}".replace("lipsum", "messages.append"), "{{ messages|sort }}",
        "{{ messages|groupby('role') }}", "{{ messages|batch(9) }}", "{{ messages|attr('x') }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{% include 'x' %}",
        "{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}", "{{ ''.__class__ }}",
        "{% set x = namespace() %}{% set x._y = 1 %}", "{{ f(**{}) }}", "{{ 1 < 2 < n }}",
        "{% filter upper %}{% endfilter %}", "{{ messages.items }}", "{{ '\ud800' }}",
        "{{ {messages[0].role: 1} }}", "{% autoescape true %}{% endautoescape %}",
        "{% import 'x' as y %}", "{{ n is divisibleby 2 }}", "{{ n is in messages }}",
        # Jinja computes these while it compiles, so that their text is the template's.
        "{{ 1 + 1 }}", "{{ 1|string }}", "{{ 'a' ~ 1 }}", "{{ ('\u00df' if true else n)|upper }}",
        "{{ (true or n) ~ '' }}", "{{ 'a'|tojson }}", "{{ -1 }}", "{{ 'ab'[0] }}",
        "{{ " + "(" * 99 + "n" + " ~ n)" * 99 + " }}", "{{ n }}" * 10_000, "x" * 70_000, "{% if %}",
    ],
    ids=lambda source: source[:40],
)  # fmt: skip
def test_what_has_no_bound_is_not_admitted(source):
    assert admit(source) is None


LOOP = "{% for i in range(99999) %}"
LONG = "{% set s = messages[0].content %}"
GROW = (
    "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"
    "{{ ns.x|length }}"
)


def grow(start, step):
    return GROW.replace("START", start).replace("STEP", step)


HOSTILE = {
    "loops": LOOP + LOOP + "{% endfor %}{% endfor %}",
    "conditions": LOOP + "{% for j in range(99999) if j == 1.5 %}{% endfor %}{% endfor %}",
    "wide range": "{% for i in range(10**9) %}{% endfor %}".replace("10**9", "1000000000"),
    "range as list": LOOP + "{% set x = range(99999)|list %}{% endfor %}",
    "literal": LOOP + "x" * 9999 + "{% endfor %}",
    "double by ~": grow("'a'", "ns.x ~ ns.x"),
    "double by +": grow("'a'", "ns.x + ns.x"),
    "double by sum": grow("'a'", "ns.x + 'b' + ns.x"),
    "double a list": grow("[1]", "ns.x + ns.x"),
    "double by replace": grow("'aa'", "ns.x.replace('a', 'aa')"),
    "double by filter": grow("'aa'", "ns.x|replace('a', 'aa')"),
    "double by join": grow("'aa'", "[ns.x, ns.x]|join"),
    "double in set": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set y %}{{ ns.x }}"
    "{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "safe text": LONG
    + "{% set t = s|safe %}{% set x %}"
    + LOOP
    + "{{ t }}{% endfor %}{% endset %}",
    "shared values": grow("[1]", "[ns.x, ns.x]").replace("|length", "|tojson"),
    "shared values as text": grow("[1]", "[ns.x, ns.x]").replace("|length", "|string"),
    "nested values": GROW.replace("60", "9999")
    .replace("START", "[]")
    .replace("STEP", "[ns.x]")
    .replace("|length", "|tojson"),
    "nested tags": "{% macro f(n) %}{% generation %}{{ n }}{{ f(n + 1) }}{% endgeneration %}"
    "{% endmacro %}{{ f(0) }}",
    "calls": "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else 'x' }}{% endmacro %}{{ f(30) }}",
    "default values": "{% macro f(x=[" + "not messages, " * 1500 + "]) %}{% endmacro %}"
    "{% for i in range(99999) %}{{ f() }}{% endfor %}",
    "deep calls": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "large numbers": grow("9", "ns.x + ns.x + ns.x").replace("range(60)", "range(90)"),
    "remainders of a text": "{{ s % 9 }}".replace("s", "messages[0].content"),
    "double by form": grow("'a'", "'{}{}'.format(ns.x, ns.x)"),
    "indent more": grow("'\n'", "(ns.x ~ ns.x)|indent(64, true, true)"),
    "wide margin": LONG + "{{ s|indent(999999999) }}",
    "wide time": "{{ strftime_now('%09999999d') }}",
    "wide JSON": "{{ messages|tojson(indent=999999999) }}",
    "deep JSON": "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, 1] %}"
    "{% endfor %}" + LOOP + "{{ ns.x|tojson(indent=8) }}{% endfor %}",
    "each character": LONG + LOOP + "{% for c in s %}{% endfor %}{% endfor %}",
    **{
        name: LONG + LOOP + "{% set x = " + expression + " %}{% endfor %}"
        for name, expression in {
            "search": "'aaaaaaab' in s",
            "search of a text": "(s[:90] ~ 'b') in s",
            "absence": "'aaaaaaab' not in s",
            "equality": "s[1:] == s[1:]",
            "order": "s[1:] < s[1:]",
            "slices": "s[::-1]",
            "slices of lists": "s.split('a')[:]",
            "split": "s.split('a')",
            "split at spaces": "s.split()",
            "strip": "s.strip('ab')",
            "trim": "s|trim",
            "indent": "s|indent",
            "format": "'%s' % s",
            "upper": "s|upper",
            "lower": "s.lower()",
            "capitalize": "s.capitalize()",
            "startswith": "s.startswith(s)",
            "keys": "messages[0][s]",
            "get": "messages[0].get(s)",
            "in an object": "s in messages[0]",
            "in a list": "s in messages",
            "JSON": "s|tojson",
            "safe": "s|safe",
            "map": "messages|map('upper')|list",
            "select": "range(9999)|select('==', 1)|list",
            "sort": "messages[0]|dictsort",
            "characters": "s|list + s|list",
            "items": "messages[0].items()|list + messages[0].keys()|list",
        }.items()
    },
}


def test_what_takes_too_long_is_left_to_the_child_and_needs_little_memory():
    """In a process with a limit, so that an operation without a bound does no harm."""
    program = (
        "import os, time\n"
        "from tests.tokenizer_core.chat.test_in_process import HOSTILE, admit, here\n"
        "if hasattr(os, 'sched_getaffinity'):  # Linux limits the memory\n"
        "    import resource\n"
        "    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))\n"
        "chat = {'messages': [{'role': 'user', 'content': chr(0x1f600) * 300_000}]}\n"
        "for name, source in HOSTILE.items():\n"
        "    started, errors = time.thread_time(), []\n"
        "    assert admit(source) is not None, name\n"
        "    assert here(source, chat, errors=errors) is None, name\n"
        "    assert not any(isinstance(error, MemoryError) for error in errors), name\n"
        "    # A tenth of it on a machine without other load.\n"
        "    assert time.thread_time() - started < 3, name\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_conversation_costs_what_it_holds():
    chat = {"messages": [{"role": "user", "content": "a" * 1000}] * 100}
    assert here(CHATML, chat, 900_000) is not None
    assert here(CHATML, chat, 200_000) is None


class _Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "\ud800"},
        {"role": "user", "content": "x", "other": ["\ud800"]},
        {"role": "user", "content": ("x",)},
        {"role": "user", "content": _Text("x")},
        {"role": "user", "content": 1 << 70},
        {"role": "user", "content": float("nan")},
        {"role": "user", "content": b"x"},
        {"role": "user", "content": {1: "x"}},
    ],
)
def test_what_json_changes_or_refuses_is_left_to_the_child(message):
    assert here("{{ messages[0].role }}", {"messages": [message]}) is None


def test_a_template_that_came_with_a_request_runs_in_the_child_only(monkeypatch):
    from tokenizer_core import Tokenizer
    from tokenizer_core.chat import renderer

    asked = []

    class Worker:
        is_alive = True

        def __init__(self, memory_bytes):
            self.memory_bytes = memory_bytes

        def ask(self, request, limits):
            asked.append(request)
            raise ChatInputError("asked")

        def end(self):
            pass

    monkeypatch.setattr(renderer, "_workers", renderer._Workers())
    monkeypatch.setattr(renderer, "_Worker", Worker)
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], [])
    tokenizer = tokenizer.with_chat_templates({"default": CHATML})
    messages = [{"role": "user", "content": "hi"}]
    assert re.search("user\nhi", tokenizer.encode_chat(messages).text)
    with renderer.without_child():
        assert tokenizer.render_chat(messages, chat_template="default").text
    assert not asked
    with pytest.raises(ChatInputError, match="asked"):
        tokenizer.render_chat(messages, chat_template=CHATML)
    with pytest.raises(ChatInputError, match="asked"):
        tokenizer.render_chat(messages, with_loss=True)
    assert len(asked) == 2
    with renderer.without_child(), pytest.raises(renderer.ChildNeededError):
        tokenizer.render_chat(messages, chat_template=CHATML)


def test_a_thread_that_must_not_wait_renders_little_and_compiles_nothing(monkeypatch):
    from tokenizer_core.chat import in_process, renderer

    monkeypatch.setattr(in_process, "_admitted", {})
    messages = [{"role": "user", "content": "hi"}]

    def render(units, times=1, text_bytes=1000):
        with renderer.without_child(units, text_bytes):
            for _ in range(times):
                renderer.render_chat(CHATML, messages, variables={}, may_run_here=True)

    with pytest.raises(renderer.ChildNeededError):
        render(1 << 17)
    assert not in_process._admitted
    render(None)
    render(1 << 17)
    with pytest.raises(renderer.ChildNeededError):
        render(1 << 17, times=1000, text_bytes=1 << 20)  # all of them together
    n_bytes = len(renderer.render_chat(CHATML, messages, variables={}, may_run_here=True).text)
    render(1 << 17, times=2, text_bytes=2 * n_bytes)
    with pytest.raises(renderer.ChildNeededError):
        render(1 << 17, times=2, text_bytes=2 * n_bytes - 1)
