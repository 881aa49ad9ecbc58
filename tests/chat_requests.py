"""Chat requests made from a seed: what clients send, and what they should not."""

import json
import random

_TEXTS = [
    "", " ", "\n", "Hello, how are you?", "  spaces around  ", "line one\nline two\n\n\tline four",
    "Привет, как дела?", "你好，世界。", "こんにちは", "안녕하세요",
    "مرحبا بالعالم", "שלום", "नमस्ते", "สวัสดี",
    "Ça va? Ĳ ß ŉ ﬁ", "e\u0301 A\u030a \u1ac0", "👩‍👩‍👧 👍🏽 🇩🇪", "\u200b\ufeff\u2028\u2029\x85",
    "\x00\x07\x1b",
    "{{ messages }} {% raise %} {# no #}", "%s %d {0} {name} {}", "<b>&amp;\"'</b>", "a\\nb\\\\c",
    "<think>Let me see.\n</think>\n\nFour.", "</think>", "a</think>b</think>c", "<think>open",
    "[INST] no [/INST]", "user\nassistant:", "0", "None", "true", "1e5", "x" * 400, "\r\n\r\n",
    "ß" * 20 + "İ", "'quoted' \"twice\"", "```python\nprint(1)\n```", "=" * 12,
]  # fmt: skip
_VALUES = [
    0, 1, -7, 2.5, 1e20, True, False, None, "", "Zürich", "東京", "a\"b'c\\d\n", [],
    [1, "two", None], {}, {"deep": {"er": [{"x": 1}, {}]}},
]  # fmt: skip
_SCHEMAS = [
    {"type": "string", "description": "Where — in “words”", "enum": ["north", "süd"]},
    {"type": "integer", "description": "How many", "default": 3, "minimum": 1},
    {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
    {"type": ["string", "null"], "description": "May be absent"},
    {"oneOf": [{"type": "string", "description": "one"}, {"type": "number", "nullable": True}]},
    {},
]
_NAMES = ["get_weather", "search", "calc.add", "read-file", "werkzeug_ü"]
_TOOL = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
_KWARGS = [
    ("enable_thinking", True),
    ("enable_thinking", False),
    ("thinking", True),
    ("reasoning_effort", "low"),
    ("date_string", "26 Jul 2024"),
    ("custom_tools", [_TOOL]),
    ("builtin_tools", ["browser", "python"]),
    ("tools_in_user_message", False),
    ("model_identity", "Ich bin's."),
    ("unknown_variable", None),
]


def chat_requests(seed, count):
    """Keyword arguments of `apply_chat_template`: messages and what goes with them."""
    for index in range(count):
        yield _Maker(random.Random(f"{seed}:{index}")).request()


class _Maker:
    def __init__(self, rng):
        self.rng = rng
        self.odd = rng.random() < 0.12
        self.plain = rng.random() < 0.4
        self.alternating = self.plain or rng.random() < 0.6
        self.parts = rng.choices((0.0, 0.3, 1.0), (6, 2, 2))[0]

    def chance(self, p):
        return self.rng.random() < p

    def request(self):
        rng = self.rng
        request = {"messages": self.messages()}
        final = request["messages"][-1]
        if self.chance(0.25) and final.get("content"):
            request["continue_final_message"] = True
        elif self.chance(0.05) and "reasoning_content" in final:
            request["continue_final_message"] = "reasoning_content"
        else:
            request["add_generation_prompt"] = self.chance(0.6)
        if not self.plain and self.chance(0.6):
            request["tools"] = [self.tool(name) for name in rng.sample(_NAMES, rng.randint(0, 3))]
        if not self.plain and self.chance(0.1):
            document = {"title": self.text(), "text": self.text()}
            request["documents"] = [document] * rng.randint(0, 2)
        if self.chance(0.4):
            request["kwargs"] = dict(rng.sample(_KWARGS, 2))
        return request

    def text(self):
        if self.chance(0.5):
            return self.rng.choice(_TEXTS[3:16])
        return "".join(self.rng.choices(_TEXTS, k=self.rng.randint(1, 3)))

    def content(self):
        rng = self.rng
        if self.odd and self.chance(0.15):
            return rng.choice([None, 5, 1.5, True, {}, [], ["text"], {"type": "text", "text": "t"}])
        if not self.chance(self.parts):
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(rng.randint(0, 3))]
        if self.chance(0.2):
            kind = rng.choice(({"type": "image"}, {"type": "image_url"}, {"type": "video"}))
            parts.insert(rng.randint(0, len(parts)), kind)
        return parts

    def messages(self):
        rng = self.rng
        messages = []
        if self.chance(0.45):
            role = "developer" if self.chance(0.1) else "system"
            messages.append({"role": role, "content": self.content()})
        n_turns = rng.choice((1, 1, 1, 2, 2, 3, 4))
        for turn in range(n_turns):
            messages.append({"role": "user", "content": self.content()})
            replied = turn + 1 < n_turns if self.alternating else self.chance(0.75)
            if replied or self.chance(0.5):
                messages += self.reply()
        if self.odd:
            self.spoil(messages)
        return messages

    def reply(self):
        rng = self.rng
        answer = {"role": "assistant", "content": self.content()}
        if self.chance(0.2):
            answer[rng.choice(("reasoning_content", "thinking", "reasoning"))] = self.text()
        if self.plain or self.chance(0.6):
            return [answer]
        calls = [self.call() for _ in range(rng.choice((1, 1, 2)))]
        asking = {"role": "assistant", "tool_calls": calls}
        if self.chance(0.8):
            asking["content"] = rng.choice(("", None, self.text()))
        if self.chance(0.3):
            asking["reasoning_content"] = self.text()
        results = [self.result(call) for call in calls]
        return [asking, *results, answer] if self.chance(0.8) else [asking, *results]

    def call(self):
        rng = self.rng
        keys = rng.sample(("city", "n", "größe", "x y"), rng.randint(0, 3))
        arguments = {key: rng.choice(_VALUES) for key in keys}
        if self.chance(0.3):
            arguments = json.dumps(arguments, ensure_ascii=self.chance(0.5))
        function = {"name": rng.choice(_NAMES), "arguments": arguments}
        if self.chance(0.1):
            return function
        call = {"type": "function", "function": function}
        if self.chance(0.7):
            call["id"] = rng.choice(("call_1", "abcdef123", "functions.search:0", "00000000Z"))
        return call

    def result(self, call):
        rng = self.rng
        data = rng.choice(_VALUES)
        as_json, parts = json.dumps(data, ensure_ascii=False), [{"type": "text", "text": "Sun"}]
        content = rng.choice((self.text(), self.text(), as_json, data if self.odd else parts))
        result = {"role": "tool", "content": content}
        if "id" in call:
            result["tool_call_id"] = call["id"]
        if self.chance(0.6):
            result["name"] = call.get("function", call)["name"]
        return result

    def tool(self, name):
        rng = self.rng
        names = rng.sample(("city", "unit", "days", "größe", "opts"), rng.randint(0, 4))
        properties = {key: rng.choice(_SCHEMAS) for key in names}
        parameters = {"type": "object", "properties": properties}
        if self.chance(0.7):
            parameters["required"] = names[: rng.randint(0, len(names))]
        function = {"name": name, "parameters": parameters}
        if self.chance(0.9):
            function["description"] = self.text()
        if self.chance(0.1):
            function |= {"strict": True, "return": {"type": "string", "description": "Result"}}
        return (
            function
            if self.odd and self.chance(0.3)
            else {"type": "function", "function": function}
        )

    def spoil(self, messages):
        """Change one message, or their order, into what no client should send."""
        rng = self.rng
        message = rng.choice(messages)
        changes = [
            {"role": rng.choice(("Assistant", "ipython", "", "函数", 5, None, ["user"]))},
            {"tool_calls": rng.choice(([], None, [{}], "text"))},
            {"name": self.text(), "extra": rng.choice(_VALUES)},
        ]
        message |= rng.choice(changes)
        if self.chance(0.2):
            message.pop(rng.choice(("role", "content")), None)
        if self.chance(0.2):
            messages.append(dict(message))
        if self.chance(0.2):
            messages.reverse()


def map_texts(value, change, *, keys=False):
    """A copy of plain data with every text changed, and with `keys` one more key in each object."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {key: map_texts(item, change, keys=keys) for key, item in value.items()}
        return changed | {change("more"): change("value")} if keys else changed
    if isinstance(value, list):
        return [map_texts(item, change, keys=keys) for item in value]
    return value
