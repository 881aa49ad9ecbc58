"""No filter, method, test or operator of a template makes text of the request trusted, and every
operation on traced text gives what `str` gives, each character with the origin that it had.

Templates here write their literal text in one set of characters, and requests come in another.
A trusted character of the second set came from the request. Every filter, test and public method
that exists is tried, so that a new one of Jinja or Python is tried too.
"""

import itertools
import struct

import pytest

from tests.tokenizer_core.chat.own_templates import template_request
from tokenizer_core.chat.render_worker import RESULT_HEADER, Status
from tokenizer_core.chat.renderer import RenderLimits, _read_response
from tokenizer_core.chat.template import ChatTemplate, TracingEnvironment
from tokenizer_core.chat.traced_text import FIRST_MESSAGE, GENERATED, TRUSTED
from tokenizer_core.errors import WorkerProcessError

REQUESTED = "Жщŉ★ж\nЩ&<0"  # in capitals it is longer
LITERAL = frozenset("tTsS_|{}% Bb")
"""What templates here write, in both cases."""

VALUES = [
    "m.content",
    "'tT' ~ m.content ~ '_|'",
    "[m.content, 'tT', m.content ~ 't']",
    "{'t': m.content, m.content: 'T'}",
    "tools",
    "bos_token",
    "('t' ~ m.content)|safe",
    "2",
    "'{t}{}%s'",
    "kw",
]
ARGUMENTS = [0, 1, 5, 7]
"""Of VALUES."""

VALUE = (
    "{% set m = messages[0] %}{% set v = [" + ", ".join(VALUES) + "] %}{% set literal = 'tT_|' %}"
)
STATEMENTS = {
    "for": "{% for x in v[i] %}{{ x }}{{ loop.cycle(v[j], x) }}{{ loop.previtem }}{% endfor %}",
    "macro": (
        "{% macro f(a, b=v[j]) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}"
        "{% endmacro %}{{ f(v[i]) }}{{ f(v[i], v[j], v[i], t=v[j]) }}"
        "{% call f(v[j]) %}{{ v[i] }}{% endcall %}"
    ),
    "set": (
        "{% set x %}t{{ v[i] }}{% endset %}{% set y | upper %}{{ v[j] }}t{{ x }}{% endset %}"
        "{{ x }}{{ y }}"
    ),
    "namespace": (
        "{% set ns = namespace(a=v[i]) %}{% set ns.b = ns.a ~ v[j] %}{{ ns.a }}{{ ns.b }}{{ ns }}"
    ),
    "dict": "{% set d = dict(t=v[i]) %}{{ d }}{{ d.t }}{{ dict.fromkeys(v[i], v[j]) }}",
    "autoescape": (
        "{% autoescape true %}t{{ v[i] }}{{ v[i] ~ v[j] }}{% set x %}{{ v[i] }}t{% endset %}"
        "{{ x }}{{ x ~ 't' }}{% endautoescape %}"
    ),
    "generation": "{% generation %}t{{ v[i] }}{% endgeneration %}{{ v[j] }}",
    "globals": (
        "{% set a = joiner(v[i]) %}{{ a() }}{{ a() }}{% set c = cycler(v[i], v[j]) %}"
        "{{ c.next() }}{{ c.next() }}"
    ),
    "fill": "{% filter indent(2, true) %}{{ v[i] }}t{{ v[j] }}{% endfilter %}",
    "slices": "{{ v[i][::-1] }}{{ v[i][1:] }}{{ v[i][:-1] }}{{ v[i][0] }}{{ v[i][-1] }}",
    "format": (
        "{{ '{}{}'.format(v[i], v[j]) }}{{ '{1}t{0}'.format(v[i], v[j]) }}{{ '{!s}'.format(v[i]) }}"
        "{{ '%s' % v[i] }}{{ '%s%s' % (v[i], v[j]) }}{{ ('t{}'|safe).format(v[i]) }}"
        "{{ 't%sT'|format(v[i]) }}{{ '%(t)s%(t)s' % {'t': v[i]} }}{{ '%r%5s%%' % (v[i], v[j]) }}"
    ),
}


def request(content=REQUESTED, **kwargs):
    chat = {
        "messages": [{"content": content, "name": content}],
        "tools": [{"name": content}],
        "kwargs": {"kw": content, **kwargs},
    }
    return template_request(chat, {"bos_token": "B"})


def trusted_text(rendered):
    """The trusted characters of a rendered text."""
    text, runs = rendered
    assert sum(length for length, _ in runs) == len(text)
    origins = [origin & ~GENERATED for length, origin in runs for _ in range(length)]
    return "".join(c for c, origin in zip(text, origins, strict=True) if origin == TRUSTED)


def check(source, *indices):
    """Render with every choice of values; return how often the template did not refuse them."""
    template = ChatTemplate(VALUE + source)
    n_rendered = 0
    for choice in itertools.product(*indices):
        try:
            rendered = template.render(request(**dict(zip("ijk", choice, strict=False))))
        except Exception:  # the operation does not take these values
            continue
        wrong = set(trusted_text(rendered)) - LITERAL
        assert not wrong, (source, [VALUES[index] for index in choice])
        n_rendered += 1
    return n_rendered


ALL = range(len(VALUES))


