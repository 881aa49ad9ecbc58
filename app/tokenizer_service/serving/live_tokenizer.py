"""A loaded and tested tokenizer, with its identity rendered for responses."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from tokenizer_client.schemas.tokens import BatchTooLargeError, EncodeRequest
from tokenizer_core import Tokenizer
from tokenizer_core.engines.protocol import BodyEncoder
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.specials.policy import Policy
from tokenizer_core.strict_json import StrictJsonError, read_json


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LiveTokenizer:
    """A tokenizer ready to serve, and its identity. Immutable; requests hold a reference."""

    ref: ArtifactRef
    tokenizer: Tokenizer
    loaded_at: float
    token_lengths: NDArray[np.uint32] = field(repr=False)
    """Length in bytes of each token by id, 0 for an unused id or an empty token: shape
    (largest id + 1,)."""

    identity: dict[str, str] = field(repr=False)
    identity_json: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    raw_headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    """`headers` as ASGI sends them."""

    header_lines: bytes = field(repr=False)
    """`headers` as HTTP/1.1 sends them."""

    encode_body: BodyEncoder = field(repr=False)
    """Encodes bodies of `/encode` with one text whose ids alone are wanted."""

    @property
    def around(self) -> tuple[int, int]:
        """How many ids the post-processor puts before and after a text."""
        return len(self.tokenizer.spec.prefix_ids), len(self.tokenizer.spec.suffix_ids)

    @classmethod
    def of(cls, ref: ArtifactRef, tokenizer: Tokenizer) -> LiveTokenizer:
        """Prepare the headers and lengths that every response needs."""
        _ = tokenizer.control_tokens  # cached: no request waits for the parsing of its templates
        identity = identity_of(ref)
        headers = identity_headers(ref)
        raw_headers = tuple(
            (name.lower().encode(), value.encode()) for name, value in headers.items()
        )
        return cls(
            ref=ref,
            tokenizer=tokenizer,
            loaded_at=time.time(),
            token_lengths=tokenizer.engine.token_sizes(),
            identity=identity,
            identity_json=json.dumps(identity, separators=(",", ":")).encode(),
            headers=headers,
            raw_headers=raw_headers,
            header_lines=b"".join(b"%b: %b\r\n" % header for header in raw_headers),
            encode_body=tokenizer.body_encoder(_policy_of),
        )


def _policy_of(options: bytes) -> Policy | None:
    """The policy of a body of `/encode`; None if it asks for more than the ids of one text by the
    active tokenizer, or is refused."""
    try:
        request: Any = EncodeRequest.model_validate(read_json(options), strict=True)
    except (StrictJsonError, ValidationError, BatchTooLargeError):
        return None
    is_more = request.wants_more_than_ids or request.add_special_tokens or request.tokenizer
    if is_more or request.max_tokens is not None or request.disallowed_special:
        return None
    return Policy.of_text(request.allowed_special, (), request.added_tokens)


def identity_of(ref: ArtifactRef) -> dict[str, str]:
    """Name, version and digest, as in responses."""
    return {"name": ref.name, "version": ref.version, "digest": ref.digest}


def identity_headers(ref: ArtifactRef) -> dict[str, str]:
    """The identity as headers."""
    return {"Tokenizer-Version": str(ref), "Tokenizer-Digest": ref.digest}
