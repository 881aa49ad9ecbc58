#!/bin/sh
# One would expect: under a JSON schema a model writes what fits the schema: all of its keywords.
# What happens: if a schema has `anyOf` or `allOf`, xgrammar 0.2.9 (vLLM's and SGLang's default) takes these alone, and
# ignores `properties` and `required` beside them, without an error or a warning. An object with two common fields and
# `anyOf` for the rest, as of a tool that takes a mail address or a telephone number, is written without the common
# fields, and cannot be written with them. A required field that `properties` does not list may be missing, too.
# Source of the expectation: JSON Schema 2020-12, core, section 10: a keyword that applies subschemas in place adds its
# result to those of the keywords beside it; jsonschema 4.26.0 on the same texts, and llguidance 1.9.1, which agrees
# with it; issue 858 of mlc-ai/xgrammar, which is open.
# xgrammar 0.2.9, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xgrammar==0.2.9 jsonschema==4.26.0 llguidance==1.9.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import xgrammar
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from xgrammar.testing import _is_grammar_accept_string

for name in ("xgrammar", "jsonschema", "llguidance"):
    print(name, version(name))


class Bytes:
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    tokens = [bytes([byte]) for byte in range(256)] + [b"<eos>"]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))


def by_llguidance(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
    assert not matcher.get_error(), matcher.get_error()
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def string(name):
    return {"properties": {name: {"type": "string"}}, "required": [name]}


base = {"type": "object", **string("name")}
contact = {**base, "anyOf": [string("mail"), string("phone")]}
both = {**base, "allOf": [string("mail")]}
unlisted = {**base, "required": ["name", "mail"], "additionalProperties": {"type": "string"}}
for schema, text in (
    (base, '{"name": "x"}'),
    (contact, '{"mail": "y"}'),
    (contact, '{"name": "x", "mail": "y"}'),
    (both, '{"mail": "y"}'),
    (both, '{"name": "x", "mail": "y"}'),
    (unlisted, '{"name": "x"}'),
    (unlisted, '{"name": "x", "mail": "y"}'),
):
    valid = Draft202012Validator(schema).is_valid(json.loads(text))
    allowed = _is_grammar_accept_string(xgrammar.Grammar.from_json_schema(json.dumps(schema)), text)
    print(json.dumps(schema), text, "valid" if valid else "not valid", "allowed" if allowed else "not allowed")
    assert by_llguidance(schema, text) == valid
    same = schema is base or (schema is unlisted and valid)
    assert (allowed == valid) is same, "the behaviour changed"
PYTHON
