"""The protocols of other servers: the prefixes that name them, and the shape and status of their
errors.

A request has a dialect by a prefix of its path, by its route, or by a key of its body. Its errors
are then as clients of that server expect them; those of all other requests are problem documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Scope

# Keys of the state in the scope of a request.
_BY_PREFIX: Final = "dialect_of_prefix"
_BY_KEY: Final = "dialect_of_key"
_MODEL: Final = "asked_model"
_MAX_MODEL_CHARS: Final = 200
_GEMINI_PREFIX: Final = "/v1beta/models/"
_GEMINI_VERB: Final = ":countTokens"


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What an error says, before it has the shape of a protocol."""

    status: int
    """Already the protocol's."""
    code: str
    message: str
    pointer: str | None
    """JSON pointer to the field that is wrong."""
    request_id: str

    @property
    def param(self) -> str | None:
        """The field that is wrong, as a dotted path."""
        return self.pointer and self.pointer.removeprefix("/").replace("/", ".")


@dataclass(frozen=True, slots=True)
class Dialect:
    """A protocol. `statuses` maps a code of this service, or else a status, to its status."""

    name: str
    document: Callable[[ErrorText], dict[str, Any]]
    statuses: Mapping[int | str, int] = field(default_factory=dict)

    def status_of(self, status: int, code: str = "") -> int:
        """The protocol's status for an error of this service."""
        return self.statuses.get(code, self.statuses.get(status, status))

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an error."""
        return _schema_of(self.document(ErrorText(500, "", "", None, "")))


def _schema_of(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        properties = {name: _schema_of(member) for name, member in value.items()}
        return {"type": "object", "required": [*value], "properties": properties}
    if value is None:
        return {"anyOf": [{"type": "string"}, {"type": "null"}]}
    return {"type": "integer" if isinstance(value, int) else "string"}


def _kind_of(kinds: Mapping[int, str], status: int, server: str, client: str) -> str:
    return kinds.get(status, server if status >= 500 else client)


_OPENAI_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_KINDS: Final = {**_OPENAI_KINDS, 413: "request_too_large", 529: "overloaded_error"}
_LLAMA_KINDS: Final = {**_OPENAI_KINDS, 501: "not_supported_error", 503: "unavailable_error"}
_VLLM_KINDS: Final = {
    400: "BadRequestError",
    404: "NotFoundError",
    500: "InternalServerError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
_GEMINI_KINDS: Final = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
_TEI_KINDS: Final = {400: "Empty", 422: "Tokenizer", 429: "Overloaded", 503: "Unhealthy"}


def openai_kind(status: int) -> str:
    """`type` of an error of OpenAI's API."""
    return _kind_of(_OPENAI_KINDS, status, "server_error", "invalid_request_error")


def _openai(error: ErrorText) -> dict[str, Any]:
    kind = openai_kind(error.status)
    return {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    }


def _vllm(error: ErrorText) -> dict[str, Any]:
    kind = _VLLM_KINDS.get(error.status) or HTTPStatus(error.status).phrase
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.status,
        }
    }


def _sglang(error: ErrorText) -> dict[str, Any]:
    return {"object": "error", **_vllm(error)["error"]}


def _anthropic(error: ErrorText) -> dict[str, Any]:
    kind = _kind_of(_ANTHROPIC_KINDS, error.status, "api_error", "invalid_request_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": error.message},
        "request_id": error.request_id,
    }


def _gemini(error: ErrorText) -> dict[str, Any]:
    kind = _kind_of(_GEMINI_KINDS, error.status, "INTERNAL", "INVALID_ARGUMENT")
    return {"error": {"code": error.status, "message": error.message, "status": kind}}


def _llama(error: ErrorText) -> dict[str, Any]:
    kind = _kind_of(_LLAMA_KINDS, error.status, "server_error", "invalid_request_error")
    return {"error": {"code": error.status, "message": error.message, "type": kind}}


def _tei(error: ErrorText) -> dict[str, Any]:
    kind = _kind_of(_TEI_KINDS, error.status, "Backend", "Validation")
    return {"error": error.message, "error_type": kind}


def _cohere(error: ErrorText) -> dict[str, Any]:
    return {"id": error.request_id, "message": error.message}


