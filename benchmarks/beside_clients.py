"""Measure /livez and small requests beside 100 clients of each route, and of all routes.

    .venv/bin/python benchmarks/beside_clients.py
    .venv/bin/python benchmarks/beside_clients.py --routes chunk batch --seconds 4

The service runs one process on the first processor; the clients, which send the next request as
soon as they have a response, and the two probes run on the last one. The first row is the baseline:
both probes without clients. The bodies are the dearest of their size that we know. The figures are
the 99th percentile in milliseconds of 50 requests a second, and what the clients get: responses per
second, and the part of them that is no 200.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from compare_http import HERE, PROCESSES, free_port, load_report, serving
from figures import Table, make_parser, report

N_CLIENTS = 100
PROBES_PER_SECOND = 50.0
PROBE = "POST /encode " + json.dumps({"text": "The quick brown fox jumps over the lazy dog. " * 3})
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' \
+ message['content'] + '<|im_end|>\\n' }}{% endfor %}"""
CHILD_TEMPLATE = TEMPLATE + "{{ messages | map(attribute='role') | list | tojson(indent=2) }}"
"""A child process renders it."""

LONG_TEMPLATE = "{{ '" + "s" * 60_000 + "' }}" + TEMPLATE


def requests_of_routes():
    """Name -> lines of requests as `http_load` reads them."""
    letters = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000))
    chat = [{"role": "user", "content": "Tell me of the fox. " * 8}] * 2

    def post(path, **body):
        return f"POST {path} " + json.dumps(body, ensure_ascii=False)

    return {
        "livez": "GET /livez",
        "readyz": "GET /readyz",
        "openapi": "GET /openapi.json",
        "docs": "GET /docs/swagger-ui-bundle.js",
        "page": "GET /playground/main.js",
        "tokenizers": "GET /tokenizers",
        "active": "GET /tokenizers/active",
        "as a model": "GET /tokenizer_info",
        "versions": "GET /tokenizers/bench",
        "file": "GET /tokenizers/bench/{version}/tokenizer.json",
        "models": "GET /models",
        "info": "GET /info",
        "metrics": "GET /metrics",
        "vocab": "GET /vocab/1000?depth=16",
        "merges": post("/merges", tokens=list(range(300, 900))),
        "small": PROBE,
        "4 kB": post("/encode", text=letters[:4000]),
        "64 kB": post("/encode", text=letters[:64_000]),
        "1 MB": post("/encode", text=letters),
        "details": post("/encode", text="a " * 240, **{"return": ["pieces", "offsets"]}),
        "large details": post("/encode", text="a " * 20_000, **{"return": ["pieces", "offsets"]}),
        "batch": post("/encode", text=["a"] * 800),
        "batch details": post("/encode", text=["a"] * 800, **{"return": ["pieces", "offsets"]}),
        "count": post("/count", text=["a"] * 800),
        "tokenize": post("/tokenize", inputs=["a"] * 800),
        "decode": post("/decode", tokens=[220] * 900),
        "decode batch": post("/decode", tokens=[[1]] * 900),
        "detokenize": post("/detokenize", tokens=[220] * 900),
        "truncate": post("/truncate", text=letters[:3900], max_tokens=1900),
        "chunk": post(
            "/chunk", text="some words of text " * 800, max_tokens=500, overlap_tokens=480
        ),
        "import refused": post("/tokenizers/other"),
        "refused": post("/chunk", text="a " * 15_000, max_tokens=3000, overlap_tokens=2999),
        "align": post("/align", text="a b " * 1000, other="active"),
        "verify": post("/verify", text=letters[:4000]),
        "chat": post("/chat/encode", messages=chat),
        "chat long": post("/chat/encode", messages=chat, chat_template="long"),
        "chat child": post("/chat/encode", messages=chat, chat_template="child"),
        "documents": post("/chat/encode", messages=chat, documents=[{"text": "a " * 1000}] * 20),
        "chat render": post("/chat/completions/render", messages=chat, return_token_offsets=True),
        "chat render long": post("/chat/completions/render", messages=chat, chat_template="long"),
        "prompts": post("/completions/render", prompt=["a"] * 800),
        "count tokens": post("/messages/count_tokens", messages=chat, max_tokens=9),
        "extend": post("/extend", tokens=[220] * 900, mask=[1] * 900, text="a b " * 100),
        "extend chats": post(
            "/extend", batch=[{"tokens": [], "messages": chat}] * 40, chat_template="long"
        ),
        "derender": post(
            "/completions/derender",
            generate_responses=[
                {"request_id": "a", "choices": [{"index": 0, "token_ids": [72] * 400}]}
            ],
        ),
    }


