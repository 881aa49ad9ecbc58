"""Auth: the keys that routes require, by `require_read` or `require_admin`; others are public.

The functions compare sha256 digests with `hmac.compare_digest`, against every key, so that the time
reveals neither the length of a key nor the position of a difference. Admin keys may also read. The
keys are in `app.access_keys`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from starlette.requests import HTTPConnection

from tokenizer_service.access.errors import AdminKeyRequiredError, KeyRequiredError
from tokenizer_service.ingress import is_local
from tokenizer_service.settings import Settings, SettingsError

LEAST_KEY_CHARS: Final = 8
"""A service that other machines can reach refuses shorter keys."""

SAFE_KEY_CHARS: Final = 16
"""Every service warns about shorter keys."""

_KEY_REMEDY: Final = "set a secret of your own, for instance the output of `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """Digests of the keys. If `read` is empty, the read routes are public."""

    admin: frozenset[bytes]
    read: frozenset[bytes]

    @classmethod
    def of(cls, admin: Iterable[str], read: Iterable[str] = ()) -> AccessKeys:
        """Make the digests of these keys; the object does not keep the keys."""
        return cls(
            frozenset(digest for key in admin for digest in _digests(key)),
            frozenset(digest for key in read for digest in _digests(key)),
        )


def access_keys(settings: Settings) -> AccessKeys:
    """The keys of `settings`; without an admin key, generates one and prints it once to stderr."""
    check_keys(settings)
    admin = [key.get_secret_value() for key in settings.admin_keys]
    if not admin:
        admin = [secrets.token_urlsafe(32)]
        print(
            f"admin key for this run (set TOKENIZER_ADMIN_KEYS to choose your own): {admin[0]}",
            file=sys.stderr,
            flush=True,
        )
    return AccessKeys.of(admin, [key.get_secret_value() for key in settings.read_keys])


def check_keys(settings: Settings) -> None:
    """Raise SettingsError if `require_admin_key` requires an admin key and none is set, a read key
    is one too, or a key is too short for a service that other machines can reach."""
    if settings.require_admin_key and not settings.admin_keys:
        raise SettingsError(
            f"TOKENIZER_REQUIRE_ADMIN_KEY is set and TOKENIZER_ADMIN_KEYS is empty; {_KEY_REMEDY}"
        )
    if {*settings.admin_keys} & {*settings.read_keys}:
        raise SettingsError(
            f"a key is in TOKENIZER_ADMIN_KEYS and in TOKENIZER_READ_KEYS, so whoever may read may "
            f"train and promote; {_KEY_REMEDY}"
        )
    short = _variables_with_short_keys(settings, LEAST_KEY_CHARS)
    if short and not is_local(settings.host):
        raise SettingsError(
            f"a key in {short[0]} has fewer than {LEAST_KEY_CHARS} characters, and other machines "
            f"can reach the service (TOKENIZER_HOST is no loopback address); {_KEY_REMEDY}"
        )


def weak_keys(settings: Settings) -> list[str]:
    """One line for each variable with a key that can be guessed; it does not show the key."""
    return [
        f"a key in {variable} has fewer than {SAFE_KEY_CHARS} characters and can be guessed; "
        f"{_KEY_REMEDY}"
        for variable in _variables_with_short_keys(settings, SAFE_KEY_CHARS)
    ]


def _variables_with_short_keys(settings: Settings, n_chars: int) -> list[str]:
    """The variables with a key of fewer than `n_chars` characters."""
    variables = {
        "TOKENIZER_ADMIN_KEYS": settings.admin_keys,
        "TOKENIZER_READ_KEYS": settings.read_keys,
    }
    return [name for name, keys in variables.items() if any(len(key) < n_chars for key in keys)]


async def require_read(request: Request) -> None:
    """Admit a request that may read: any request until a read key is set."""
    check_read(request)


def check_read(request: HTTPConnection) -> None:
    """As `require_read`."""
    keys: AccessKeys = request.scope["app"].access_keys
    if keys.read and not _holds(request, keys.read | keys.admin):
        raise _key_required(request, "a read key or an admin key")


async def require_admin(request: Request) -> None:
    """Admit a request with an admin key."""
    keys: AccessKeys = request.scope["app"].access_keys
    if _holds(request, keys.admin):
        return
    if _holds(request, keys.read):
        raise AdminKeyRequiredError
    raise _key_required(request, "an admin key (printed at start when none was set)")


def _key_required(request: HTTPConnection, accepted: str) -> KeyRequiredError:
    return KeyRequiredError(accepted, is_wrong=any(_given_keys(request)))


def _holds(request: HTTPConnection, accepted: frozenset[bytes]) -> bool:
    found = False
    for given in _given_keys(request):
        digest = hashlib.sha256(given).digest()
        for known in accepted:  # no early exit: the time must not reveal which key matched
            found |= hmac.compare_digest(digest, known)
    return found


def _given_keys(request: HTTPConnection) -> list[bytes]:
    keys = []
    for name, value in request.scope["headers"]:
        if name in (b"x-api-key", b"x-goog-api-key"):
            keys.append(value.strip())
        elif name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                keys.append(key.strip())
    return keys[:4]


def _digests(key: str) -> list[bytes]:
    """Digests of both encodings: clients send a non-ASCII key as UTF-8 or as Latin-1."""
    forms = {key.encode()}
    if all(ord(char) < 256 for char in key):
        forms.add(key.encode("latin-1"))
    return [hashlib.sha256(form).digest() for form in forms]
