"""The address of the service and the key, from arguments or from the environment."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

DEFAULT_URL: Final = "http://127.0.0.1:8000"
_UNIX: Final = "unix:"
_KEY: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A checked address and a key. Its repr and its errors never show the key.

    With `socket_path` the client connects to this Unix socket, and `url` only begins the targets.

    Example:
        >>> ServiceAddress.of("https://tokens.example/v1/", "secret")
        ServiceAddress(url='https://tokens.example/v1', socket_path=None)
        >>> ServiceAddress.of("unix:/run/tokenizer.sock", None)
        ServiceAddress(url='http://localhost', socket_path='/run/tokenizer.sock')
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    socket_path: str | None = None

    @classmethod
    def of(
        cls, base_url: str | None, api_key: str | None, environment: Mapping[str, str] = os.environ
    ) -> ServiceAddress:
        """Use the arguments, else TOKENIZER_URL and TOKENIZER_API_KEY, else this machine.

        Raises ValueError for another kind of address, one with a password, or an invalid key.
        """
        default = environment.get("TOKENIZER_URL") or DEFAULT_URL
        given = default if base_url is None else base_url
        key = api_key or environment.get("TOKENIZER_API_KEY") or None
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an API key consists of visible ASCII characters, without spaces")
        if given.startswith(_UNIX):
            if not hasattr(socket, "AF_UNIX"):
                raise ValueError("this system has no Unix sockets; the address is http://HOST")
            path = given.removeprefix(_UNIX)
            if not path.startswith("/"):
                raise ValueError(
                    "the address of the service must be unix: and the absolute path of its socket"
                )
            return cls("http://localhost", key, path)
        try:
            url = httpx.URL(given)
        except httpx.InvalidURL:
            raise ValueError("the address of the service is not a URL") from None
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError(
                "the address of the service must be http://HOST, https://HOST or unix:/PATH"
            )
        if url.userinfo:
            raise ValueError("the address of the service holds a password; give api_key instead")
        return cls(str(url).rstrip("/"), key)

    @property
    def shown(self) -> str:
        """The address as the caller gives it."""
        return self.url if self.socket_path is None else _UNIX + self.socket_path
