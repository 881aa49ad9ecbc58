#!/bin/sh
# One would expect: under a JSON schema, a model writes JSON, and a string with a `pattern` matches it.
# What happens: outlines-core 0.2.14 writes the pattern between two quotation marks as it is, as if the text of JSON
# were the string. `.` allows a quotation mark, which ends the string, `[^,]` a raw line break, and `\s` a raw tab and
# no escaped one; `a|b` allows `"a`, and neither "a" nor "b". The output is no JSON, or not what the pattern says.
# Without `pattern`, strings are as they should be.
# Source of the expectation: RFC 8259, section 7; JSON Schema 2020-12, validation, 6.3.3: the pattern is matched with
# the string; llguidance 1.9.1 agrees with it.
# outlines-core 0.2.14, llguidance 1.9.1, jsonschema 4.26.0, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet outlines-core==0.2.14 llguidance==1.9.1 jsonschema==4.26.0
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from outlines_core import Guide, Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

for name in ("outlines-core", "llguidance", "jsonschema"):
    print(name, version(name))
END = 256
vocabulary = Vocabulary(END, {bytes([byte]): [byte] for byte in range(END)})


class Bytes:
    eos_token_id, bos_token_id, special_token_ids = END, None, [END]
    tokens = [*(bytes([byte]) for byte in range(END)), b"<eos>"]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))


def by_outlines(schema, text):
    guide = Guide(Index(build_regex_from_schema(json.dumps(schema)), vocabulary))
    for byte in text.encode():
        if byte not in guide.get_tokens():
            return False
        guide.advance(byte)
    return END in guide.get_tokens()


def by_llguidance(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def is_valid(schema, text):
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


for pattern, text in (
    (None, '"a"b"'),
    (None, r'"a\tb"'),
    ("^a.b$", '"a-b"'),
    ("^a.b$", '"a"b"'),
    ("^[^,]+$", '"a\nb"'),
    ("^a|b$", '"b"'),
    ("^a|b$", '"a'),
    (r"^a\sb$", '"a\tb"'),
    (r"^a\sb$", r'"a\tb"'),
):
    schema = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    valid, allowed = is_valid(schema, text), by_outlines(schema, text)
    print(pattern, repr(text), "valid" if valid else "not valid", "allowed" if allowed else "not allowed")
    assert by_llguidance(schema, text) == valid
    assert (allowed == valid) is (pattern is None or text == '"a-b"'), "the behaviour changed"
PYTHON
