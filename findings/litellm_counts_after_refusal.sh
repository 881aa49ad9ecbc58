#!/bin/sh
# One would expect: when the server of a supported provider refuses to count, `litellm.acount_tokens` reports the error.
# What happens: after a 404 (the server has no such model) or a 401 it counts with its own tokenizer, which may not be
# that of the model, and returns error=False.
# Source of the expectation: its docstring: "Routes to the appropriate provider's token counting API (OpenAI, Anthropic,
# etc.) for exact token counts. Falls back to local tiktoken-based counting for unsupported providers."
# litellm 1.110.2, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet litellm==1.110.2
cd "$work"
LITELLM_LOCAL_MODEL_COST_MAP=True "$work/venv/bin/python" 2>"$work/log" - <<'PYTHON'
import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from threading import Thread

import litellm


class Refuses(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(int(self.path.split("/")[1]))
        self.end_headers()
        self.wfile.write(b'{"error": {"message": "refused"}}')

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Refuses)
Thread(target=server.serve_forever, daemon=True).start()
for model in ("openai/my-model", "anthropic/my-model"):
    for status in (401, 404):
        counted = asyncio.run(
            litellm.acount_tokens(
                model=model,
                messages=[{"role": "user", "content": "Hello"}],
                api_base=f"http://127.0.0.1:{server.server_port}/{status}",
                api_key="x",
            )
        )
        found = counted.total_tokens, counted.tokenizer_type, counted.error
        print("litellm", version("litellm"), model, "status", status, "counted:", *found)
        assert found == (8, "local_tokenizer", False), "the behaviour changed"
PYTHON
