"""Compare the encoding of conversations with plain Jinja, and with `transformers`.

    .venv/bin/python benchmarks/chat_template.py --vocab qwen3 --text code_py_js_rs

The conversations are of two short messages and of 141 with code. Templates are the two below, or
files: `--template FILE`. The contenders take turns in one process. A figure is the least of the
rounds, in processor time of the thread, so that other load on the machine counts less; with a child
process it is the time that passes. `PYTHONPATH` may name a folder with transformers, whose ids must
be ours.
"""

import argparse
import json
import re
import time
from functools import partial
from pathlib import Path

from corpora import REPOSITORY, label, text_path, vocab_path
from figures import NOT_INSTALLED, Table, make_parser, report
from jinja2 import ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenizer_core import Tokenizer

SHORT = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LONG = REPOSITORY / "tests" / "tokenizer_core" / "chat" / "templates" / "chatml_tools.jinja"
ROLES = ("user", "assistant")


def conversations(text):
    def chat(n_messages, n_chars):
        parts = [text[at * n_chars :][:n_chars] for at in range(n_messages)]
        return [{"role": ROLES[at % 2], "content": part} for at, part in enumerate(parts)]

    return {"2 messages": chat(2, 60), "141 messages": chat(141, 2150)}


def plain_jinja(source):
    """The template as transformers compiles it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source)


def transformers_encoder(file, source):
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError:
        return None
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    tokenizer.chat_template = source
    return lambda messages: tokenizer.apply_chat_template(messages)["input_ids"]


def least(calls, rounds):
    """The least milliseconds of each call, in turns."""
    found = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, (clock, call) in enumerate(calls):
            started = clock()
            call()
            found[number] = min(found[number], 1000 * (clock() - started))
    return found


def measure(file, name, source, text, rounds):
    ours = Tokenizer.load(file).with_chat_templates({"default": source})
    template, theirs = plain_jinja(source), transformers_encoder(file, source)
    rows = []
    for size, chat in conversations(text).items():
        rendered = ours.render_chat(chat)
        ids = ours.encode_chat(chat).ids.tolist()
        if theirs is not None and theirs(chat) != ids:
            raise SystemExit(f"{name}: the ids of transformers differ")
        here = [
            lambda chat=chat: template.render(messages=chat),
            lambda rendered=rendered: ours.encode_to_numpy(rendered.text),
            lambda chat=chat: ours.render_chat(chat),
            lambda chat=chat: ours.encode_chat(chat),
            *([lambda chat=chat: theirs(chat)] if theirs else []),
        ]
        calls = [(time.thread_time, call) for call in here]
        in_child = partial(ours.encode_chat, chat, chat_template=source)
        calls.append((time.perf_counter, in_child))
        jinja, encode, render, whole, *rest, child = least(calls, rounds)
        peer = rest[0] if rest else NOT_INSTALLED
        ratio = whole / (jinja + encode)
        rows.append([f"{name}, {size}", len(ids), jinja, encode, render, whole, child, peer, ratio])
    return rows


def main():
    parser = make_parser(__doc__, rounds=200)
    parser.add_argument("--vocab", type=vocab_path, required=True, help="a tokenizer.json")
    parser.add_argument("--text", type=text_path, required=True)
    parser.add_argument("--template", type=argparse.FileType(encoding="utf-8"), action="append")
    options = parser.parse_args()
    templates = {"short template": SHORT, "template with tools": LONG.read_text(encoding="utf-8")}
    if options.template:
        templates = {Path(file.name).stem: file.read() for file in options.template}
    # To transformers, a control token in a message is one.
    text = re.sub(r"<\|\w*\|>", "", options.text.read_text(encoding="utf-8")[:400_000])
    columns = [
        "template and conversation", "ids", "plain Jinja", "`encode`", "`render_chat`",
        "`encode_chat`", "in a child process", "transformers", "`encode_chat` / (Jinja + `encode`)",
    ]  # fmt: skip
    rows = [
        row
        for name, source in templates.items()
        for row in measure(options.vocab, name, source, text, options.rounds)
    ]
    note = f"{label(options.vocab)}, {label(options.text)}. The least of {options.rounds} rounds"
    report([Table(columns, rows)], options.json, note)


if __name__ == "__main__":
    main()
