"""Render and encode long conversations: this library beside `transformers`, in one run.

    .venv/bin/python benchmarks/chat_speed.py qwen3 chat_template.jinja en_reuters_news

Each conversation has messages of 20 to 400 words from the text, and about 38,000 tokens. Both
libraries do all of a request, from the messages to the ids, and take turns. *new* is the time for
conversations that they have not seen, *again* the best time for those that they have. The exit
status is 1 if the ids differ. transformers runs in a process of its own, from `.venv/transformers`,
which `make test-integration` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}


def conversations(text: str, count: int, tokenizer: Any, n_tokens: int) -> list[Any]:
    """Conversations of about that many tokens, from parts of the text that do not overlap."""
    words = text.split(" ")
    sample = " ".join(words[-2000:])
    n_words = int(n_tokens * 2000 / len(tokenizer.encode(sample)))
    if len(words) < n_words * count:
        sys.exit(
            f"the text has {len(words):,} words; {count} conversations need {n_words * count:,}"
        )
    rng = random.Random(26)
    result = []
    for start in range(0, n_words * count, n_words):
        messages = [{"role": "system", "content": "You are a helpful assistant."}]
        at, end = start, start + n_words
        while at < end:
            size = min(rng.randint(20, 400), end - at)
            role = "user" if len(messages) % 2 else "assistant"
            messages.append({"role": role, "content": " ".join(words[at : at + size])})
            at += size
        result.append(messages)
    return result


def seconds_of(action: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action(*arguments, **options)
    return time.perf_counter() - start


def best(count: int, action: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    """The shortest time of that many calls."""
    return min(seconds_of(action, *arguments, **options) for _ in range(count))


def serve_transformers(vocabulary: str, template: str) -> None:
    """Answer each line, a request, with the shortest times and the ids of transformers."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=vocabulary)
    source = Path(template).read_text(encoding="utf-8")

    def apply(messages: Any, **options: Any) -> Any:
        return tokenizer.apply_chat_template(
            messages, chat_template=source, return_dict=False, **VARIABLES, **options
        )

    apply([{"role": "user", "content": "hi"}])
    for line in sys.stdin:
        messages = json.loads(line)
        new = seconds_of(apply, messages)
        again = best(3, apply, messages)
        render = best(10, apply, messages, tokenize=False)
        print(json.dumps([[new, again, render], apply(messages)]), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vocabulary", help="a tokenizer.json")
    parser.add_argument("template", help="a chat template")
    parser.add_argument("text", nargs="?", help="a text of some megabytes")
    parser.add_argument("--tokens", type=int, default=38_000)
    parser.add_argument("--conversations", type=int, default=15)
    if len(sys.argv) == 3:  # beside transformers, where this project is not
        arguments = parser.parse_args()
        serve_transformers(arguments.vocabulary, arguments.template)
        return

    from corpora import label, text_path, vocab_path
    from figures import Table, add_json_option, report

    add_json_option(parser)
    arguments = parser.parse_args()
    from tokenizer_core import Tokenizer

    source = Path(arguments.template).read_text(encoding="utf-8")
    vocabulary = vocab_path(arguments.vocabulary)
    tokenizer = Tokenizer.from_tokenizer_json(vocabulary)
    tokenizer = tokenizer.with_chat_templates({"default": source}, variables=VARIABLES)
    text = text_path(arguments.text).read_text(encoding="utf-8", errors="replace")
    for token in tokenizer.special_tokens:  # to transformers it is one in messages, too
        text = text.replace(token, "")
    chats = conversations(text, arguments.conversations, tokenizer, arguments.tokens)
    tokenizer.encode_chat(chats[0][:2])
    theirs = subprocess.Popen(
        [sys.executable, __file__, str(vocabulary), arguments.template],
        env=os.environ | {"PYTHONPATH": str(Path(sys.prefix) / "transformers")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert theirs.stdin is not None
    assert theirs.stdout is not None
    rows: list[tuple[list[float], list[float]]] = []
    n_tokens: list[int] = []
    for messages in chats:
        new = seconds_of(tokenizer.encode_chat, messages)
        again = best(10, tokenizer.encode_chat, messages)
        render = best(10, tokenizer.render_chat, messages)
        print(json.dumps(messages), file=theirs.stdin, flush=True)
        their_times, ids = json.loads(theirs.stdout.readline())
        if ids != tokenizer.encode_chat(messages).ids.tolist():
            sys.exit("the ids differ")
        rows.append(([new, again, render], their_times))
        n_tokens.append(len(ids))
    theirs.stdin.close()
    found: list[Any] = []
    for index in range(3):
        mine, other = (1e3 * statistics.median(row[side][index] for row in rows) for side in (0, 1))
        found += [mine, other, other / mine]
    columns = [""]
    for name in ("new", "again", "again, render"):
        columns += [name, "transformers", "ratio"]
    note = f"{len(chats)} conversations of {statistics.median(n_tokens):,.0f} tokens, medians, ms"
    report([Table(columns, [[label(vocabulary), *found]])], arguments.json, note)


if __name__ == "__main__":
    main()
