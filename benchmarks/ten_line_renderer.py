"""A renderer in ten lines: FastAPI over transformers. `compare_render.py` measures against it.

    TOKENIZER_FILE=qwen3.tokenizer.json CHAT_TEMPLATE=chat.jinja PYTHONPATH=.venv/transformers \
        uvicorn ten_line_renderer:app --app-dir benchmarks
"""

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from transformers import PreTrainedTokenizerFast

tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.environ["TOKENIZER_FILE"])
tokenizer.chat_template = Path(os.environ["CHAT_TEMPLATE"]).read_text(encoding="utf-8")
app = FastAPI()


class Body(BaseModel):
    messages: list[dict[str, Any]]


@app.post("/v1/chat/completions/render")
def render(body: Body) -> dict[str, Any]:
    encoded = tokenizer.apply_chat_template(body.messages, add_generation_prompt=True)
    return {"token_ids": encoded["input_ids"]}