@contextlib.contextmanager
def service(folder):
    """Start the service; yield its port."""
    templates = []
    sources = {"default": TEMPLATE, "child": CHILD_TEMPLATE, "long": LONG_TEMPLATE}
    for name, source in sources.items():
        file = folder / f"{name}.jinja"
        file.write_text(source)
        templates += ["--chat-template", f"{name}={file}"]
    artifacts = folder / "artifacts"
    shutil.copytree(HERE.parent / "artifacts" / "tokenizers", artifacts / "tokenizers")
    environment = {**os.environ, "TOKENIZER_ARTIFACTS_DIR": str(artifacts)}
    command = [sys.executable, "-m", "tokenizer_service.cli"]
    imported = [*command, "import", "starter", "--name", "bench", *templates, "--promote"]
    subprocess.run(imported, env=environment, check=True, stdout=subprocess.DEVNULL)
    port = free_port()
    with serving([*command, "serve", "--port", str(port)], port, environment):
        yield port


def measure(port, file, seconds):
    """The percentiles of the probes, and the report of the clients (None without them)."""
    probes = {"n_connections": 8, "requests_per_second": PROBES_PER_SECOND, "path": ""}
    with ThreadPoolExecutor() as pool:
        clients = None
        if file is not None:
            job = {"n_connections": N_CLIENTS, "path": "", "warm_up_seconds": 1.5}
            clients = pool.submit(load_report, port, file, seconds, **job)
        found = []
        folder = Path(tempfile.gettempdir())
        for name, line in ("livez", "GET /livez"), ("small", PROBE):
            probe = folder / f"probe-{os.getpid()}-{name}"
            probe.write_text(line + "\n")
            job = {**probes, "warm_up_seconds": 1.5}
            found.append(pool.submit(load_report, port, probe, seconds, **job))
        # Without any response within the time, the least that the percentile can be.
        percentiles = [
            one.result()["p99_milliseconds"] if one.result()["n_requests"] else 1e3 * seconds
            for one in found
        ]
        return percentiles, None if clients is None else clients.result()


def resident_megabytes(port):
    status = Path(f"/proc/{PROCESSES[port]}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--routes", nargs="*", help="these rows of the table")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder) as port:
            served = httpx.get(f"http://127.0.0.1:{port}/readyz").json()["tokenizer"]
            lines = {
                name: line.replace("{version}", served["version"])
                for name, line in requests_of_routes().items()
            }
            lines = {"nothing": None, **lines, "all": "\n".join(lines.values())}
            for name in options.routes or lines:
                line = lines[name]
                file = None if line is None else folder / "requests"
                if file is not None:
                    file.write_text(line + "\n", encoding="utf-8")
                (livez, small), clients = measure(port, file, options.seconds)
                rate = wrong = None
                if clients is not None:
                    rate = clients["n_requests"] / clients["seconds"]
                    wrong = clients["n_wrong"] / max(1, clients["n_all"])
                rows.append([name, livez, small, rate, wrong, resident_megabytes(port)])
                print(rows[-1], file=sys.stderr, flush=True)
    columns = ["beside", "/livez p99, ms", "small p99, ms", "responses/s", "no 200", "MB"]
    report([Table(columns, rows)], options.json, f"{N_CLIENTS} clients, one processor")


if __name__ == "__main__":
    main()