VLLM: Final = Dialect("vllm", _vllm, {422: 400})
SGLANG: Final = Dialect("sglang", _sglang, {422: 400})
LLAMA_CPP: Final = Dialect("llama.cpp", _llama, {422: 400})
# It has 413 for what it validates, and 422 for what its tokenizer refuses.
TEI: Final = Dialect("tei", _tei, {"overloaded": 429, "too_many_connections": 429})
COHERE: Final = Dialect("cohere", _cohere, {422: 400})
OPENAI: Final = Dialect("openai", _openai, {422: 400})
ANTHROPIC: Final = Dialect("anthropic", _anthropic, {422: 400, 503: 529})
GEMINI: Final = Dialect("gemini", _gemini, dict.fromkeys((406, 408, 412, 413, 415, 422), 400))

DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (VLLM, SGLANG, LLAMA_CPP, TEI, COHERE, OPENAI, ANTHROPIC, GEMINI)
}
"""The dialects by their names in `/as/{name}`."""

OF_ROUTE: Final = {
    "/tokenizer_info": VLLM,
    "/chat/completions/derender": VLLM,
    "/completions/derender": VLLM,
    "/completions/render": VLLM,
    "/chat/completions/render": VLLM,
    "/messages/render": VLLM,
    "/responses/render": VLLM,
    "/chat/completions/input_tokens": LLAMA_CPP,
    "/apply-template": LLAMA_CPP,
    "/props": LLAMA_CPP,
    "/messages/count_tokens": ANTHROPIC,
    "/responses/input_tokens": OPENAI,
    "/models/{model:path}:countTokens": GEMINI,
}
"""Each route of one other server alone -> its dialect. Unknown query parameters change nothing
there."""

_OF_KEY: Final = {
    "prompt": VLLM,
    "messages": VLLM,
    "content": LLAMA_CPP,
    "inputs": TEI,
    "text": COHERE,
    "ids": TEI,
}
"""The key that holds the text, or the ids, of a request to a shared route -> its dialect."""

_SHARED: Final = {"/tokenize": (VLLM, LLAMA_CPP, TEI, COHERE), "/decode": (TEI,)}
"""Route -> the dialects that the keys of its bodies name."""

_BEHIND_PREFIX: Final = {
    path.split("/")[1] for path in (*OF_ROUTE, *_SHARED, "/detokenize", "/health", "/info")
}
"""The first parts of the paths that may follow a prefix. Not those of jobs, of the tokenizers or of
the metrics: a proxy in front may guard these by their paths."""


def dialects_of_route(path: str) -> tuple[Dialect, ...]:
    """The dialects in which a route may respond to errors without a prefix."""
    own = OF_ROUTE.get(path)
    return _SHARED.get(path, ()) if own is None else (own,)


def dialect_of(scope: Scope) -> Dialect | None:
    """The dialect of a request: that of its prefix, of a key of its body, or of its route."""
    chosen: Dialect | None = prefix_of(scope) or scope.get("state", {}).get(_BY_KEY)
    return chosen or OF_ROUTE.get(getattr(scope.get("route"), "path", ""))


def prefix_of(scope: Scope) -> Dialect | None:
    """The dialect that the path of a request names."""
    named: Dialect | None = scope.get("state", {}).get(_BY_PREFIX)
    return named


def choose_dialect(scope: Scope, key: str) -> None:
    """Respond to errors in the dialect of a key of the body."""
    scope["state"][_BY_KEY] = _OF_KEY[key]


def take_prefix(scope: Scope) -> None:
    """Take `/as/{dialect}` from the front of the path of a request, and `beta` from Gemini's."""
    path: str = scope["path"]
    if path.startswith("/as/"):
        name, _, rest = path.removeprefix("/as/").partition("/")
        if name in DIALECTS:
            scope["state"][_BY_PREFIX] = DIALECTS[name]
            first = rest.removeprefix("v1/").split("/")[0]
            if first in _BEHIND_PREFIX and scope["method"] in ("GET", "POST"):
                scope["path"] = f"/{rest}"
    elif path.startswith(_GEMINI_PREFIX) and path.endswith(_GEMINI_VERB):
        scope["path"] = path.replace("/v1beta/", "/v1/", 1)


def note_model(scope: Scope, model: str) -> None:
    """Keep the model that a request names, which errors of some protocols repeat."""
    scope["state"][_MODEL] = model


def named_model(scope: Scope) -> str:
    """The printable characters of the model that a request names, at most 200."""
    model: str = scope["state"].get(_MODEL, "")
    return "".join(filter(str.isprintable, model[:_MAX_MODEL_CHARS]))
