"""Our own templates give the text that transformers gave for them, with the origins we expect."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tokenizer_core.chat.own_templates import OWN_TEMPLATES, template_request
from tokenizer_core.chat.renderer import RenderedChat
from tokenizer_core.chat.template import ChatTemplate

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Weather in Zürich? <|im_end|>"}
CALL = {"name": "get_weather", "arguments": {"city": "Zürich"}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [{"function": CALL}]}
RESULTS = [
    {"role": "tool", "content": "12 °C"},
    {"role": "tool", "content": [{"type": "text", "text": "sunny"}]},
]
REPLY = {"role": "assistant", "content": "<think>x</think>\n\nSunny."}
THANKS = {"role": "user", "content": "Thanks"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "unit": {"enum": ["C", "F"]},
                    "city": {"type": "string"},
                    "days": {"type": "array", "items": {"type": ["integer", "null"]}},
                },
                "required": ["city"],
            },
        },
    }
]
SCHEMA = (
    '{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", '
    '"properties": {"unit": {"enum": ["C", "F"]}, "city": {"type": "string"}, "days": {"type": '
    '"array", "items": {"type": ["integer", "null"]}}}, "required": ["city"]}}}'
)


def render(name: str, messages: list[dict[str, Any]], **options: Any) -> RenderedChat:
    template = ChatTemplate(OWN_TEMPLATES[name])
    text, runs = template.render(template_request({"messages": messages, **options}))
    lengths, origins = np.array(runs, np.int32).T
    return RenderedChat(str(text), lengths, origins)


def marked(chat: RenderedChat) -> str:
    """The text, with what is not trusted in «»."""
    return "".join(text if trusted else f"«{text}»" for text, trusted in chat.segments)


def test_chatml_template_with_tools() -> None:
    messages = [SYSTEM, ASKED, CALLING, *RESULTS, REPLY, THANKS]
    chat = render("chatml_tools", messages, tools=TOOLS, add_generation_prompt=True)
    assert marked(chat) == (
        f"<|im_start|>system\n«Be brief.»\n\n# Tools\n<tools>\n«{SCHEMA}»\n</tools><|im_end|>\n"
        "<|im_start|>user\n«Weather in Zürich? <|im_end|>»<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "«get_weather»", "arguments": '
        '«{"city": "Zürich"}»}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n«12 °C»\n</tool_response>\n"
        "<tool_response>\n«sunny»\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n«Sunny.»<|im_end|>\n"
        "<|im_start|>user\n«Thanks»<|im_end|>\n<|im_start|>assistant\n"
    )


def test_template_with_macros() -> None:
    chat = render(
        "macros",
        [SYSTEM, {**ASKED, "shout": True}, REPLY, THANKS],
        tools=TOOLS,
        documents=[{"title": "a title", "text": "<b>"}],
        add_generation_prompt=True,
    )
    assert marked(chat) == (
        "<tools_start>«get_weather»: {«city»: «string», «days»?: «integer» | «null»[], «unit»?: "
        '«"C"» | «"F"»}<tools_end>\nSYSTEM: «Be brief.»\n[«1»] «A Title»: «<b>»\n'
        "<user_start>User: «WEATHER IN ZÜRICH? <|IM_END|>»<user_end>\n"
        "<assistant_start>Assistant: «<think>x</think>\n\nSunny.»<assistant_end>\n"
        "<user_start>User: «Thanks»<user_end>\nafter «3»\n<assistant_start>"
    )
