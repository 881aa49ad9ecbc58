#!/bin/sh
# One would expect: what a model writes under a JSON schema is JSON, and a string with `maxLength` or `minLength` can be
# any string of that length.
# What happens: xgrammar 0.2.9 (vLLM's and SGLang's default) has another grammar for these strings. It allows raw
# control characters, as a tab, which no parser of JSON accepts, and it allows no escapes: a quotation mark, a line
# break and a backslash cannot be written. Without the bound both are as they should be.
# Source of the expectation: RFC 8259, section 7; JSON Schema 2020-12, validation, 6.3.1: the length of a string is the
# number of its characters as RFC 8259 defines them; issue 800 of mlc-ai/xgrammar, which is open.
# xgrammar 0.2.9, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet xgrammar==0.2.9
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

import xgrammar
from xgrammar.testing import _is_grammar_accept_string

print("xgrammar", version("xgrammar"))
for schema in ({"type": "string"}, {"type": "string", "maxLength": 20}, {"type": "string", "minLength": 1}):
    grammar = xgrammar.Grammar.from_json_schema(json.dumps(schema))
    for text in ('"a\tb"', r'"a\tb"', r'"a\nb"', r'"a\"b"'):
        try:
            json.loads(text)
            valid = True
        except json.JSONDecodeError:
            valid = False
        allowed = _is_grammar_accept_string(grammar, text)
        print(schema, repr(text), "JSON" if valid else "no JSON", "allowed" if allowed else "not allowed")
        assert (allowed == valid) is (len(schema) == 1), "the behaviour changed"
PYTHON
