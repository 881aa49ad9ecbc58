"""Write docs/http-reference.md from the OpenAPI document of the service.

.venv/bin/python docs/make_http_reference.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizer_service.handlers.known_fields import MAX_IGNORED, NEUTRAL, REFUSED, prompt_fields
from tokenizer_service.http.bodies import REQUEST_MODELS
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings

PAGE = Path(__file__).with_name("http-reference.md")
HEAD = """# HTTP reference

Every route, field and status, made from the OpenAPI document by `docs/make_http_reference.py`. The
service has that document at `/openapi.json`, and at `/docs` a page to try the routes.
[http.md](http.md) explains them.

Every route may also answer 400, 408, 431, 500, 501 and 503 ([errors](http.md#errors)). Routes of
other servers answer errors in the shape and with the status of that server.
"""
_BORROWED = f"""
## Fields of other servers' requests

What a request in another server's format may have. Fields that are *done* may change the ids or the
text. Those that are *carried* are in the response, for the server that generates; those that are
*accepted* concern only a server with a model. A *refused* field is a 422 with the remedy, because
ids without it would be wrong, and so is an unknown one within two edits of a field that is done,
refused or constrains the output. Up to {MAX_IGNORED} others are ignored; the header
`Ignored-Fields` lists them.

"""
OF_ANY_ROUTE = {"400", "408", "431", "500", "501", "503"}
Json = dict[str, Any]


def render() -> str:
    """The page."""
    document = create_app(Settings(admin_keys=("an-admin-key-for-this-page",))).openapi()
    schemas = document["components"]["schemas"]
    parts = [HEAD]
    tag = None
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation.get("tags") != tag and not path.startswith("/v1"):
                tag = operation.get("tags")
                parts.append(f"\n## {tag[0].capitalize() if tag else 'Others'}\n")
            if not path.startswith("/v1"):
                parts.append(_operation(path, method, operation, schemas))
    parts.append("\n## Objects\n")
    for name, schema in sorted(schemas.items()):
        if name not in REQUEST_MODELS and (fields := _fields(schema) or _items(schema)):
            parts.append(f"\n### {name}\n\n{fields}")
    parts.append(_BORROWED)
    for model, neutral in NEUTRAL.items():
        uses = {"done": prompt_fields(model), **neutral._asdict()}
        told = [f"{use}: `{'`, `'.join(names)}`" for use, names in uses.items() if names]
        parts.append(f"- `{model.__name__}`. {'; '.join(told)}.\n")
    rows = "".join(f"| `{name}` | {remedy} |\n" for name, remedy in sorted(REFUSED.items()))
    parts.append(f"\n| refused where it is not done | remedy |\n|---|---|\n{rows}")
    return "".join(parts)


def _operation(path: str, method: str, operation: Json, schemas: Json) -> str:
    security = operation.get("security") or [{}]
    key = "admin" if {} not in security else "read" if len(security) > 1 else "none"
    text = f"\n### `{method.upper()} {path}`\n\n{operation.get('description', '')}\n\nKey: {key}."
    codes = [code for code in operation["responses"] if code not in OF_ANY_ROUTE]
    text += f" Statuses: {', '.join(sorted(codes))}.\n"
    if operation.get("parameters"):
        rows = [_row(p["name"], p["schema"], p["in"]) for p in operation["parameters"]]
        text += "\n" + _table(rows, "in")
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
            text += f"\nBody, `{media_type}`"
            text += f":\n\n{_fields(schema)}" if schema.get("properties") else ".\n"
    for code in ("200", "201", "202"):
        for media_type, content in operation["responses"].get(code, {}).get("content", {}).items():
            kind = _type(content.get("schema", {}))
            text += f"\n{code}, `{media_type}`{': ' + kind if kind else ''}\n"
    return text


def _fields(schema: Json) -> str:
    required = schema.get("required", [])
    fields = schema.get("properties", {}).items()
    rows = [_row(n, s, "yes" if n in required else "") for n, s in fields]
    return _table(rows, "required") if rows else ""


def _items(schema: Json) -> str:
    return f"{_type(schema)}: {schema['description']}\n" if schema.get("type") == "array" else ""


def _row(name: str, schema: Json, where: str) -> list[str]:
    default = schema.get("default")
    shown = "" if default is None else f"`{json.dumps(default)}`"
    told = schema.get("description") or next(
        (part["description"] for part in schema.get("anyOf", []) if "description" in part), ""
    )
    return [f"`{name}`", _type(schema), where, shown, told]


def _table(rows: list[list[str]], third: str) -> str:
    head = [["name", "type", third, "default", "meaning"], ["---"] * 5]
    lines = (
        " | ".join(cell.replace("\n", " ").replace("|", r"\|") for cell in row) for row in rows
    )
    return "".join(f"| {line} |\n" for line in [*map(" | ".join, head), *lines])


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(filter(None, map(_type, schema[word]))))
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    kind = schema.get("type", "")
    if kind == "array":
        return f"array of {_type(schema.get('items', {})) or 'anything'}"
    if kind == "string" and schema.get("format") == "binary":
        return "bytes"
    return "" if kind == "null" else str(kind)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
