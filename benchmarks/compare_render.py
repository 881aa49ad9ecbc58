"""Compare rendered conversations per second with ten lines of FastAPI over transformers, and with
`vllm launch render`.

    .venv/bin/python benchmarks/compare_render.py --vocab qwen3 --vllm bin/vllm code_py_js_rs

`--vllm` is the command of an installed vLLM, which renders without a GPU; it may be left out. Each
server runs one process on one processor, another process on another processor sends the requests to
`/v1/chat/completions/render`. The large conversations have 141 messages of about 500 tokens, the
small ones two of 60 characters; all are distinct. The table has medians of the rounds, each with
fresh servers. The exit status is 1 if the ids differ.

*large*: large conversations per second over 2 connections. *small*: the 99th percentile in
milliseconds of small conversations, 20 a second; *beside*: the same while large conversations come
over one more connection, each after the response to the one before.
"""

import contextlib
import itertools
import json
import os
import shutil
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


QWEN = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "max_position_embeddings": 1 << 20,
}
"""What vLLM asks of the `config.json` of a model that it does not load."""


@contextlib.contextmanager
def serving_all(vocab, folder, vllm):
    """Start the servers; yield their ports by name."""
    template, artifacts, model = folder / "chat.jinja", folder / "artifacts", folder / "model"
    template.write_text(SHORT, encoding="utf-8")
    ours = [sys.executable, "-m", "tokenizer_service.cli"]
    environment = {**os.environ, "TOKENIZER_ARTIFACTS_DIR": str(artifacts)}
    if not artifacts.exists():
        options = ["--name", "chat", "--chat-template", str(template), "--promote"]
        command = [*ours, "import", str(vocab), *options]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        model.mkdir()
        shutil.copy(vocab, model / "tokenizer.json")
        shutil.copy(template, model / "chat_template.jinja")
        (model / "config.json").write_text(json.dumps(QWEN), encoding="utf-8")
    theirs = [sys.executable, "-m", "uvicorn", "ten_line_renderer:app", "--app-dir", str(HERE)]
    theirs += ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    files = {"TOKENIZER_FILE": str(vocab), "CHAT_TEMPLATE": str(template)}
    packages = {"PYTHONPATH": str(REPOSITORY / ".venv" / "transformers")}
    offline = {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    commands = {
        "this service": ([*ours, "serve"], environment),
        "ten lines": (theirs, {**os.environ, **files, **packages}),
    }
    if vllm:
        quiet = ["--disable-uvicorn-access-log"]
        commands["vLLM"] = ([vllm, "launch", "render", str(model), *quiet], os.environ | offline)
    body = json.dumps({"messages": [{"role": "user", "content": "a"}]})
    with contextlib.ExitStack() as stack:
        ports = {}
        for name, (command, variables) in commands.items():
            ports[name] = free_port()
            whole = [*command, "--port", str(ports[name])]
            stack.enter_context(serving(whole, ports[name], variables, body, ask))
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
    parser.add_argument("--vllm", help="the command of an installed vLLM")
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
            with serving_all(options.vocab, folder, options.vllm) as ports:
                for file in large, small:
                    body = file.read_bytes().splitlines()[0]
                    ids, *others = (ask(port, body) for port in ports.values())
                    if any(other != ids for other in others):
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
    servers = list(found["large"])
    for what, name in names.items():
        mine, *others = (statistics.median(values) for values in found[what].values())
        ratios = [mine / other if what == "large" else other / mine for other in others]
        rows.append([name, mine, *itertools.chain(*zip(others, ratios, strict=True))])
    titles = itertools.chain(*((server, "ratio") for server in servers[1:]))
    note = f"Medians of {options.rounds} rounds, one processor for the server"
    report([Table(["", servers[0], *titles], rows)], options.json, note)


if __name__ == "__main__":
    main()
