"""Compare rendered conversations per second with ten lines of FastAPI over transformers.

    .venv/bin/python benchmarks/compare_render.py --vocab qwen3 code_py_js_rs

Both servers run one process on one processor, another process on another processor sends the
requests to `/v1/chat/completions/render`. The large conversations have 141 messages of about 500
tokens, the small ones two of 60 characters; all are distinct. The table has medians of the rounds,
each with fresh servers. The exit status is 1 if the ids differ.

*large*: large conversations per second over 2 connections. *small*: the 99th percentile in
milliseconds of small conversations, 20 a second; *beside*: the same while large conversations come
over one more connection, each after the response to the one before.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from chat_template import SHORT, conversations
from compare_http import HERE, free_port, put_load, serving
from corpora import REPOSITORY, text_path, vocab_path
from figures import Table, make_parser, report

PATH = "/v1/chat/completions/render"
LARGE_CHARS = 141 * 2150
N_LARGE, N_SMALL = 40, 400
SMALL_PER_SECOND = 20.0


def write_bodies(text, folder):
    """The files of large and small requests, and the ids of the first request of each."""
    found = {}
    sizes = ("141 messages", LARGE_CHARS, N_LARGE), ("2 messages", 120, N_SMALL)
    for name, n_chars, n_most in sizes:
        starts = range(0, len(text) - n_chars, n_chars)[:n_most]
        chats = [conversations(text[start : start + n_chars])[name] for start in starts]
        found[name] = folder / name.replace(" ", "-")
        lines = [json.dumps({"messages": chat}, ensure_ascii=False) for chat in chats]
        found[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


def ask(port, body):
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{port}{PATH}"
    answer = httpx.post(url, content=body, headers=headers, timeout=60)
    return answer.raise_for_status().json()["token_ids"]


@contextlib.contextmanager
def both(vocab, folder):
    """Start both servers; yield their ports by name."""
    template, artifacts = folder / "chat.jinja", folder / "artifacts"
    template.write_text(SHORT, encoding="utf-8")
    ours = [sys.executable, "-m", "tokenizer_service.cli"]
    environment = {**os.environ, "TOKENIZER_ARTIFACTS_DIR": str(artifacts)}
    if not artifacts.exists():
        options = ["--name", "chat", "--chat-template", str(template), "--promote"]
        command = [*ours, "import", str(vocab), *options]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    theirs = [sys.executable, "-m", "uvicorn", "ten_line_renderer:app", "--app-dir", str(HERE)]
    theirs += ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    files = {"TOKENIZER_FILE": str(vocab), "CHAT_TEMPLATE": str(template)}
    packages = {"PYTHONPATH": str(REPOSITORY / ".venv" / "transformers")}
    ports = {"this service": free_port(), "ten lines": free_port()}
    our_port, their_port = ports.values()
    body = json.dumps({"messages": [{"role": "user", "content": "a"}]})
    with (
        serving([*ours, "serve", "--port", str(our_port)], our_port, environment, body, ask),
        serving(
            [*theirs, "--port", str(their_port)],
            their_port, {**os.environ, **files, **packages}, body, ask,
        ),
    ):  # fmt: skip
        yield ports


def measure_round(port, large, small, seconds):
    """Conversations per second, and two 99th percentiles in milliseconds."""
    of_large = {"path": PATH, "n_connections": 2}
    of_small = {"path": PATH, "n_connections": 8, "requests_per_second": SMALL_PER_SECOND}
    found = put_load(port, large, seconds, **of_large)
    alone = put_load(port, small, seconds, **of_small)
    with ThreadPoolExecutor() as pool:
        pool.submit(put_load, port, large, seconds + 1, path=PATH, n_connections=1)
        beside = pool.submit(put_load, port, small, seconds, **of_small).result()
    return {
        "large": found["n_requests"] / found["seconds"],
        "small": alone["p99_milliseconds"],
        "beside": beside["p99_milliseconds"],
    }


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--vocab", type=vocab_path, required=True, help="a tokenizer.json")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("text", type=text_path)
    options = parser.parse_args()
    found = {}
    n_tokens = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = options.text.read_text(encoding="utf-8")
        # What a user types is text here, and the token in transformers.
        bodies = write_bodies(text.replace("<|endoftext|>", ""), folder)
        large, small = bodies.values()
        for _ in range(options.rounds):
            with both(options.vocab, folder) as ports:
                for file in large, small:
                    body = file.read_bytes().splitlines()[0]
                    ids, theirs = (ask(port, body) for port in ports.values())
                    if ids != theirs:
                        raise SystemExit("the services answer with different ids")
                    n_tokens = max(n_tokens, len(ids))
                for server, port in ports.items():
                    for what, value in measure_round(port, large, small, options.seconds).items():
                        found.setdefault(what, {}).setdefault(server, []).append(value)
    names = {
        "large": f"conversations of about {n_tokens:,} tokens a second and processor",
        "small": f"99th percentile of small ones, {SMALL_PER_SECOND:.0f} a second, ms",
        "beside": "the same beside large ones over one connection, ms",
    }
    rows = []
    for what, name in names.items():
        mine, theirs = (statistics.median(values) for values in found[what].values())
        rows.append([name, mine, theirs, mine / theirs if what == "large" else theirs / mine])
    note = f"Medians of {options.rounds} rounds, one processor for the server"
    report([Table(["", "this service", "ten lines", "ratio"], rows)], options.json, note)


if __name__ == "__main__":
    main()
