"""Rendering in child processes: results, errors, and the limits of memory, time and output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from tokenizer_core.chat.renderer import render_chat
from tokenizer_core.errors import ChatInputError, ChatTemplateError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MESSAGES = [
    {"role": "user", "content": "h\u00e9 \U0001f600"},
    {"role": "assistant", "content": "yo"},
]


def render(template: str = CHATML, messages: Any = MESSAGES, **options: Any) -> Any:
    return render_chat(template, messages, variables=options.pop("variables", {}), **options)


def test_text_segments_and_spans() -> None:
    chat = render(add_generation_prompt=True, with_turn_borders=True)
    assert chat.text == "".join(text for text, _ in chat.segments)
    assert chat.segments == [
        ("<|im_start|>user\n", True),
        ("h\u00e9 \U0001f600", False),
        ("<|im_end|>\n<|im_start|>assistant\n", True),
        ("yo", False),
        ("<|im_end|>\n<|im_start|>assistant\n", True),
    ]
    assert chat.message_spans(3) == [(17, 21), (54, 56), None]
    assert (chat.before_turn, chat.after_turn) == ("<|im_start|>assistant\n", "<|im_end|>\n")
    assert chat.generated_spans == []


def test_generated_spans() -> None:
    chat = render("a{% generation %}b{{ messages[0].role }}{% endgeneration %}c")
    assert [chat.text[start:end] for start, end in chat.generated_spans] == ["buser"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system message') }}", "no system message"),
        ("\n\n{{ x.y.z }}", r"'x' is undefined \(line 3 of the template\)"),
        ("\n{% if %}", r"line 2 of the template"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% include 'x' %}", "no loader"),
        ("{{ messages[0].content + 1 }}", r"concatenate str|for \+: 'str' and 'int'"),
        ("{{ messages[0].content.x.y }}", "'str' has no|'str object' has no attribute 'x'"),
        ("{{ '\ud800' }}", "lone surrogate"),
    ],
)
def test_a_failing_template_says_where(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render(template)


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([], {}, "at least one message"),
        ("hi", {}, "must be a list"),
        ({"role": "user"}, {}, "must be a list"),
        (["hi"], {}, r"messages\[0\] is str"),
        ([{"role": "user", "content": "\ud800"}], {}, "lone surrogate"),
        ([{"role": "user", "content": object()}], {}, "plain data"),
        (MESSAGES, {"tools": "x"}, "tools must be a list"),
        (MESSAGES, {"tools": ["x"]}, r"tools\[0\] is str: it must be an object"),
        (MESSAGES, {"documents": [{}, None]}, r"documents\[1\] is NoneType: it must be an object"),
        (MESSAGES, {"kwargs": {"tools": []}}, "argument of its own"),
        (MESSAGES, {"add_generation_prompt": True, "continue_final_message": True}, "exclude"),
    ],
)
def test_bad_input_names_the_remedy(messages: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ChatInputError, match=message):
        render(messages=messages, **options)


def test_threads_get_their_own_results() -> None:
    results: dict[int, str] = {}

    def run(number: int) -> None:
        for _ in range(3):
            message = [{"role": "user", "content": f"number {number} " * 1000}]
            results[number] = render("{{ messages[0].content }}", message).text

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"number {number} " * 1000 for number in range(6)}


def test_templates_beyond_those_kept_are_sent_again() -> None:
    for number in (*range(20), *range(20)):
        assert render(f"{number}").text == str(number)


def test_a_killed_process_is_replaced() -> None:
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


def test_processes_do_not_see_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZER_ADMIN_KEYS", "secret")
    # In a fresh parent, so that its process starts with this environment.
    program = (
        "import glob, os\n"
        "from tokenizer_core.chat.renderer import render_chat\n"
        "render_chat('x', [{'role': 'user'}], variables={})\n"
        "children = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split()\n"
        "print(any(b'secret' in open(f'/proc/{c}/environ', 'rb').read() for c in children),\n"
        "      len(children))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == "False 1\n"
