"""ServiceAddress: where the service is and which key it wants, from arguments or the environment.

It stands alone because a key must show nowhere: not in a repr, not in a message. Imports httpx for
its URLs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

DEFAULT_URL: Final = "http://127.0.0.1:8000"
_KEY: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A checked address, and a key that is not shown.

    Example:
        >>> ServiceAddress.of("https://tokens.example/v1/", "secret")
        ServiceAddress(url='https://tokens.example/v1')
    """

    url: str
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        base_url: str | None,
        api_key: str | None,
        environment: Mapping[str, str] = os.environ,
    ) -> ServiceAddress:
        """From the arguments, else TOKENIZER_URL and TOKENIZER_API_KEY, else this machine.

        Raises:
            ValueError: no http or https address, one with a password in it, or no possible key.
        """
        given = base_url or environment.get("TOKENIZER_URL") or DEFAULT_URL
        key = api_key or environment.get("TOKENIZER_API_KEY") or None
        try:
            url = httpx.URL(given)
        except httpx.InvalidURL:
            raise ValueError("the address of the service is no URL") from None
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
            raise ValueError("the address of the service must be http://HOST or https://HOST")
        if url.userinfo:
            raise ValueError("the address of the service holds a password; give api_key instead")
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("an API key is visible ASCII characters, without spaces")
        return cls(str(url).rstrip("/"), key)
