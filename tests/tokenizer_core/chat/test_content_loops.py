"""Which templates read the parts of a message's content."""

from __future__ import annotations

import pytest

from tokenizer_core.chat.content_loops import loops_over_content


def turn(body: str) -> str:
    return "{% for m in messages %}" + body + "{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        turn("{% for part in m.content %}{{ part.text }}{% endfor %}"),
        turn("{% for part in m['content'] %}{{ part.text }}{% endfor %}"),
        turn("{% for part in m.content | list %}{{ part.text }}{% endfor %}"),
        turn("{% for part in m.content[1:] %}{{ part.text }}{% endfor %}"),
        turn("{% set content = m.content %}{% for p in content %}{{ p.text }}{% endfor %}"),
        "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{{ p }}"
        "{% endfor %}{% endfor %}",
        "{% macro show(parts) %}{% for p in parts %}{{ p.text }}{% endfor %}{% endmacro %}"
        + turn("{{ show(m.content) }}"),
        "{% macro show(parts) %}{% for p in parts %}{{ p.text }}{% endfor %}{% endmacro %}"
        + turn("{{ show(parts=m.content) }}"),
        turn("{% generation %}{% for p in m.content %}{{ p }}{% endfor %}{% endgeneration %}"),
    ],
)
def test_loops_over_content_are_found(source: str) -> None:
    assert loops_over_content(source)


@pytest.mark.parametrize(
    "source",
    [
        turn("{{ m.content }}"),
        turn("{% for call in m.tool_calls %}{{ call.function.name }}{% endfor %}"),
        turn("{% for x in other.content %}{{ x }}{% endfor %}"),
        "{% for t in tools %}{% for x in t.content %}{{ x }}{% endfor %}{% endfor %}",
        "{% macro show(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}"
        + turn("{{ show(m.tool_calls) }}"),
        "{% for %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
)
def test_other_loops_are_not_over_content(source: str) -> None:
    assert not loops_over_content(source)