def test_filters_never_make_the_request_trusted():
    for name in sorted(TracingEnvironment().filters):
        check(f"{{{{ v[i]|{name} }}}}", ALL)
        check(f"{{{{ v[i]|{name}(v[j]) }}}}", ALL, ARGUMENTS[:3])
        check(f"{{{{ v[i]|{name}(v[j], v[k]) }}}}", ALL, ARGUMENTS[:1], ARGUMENTS[2:])
        check(f"{{{{ v[i]|map('{name}')|join(v[j]) }}}}", ALL, ARGUMENTS[:2])
        check(f"{{% filter {name} %}}t{{{{ v[i] }}}}T{{% endfilter %}}", ALL)


@pytest.mark.parametrize("kind", [str, bytes, list, dict, int])
def test_methods_never_make_the_request_trusted(kind):
    others = set(dir(str)) if kind is not str else set()
    names = {name for name in dir(kind) if not name.startswith(("_", "is"))} - others
    for name in sorted(names):
        check(f"{{{{ v[i].{name}() }}}}", ALL)
        check(f"{{{{ v[i].{name}(v[j]) }}}}", ALL, ARGUMENTS[:3])
        check(f"{{{{ v[i].{name}(v[j], v[k]) }}}}", ALL, ARGUMENTS[:1], ARGUMENTS[2:])
        check(f"{{{{ v[i].{name}(v[j])|join('t') }}}}", ALL, ARGUMENTS[1:2])
        check(f"{{{{ v[i].{name}(t=v[j]) }}}}", ALL, ARGUMENTS[1:2])


def test_tests_and_operators_never_make_the_request_trusted():
    for name in filter(str.isidentifier, TracingEnvironment().tests):
        check(f"{{{{ v[i] is {name} }}}}{{{{ v[i]|select('{name}')|join }}}}", ALL)
    for operator in ("+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "and", "or", "in"):
        check(f"{{{{ v[i] {operator} v[j] }}}}", ALL, ALL)
        check(f"{{{{ (v[i] {operator} v[j])[1:] }}}}", ALL, ARGUMENTS)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_never_make_the_request_trusted(name):
    assert check(STATEMENTS[name], ALL, ARGUMENTS)


def test_arguments_of_format_are_not_confused():
    """A template that has the text of a message as a literal does not make it trusted."""
    for form in (
        "'{}'.format(m.content, **{'0': 'tT'})",
        "'{0}'.format(m.content, **{'0': 'tT'})",
        "'{00}'.format(m.content, **{'00': 'tT'})",
        "'{t[0]}'.format(t=[m.content], **{'t[0]': 'tT'})",
    ):
        template = ChatTemplate(VALUE + "{{ " + form + " }}")
        assert trusted_text(template.render(request("tT"))) == "", form
    template = ChatTemplate(VALUE + "{{ '{}_{0}{t}'.replace('{}', '{0}').format('t', t='T') }}")
    assert trusted_text(template.render(request())) == "t_tT"


@pytest.mark.parametrize(
    ("expression", "trusted"),
    [
        ("'t_%s_T' % m.content", "t__T"),
        ("'t%%%s' % m.content", "t%"),
        ("'t%(a)s%(b)s%(a)s' % {'a': bos_token, 'b': m.content}", "tBB"),
        ("'t%s|%s'|format(m.content, bos_token)", "t|B"),
        ("'t%dT' % messages|length", "tT"),  # a number may be of the request
        ("'t%*dT' % (messages|length, 1)", ""),
        ("m.content ~ '%s' % bos_token", "B"),
        ("m.content % bos_token", ""),
        ("('t' ~ m.content) % bos_token", ""),
    ],
)
def test_percent_keeps_origins(expression, trusted):
    template = ChatTemplate("{% set m = messages[0] %}{{ " + expression + " }}")
    for content in ("Ж", "%s", "tT") if trusted else ("%s",):
        assert trusted_text(template.render(request(content))) == trusted


def test_indented_line_breaks_of_the_request_stay_its_own():
    for options in ("2", "2, true", "2, true, true", "'T'"):
        template = ChatTemplate(VALUE + "{{ ('t' ~ m.content ~ 't')|indent(" + options + ") }}")
        for content in ("Ж\nЖ", "\n\n", "Ж\r\nЖ\u2028Ж", "\n"):
            found = trusted_text(template.render(request(content)))
            assert found.translate({ord(" "): "", ord("T"): ""}) == "tt"
        template = ChatTemplate(VALUE + "{{ 't\\nt\\n'|indent(" + options + ") }}")
        assert trusted_text(template.render(request())).count("\n") == 2


def test_origins_that_do_not_fit_the_text_are_refused():
    """Shifted origins would trust other characters."""
    origins = struct.pack("<2i", FIRST_MESSAGE, TRUSTED)
    for lengths, is_right in (((2, 1), True), ((2, 2), False), ((1, 1), False)):
        header = RESULT_HEADER.pack(2, 2)
        response = (
            Status.RESULT + header + struct.pack("<2i", *lengths) + origins + "{}été".encode()
        )
        if is_right:
            assert _read_response(response, RenderLimits()).text == "été"
        else:
            with pytest.raises(WorkerProcessError, match="report the template"):
                _read_response(response, RenderLimits())
