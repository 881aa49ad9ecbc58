"""Chat templates and conversations for the tests of routes, and rendering in the tests' process."""

from collections import OrderedDict

import pytest

from tokenizer_core import TokenizerSpec
from tokenizer_core.chat import render_worker, renderer
from tokenizer_core.chat.template import ChatTemplate
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.chat_templates import ChatTemplates

START, END = "<|im_start|>", "<|im_end|>"
START_ID, END_ID = 256, 257

CHATML = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
{{- raise_exception('this template has no role ' + message.role) }}{% endif %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}
{{- '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is false %}{{ '<think></think>' }}{% endif %}{% endif %}"""

PARTS = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + ':' }}
{%- if message.role == 'system' and not loop.first %}{{ raise_exception('it is late') }}{% endif %}
{%- for part in message['content'] %}[{{ part.text }}]{% endfor %}{{ '<|im_end|>' }}{% endfor %}
{%- if reasoning_effort in ['none', 'max'] %}!{% endif %}"""

TAGGED = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message.content + '<|im_end|>' }}{% endif %}{% endfor %}"""

TEMPLATES = {
    "default": CHATML,
    "parts": PARTS,
    "tagged": TAGGED,
    "broken": "{{ messages.nothing.there }}",
}

SPEC = TokenizerSpec.from_merges(
    {byte: bytes([byte]) for byte in range(256)},
    [],
    [AddedToken(START, START_ID), AddedToken(END, END_ID)],
    prefix_ids=(END_ID,),
)
"""Single bytes, the two tokens of the templates, and one token that a post-processor adds."""


def with_templates(spec):
    return spec.with_chat(ChatTemplates(TEMPLATES))


def say(*contents):
    """Messages of the user and the assistant by turns."""
    roles = ("user", "assistant")
    return [
        {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
    ]


def chatml_ids(*turns, prompt=False):
    """The ids of these (role, content) in CHATML, with the tokenizer of single bytes."""
    ids = []
    for role, content in turns:
        ids += [START_ID, *f"{role}\n{content}".encode(), END_ID, *b"\n"]
    return [*ids, START_ID, *b"assistant\n"] if prompt else ids


class _HereWorker:
    """Renders in this process, without limits of memory and time."""

    is_alive = True

    def __init__(self, memory_bytes):
        self.memory_bytes = memory_bytes
        self._templates = OrderedDict()

    def ask(self, request, limits):
        return b"".join(render_worker._respond(request, self._templates, ChatTemplate))

    def kill(self):
        pass

    end = kill


@pytest.fixture
def rendering_here(monkeypatch):
    """Render templates in the process of the test; `tests/integration` has those with limits."""
    renderer.end_render_processes()
    monkeypatch.setattr(render_worker, "_set_alarm", lambda seconds: None)
    monkeypatch.setattr(renderer, "_Worker", _HereWorker)
    yield
    renderer.end_render_processes()
