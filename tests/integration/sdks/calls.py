"""Calls of unchanged clients: prints what each returns, or the error that it raises, as JSON.

python calls.py URL KEY
"""

import json
import sys

import anthropic
import cohere
import openai
from google import genai
from google.genai import types
from lm_eval.utils import RemoteTokenizer
from tei_client.clients.http_client import HttpClient

MODEL, UNKNOWN = "chat", "gpt-4"
HELLO = [{"role": "user", "content": "Hello"}]
IMAGE = "data:image/png;base64,AAAA"


def main(url, key):
    openai_client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    openai_stranger = openai_client.with_options(api_key="another-key")
    claude = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
    claude_stranger = claude.with_options(api_key="another-key")
    large = [{"role": "user", "content": "x" * 20_000}]

    def count_input(client=openai_client, **request):
        return client.responses.input_tokens.count(**request).input_tokens

    def count_messages(client=claude, **request):
        return client.messages.count_tokens(**request).input_tokens

    def render(client=openai_client, **request):
        answer = client.post("/completions/render", cast_to=object, body=request)
        return [one["token_ids"] for one in answer]

    calls = {
        "openai models": lambda: [model.id for model in openai_client.models.list()],
        "openai model": lambda: openai_client.models.retrieve(MODEL).id,
        "openai count": lambda: count_input(model=MODEL, input="Hello"),
        "openai render": lambda: render(model=MODEL, prompt=["Hi", "a"]),
        "openai unknown": lambda: count_input(model=UNKNOWN, input="Hello"),
        "openai no key": lambda: count_input(openai_stranger, model=MODEL, input="Hello"),
        "openai large": lambda: count_input(model=MODEL, input=large),
        "openai image": lambda: count_input(
            model=MODEL,
            input=[{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}],
        ),
        "anthropic models": lambda: [model.id for model in claude.models.list()],
        "anthropic count": lambda: count_messages(model=MODEL, messages=HELLO),
        "anthropic beta": lambda: (
            claude.beta.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
        ),
        "anthropic unknown": lambda: count_messages(model=UNKNOWN, messages=HELLO),
        "anthropic no key": lambda: count_messages(claude_stranger, model=MODEL, messages=HELLO),
        "anthropic large": lambda: count_messages(model=MODEL, messages=large),
        "anthropic image": lambda: count_messages(
            model=MODEL,
            messages=[
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "url", "url": IMAGE}}],
                }
            ],
        ),
    }
    online = {"offline": False}
    for name, address in (("cohere", url), ("cohere prefix", f"{url}/as/cohere")):
        client = cohere.Client(api_key=key, base_url=address)
        stranger = cohere.Client(api_key="another-key", base_url=address)
        calls |= {
            f"{name} tokens": lambda c=client: c.tokenize(text="Hi", model=MODEL).tokens,
            f"{name} text": lambda c=client: c.detokenize(tokens=[72, 105], model=MODEL).text,
            f"{name} unknown": lambda c=client: c.tokenize(text="a", model=UNKNOWN, **online),
            f"{name} no key": lambda c=stranger: c.tokenize(text="a", model=MODEL, **online),
            f"{name} large": lambda c=client: c.tokenize(text="a" * 20_000, model=MODEL, **online),
        }
    options = types.HttpOptions(base_url=url)
    gemini = genai.Client(api_key=key, http_options=options)
    image = types.Part.from_bytes(data=b"a", mime_type="image/png")

    def count_contents(client=gemini, model=MODEL, contents="Hello"):
        return client.models.count_tokens(model=model, contents=contents).total_tokens

    calls |= {
        "google count": count_contents,
        "google unknown": lambda: count_contents(model=UNKNOWN),
        "google no key": lambda: count_contents(
            genai.Client(api_key="another-key", http_options=options)
        ),
        "google large": lambda: count_contents(contents="x" * 20_000),
        "google image": lambda: count_contents(contents=[image]),
    }
    tei = HttpClient(url, headers={"Authorization": f"Bearer {key}"})

    def harness(token=key):
        return RemoteTokenizer(f"{url}/v1/completions", auth_token=token)

    calls |= {
        "lm-eval tokens": lambda: harness().encode("Hi<|im_end|>"),
        "lm-eval text": lambda: harness().decode([72, 105]),
        "lm-eval end": lambda: [harness().eos_token, harness().eos_token_id],
        "lm-eval no key": lambda: harness("another-key"),
        "tei tokens": lambda: [
            [token.id for token in one.tokens] for one in tei.tokenize(["Hi", "a"])
        ],
        "tei text": lambda: tei.decode([[72, 105], [97]]),
        "tei health": tei.health,
        "tei prompts": tei.prompt_names,
        "tei info": tei.info,
    }
    print(json.dumps({name: outcome_of(call) for name, call in calls.items()}))


def outcome_of(call):
    """What `call` returns, or the class of its error and the status."""
    try:
        return call()
    except Exception as error:
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
        return [type(error).__name__, status]


if __name__ == "__main__":
    main(*sys.argv[1:])
