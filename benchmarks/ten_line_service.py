"""A service in ten lines: FastAPI over tiktoken. `compare_http.py` measures against it.

    TIKTOKEN_FILE=r50k_base.tiktoken uvicorn ten_line_service:app --app-dir benchmarks

It uses the fastest form: `async def`, which avoids the thread pool, and no search for special
tokens.
"""

import os

import tiktoken
from fastapi import FastAPI
from pydantic import BaseModel
from tiktoken.load import load_tiktoken_bpe

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
ranks = load_tiktoken_bpe(os.environ["TIKTOKEN_FILE"])
encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
app = FastAPI()


class Body(BaseModel):
    text: str


@app.post("/encode")
async def encode(body: Body) -> dict[str, list[int]]:
    return {"tokens": encoding.encode_ordinary(body.text)}
