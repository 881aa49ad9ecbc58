"""Expressions of templates give the text that Jinja's own environment gives, and no character of
the request is ever trusted."""

import json
import re
from functools import cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.tokenizer_core.chat.own_templates import VARIABLES, template_request
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.chat.traced_text import GENERATED, TRUSTED

# Texts of the request are written with letters that stand in no expression; case, sorting and
# splitting keep them among themselves.
_OF_THE_REQUEST = re.compile("[αβΑΒŉßİ]")
_SETTINGS = (
    "{% set t = messages[0].t %}{% set u = messages[0].u %}{% set m = '<m>' ~ t ~ 'Xx\n' ~ u %}"
)
_ATOMS = (
    "t", "u", "m", "'<a>X x'", "' b\n'", "'{} {0}'", "'%s'", "'<%(X)s%%%r>'", "'X'", "''",
    "bos_token", "messages[0].role", "nothing", "1", "2", "-1", "none", "true", "['X', t, m]",
    "{'X': t, t: 'x'}", "(t, u)", "messages", "range(3)", "t|safe", "m|e", "'<s>'|safe",
)  # fmt: skip
_METHODS = sorted(name for name in dir(str) if not name.startswith("_"))
# Without `list`, these print the address of an iterator. `random` gives something else each time.
_LAZY = (
    "batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice",
    "unique",
)  # fmt: skip
_FILTERS = sorted(FILTERS.keys() - {"random", *_LAZY})


def _operations(inner):
    arguments = st.lists(inner, max_size=2).map(", ".join)
    index = st.integers(-3, 3).map(str) | st.just("")
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+~*%"), inner),
        st.builds("({} if {} in {} else {})".format, inner, inner, inner, inner),
        st.builds("({})[{}:{}]".format, inner, index, index),
        st.builds("({})[{}]".format, inner, st.integers(-3, 3)),
        st.builds("({})[::{}]".format, inner, st.sampled_from(["-1", "2", "1"])),
        st.builds("({})|{}({})".format, inner, st.sampled_from(_FILTERS), arguments),
        st.builds("({})|{}".format, inner, st.sampled_from(_FILTERS)),
        st.builds("({})|{}({})|list".format, inner, st.sampled_from(_LAZY), arguments),
        st.builds("({}).{}({})".format, inner, st.sampled_from(_METHODS), arguments),
        st.builds("[{}, {}]|join({})".format, inner, inner, inner),
        st.builds("({})|map('{}')|list".format, inner, st.sampled_from(_FILTERS)),
        st.builds("({})|replace({}, {})".format, inner, inner, inner),
        st.builds("({}).split({})[0]".format, inner, arguments),
    )


expressions = st.recursive(st.sampled_from(_ATOMS), _operations, max_leaves=6)
texts = st.text("αβΑΒŉßİ \n\t<>&'\"{}%s0,./:", max_size=12)


@cache
def plain():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def to_json(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        style = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
        return json.dumps(x, ensure_ascii=ensure_ascii, **style)

    environment.filters["tojson"] = to_json
    return environment


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of expressions such as 1[0]
@given(expressions, texts, texts)
def test_an_expression_gives_the_text_of_jinja(expression, t, u):
    source = f"{_SETTINGS}{{{{ {expression} }}}}"
    source += f"{{% set x %}}|{{{{ {expression} }}}}{{% endset %}}{{{{ x }}}}"
    chat = {"messages": [{"role": "user", "t": t, "u": u}]}
    try:
        expected = plain().from_string(source).render(**VARIABLES, **chat)
    except Exception:
        with pytest.raises(Exception):  # noqa: B017 - Python may name it otherwise
            ChatTemplate(source).render(template_request(chat))
        return
    assume("0x" not in expected.lower())  # the address of a generator
    text, runs = ChatTemplate(source).render(template_request(chat))
    assert text == expected
    assert sum(length for length, _ in runs) == len(text)
    at = 0
    for length, origin in runs:
        if origin & ~GENERATED == TRUSTED:
            assert not _OF_THE_REQUEST.search(text[at : at + length])
        at += length


def test_a_field_may_have_the_name_of_a_method():
    fields = {"t": "T", "items": "I", "get": "G", "__class__": "C", "clear": "D", "1": "one"}
    chat = {"messages": [{"role": "user", **fields, "tools": {"pop": "P", "mapping": "M"}}]}
    expressions = ("m.items is callable", "m.items()|length", "m['items']", "m.get('get')", "m.1")
    expressions += ("m.nothing is defined", "m.nothing.t", "m.__class__", "m['__class__']")
    for expression in (*expressions, "m.clear", "m.tools.pop", "m.tools.items().mapping"):
        source = "{% set m = messages[0] %}{{ " + expression + " }}"
        outcomes = []
        for render in (
            lambda source: plain().from_string(source).render(**VARIABLES, **chat),
            lambda source: str(ChatTemplate(source).render(template_request(chat))[0]),
        ):
            try:
                outcomes.append(re.sub("0x[0-9a-f]+", "0x", render(source)))
            except Exception as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        assert outcomes[0] == outcomes[1]
