"""Downloads of corpora in the child process of a job, from listed hosts, within limits.

Only this module connects to a server that a client names. It resolves each host name once, checks
every address against the operator's list, and connects to the checked address, because a second
look-up could return another one. `Host` and the name in the certificate are those of the URL. The
download follows no redirect, uses no proxy of the environment and accepts no compressed response.
Objects in S3 come through the library, from the endpoint that the operator configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

import httpx

from tokenizer_core.documents import format_of_name
from tokenizer_core.documents.corpus_addresses import CorpusAddress
from tokenizer_core.documents.corpus_files import open_corpus_file
from tokenizer_core.documents.remote_files import StoreReadError
from tokenizer_service.access.deadlines import Pace
from tokenizer_service.egress import Address, CorpusUrl
from tokenizer_service.jobs.errors import InvalidInputsError
from tokenizer_service.jobs.input_files import InputFile, find_input_file

HEAD_SECONDS: Final = 30.0
"""Time limit from resolving the name to the head of the response."""

PAUSE_SECONDS: Final = 120.0
MIN_BYTES_PER_SECOND: Final = 1024

_FAILED: Final = "download_failed"
_REFUSED: Final = "download_refused"
"""The address is not allowed, or the form of the response is not accepted."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Report = Callable[[int, int], None]


async def resolve_once(host: str, port: int) -> list[str]:
    """All addresses of `host`, from the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def download_corpora(
    urls: Sequence[CorpusUrl | CorpusAddress],
    folder: Path,
    *,
    max_bytes: int,
    report: Report = lambda done, total: None,
    resolve: Resolve = resolve_once,
    head_seconds: float = HEAD_SECONDS,
) -> list[InputFile]:
    """Download `urls` one after the other into `folder`, each once, at most `max_bytes` together.

    Calls `report` with the bytes received, and the total as far as known.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # noqa: ASYNC240 - the loop runs nothing else
    files: list[InputFile] = []
    n_bytes = 0
    for index, url in enumerate(urls):
        if url in urls[:index]:
            continue  # messages keep the numbers of the request
        name = f"input_urls[{index}]"
        path = folder / f"{index:05d}.{format_of_name(url.shown) or 'txt'}"
        with path.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            if isinstance(url, CorpusAddress):
                n_bytes = _copy_object(name, url, file, max_bytes, n_bytes, report)
            else:
                fetch = _Fetch(name, url, max_bytes, n_bytes, report)
                n_bytes = await fetch.into(file, resolve, head_seconds)
        files.append(replace(find_input_file([folder], path.name), label=url.shown))
    return files


def _copy_object(
    name: str, url: CorpusAddress, file: IO[bytes], max_bytes: int, n_before: int, report: Report
) -> int:
    """As `_Fetch.into`; blocks."""
    try:
        source = open_corpus_file(url.text)
        total = n_before + source.size_bytes
        _require_room(name, total, max_bytes)
        with source.reading():
            for block in source.blocks():
                file.write(block)
                report(n_before + source.position_bytes, total)
    except StoreReadError as error:
        raise InvalidInputsError(_FAILED, str(error)) from None
    return total


def _require_room(name: str, n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise InvalidInputsError(
            "download_too_large",
            f"{name} brings the job over {max_bytes} bytes, its limit; the operator can raise "
            "TOKENIZER_CORPORA_MAX_BYTES",
        )


class _Fetch:
    """The download of one URL into a file."""

    def __init__(
        self, name: str, url: CorpusUrl, max_bytes: int, n_before: int, report: Report
    ) -> None:
        self._name, self._url, self._max_bytes = name, url, max_bytes
        self._n_bytes = n_before  # for all files of the job
        self._report = report

    async def into(self, file: IO[bytes], resolve: Resolve, head_seconds: float) -> int:
        """Write the body to `file`; returns the bytes of all downloads of the job so far."""
        client = httpx.AsyncClient(
            trust_env=False,  # a proxy would resolve the name again
            verify=httpx.create_ssl_context(),  # reads SSL_CERT_FILE
            follow_redirects=False,
            timeout=None,  # noqa: S113 - own deadlines span all parts of a request
        )
        async with client:
            try:
                async with asyncio.timeout(head_seconds):
                    response = await self._open(client, await self._addresses(resolve))
                try:
                    self._check(response)
                    await self._copy(response, file)
                finally:
                    await response.aclose()
            except TimeoutError:
                raise InvalidInputsError(
                    "download_too_slow", f"{self._name} came too slowly; try again"
                ) from None
            except httpx.HTTPError as error:
                raise InvalidInputsError(
                    _FAILED,
                    f"{self._name} could not be fetched ({type(error).__name__}); see that the "
                    f"server is there and its certificate is valid, and post the request again",
                ) from error
        return self._n_bytes

    async def _addresses(self, resolve: Resolve) -> list[Address]:
        try:
            found = await resolve(self._url.host, self._url.port)
            addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in found]
        except (OSError, ValueError):
            addresses = []
        if not addresses:
            raise InvalidInputsError(
                _FAILED, f"{self._name} has a host without an address; see that its name is right"
            )
        if not all(self._url.listed.allows(address) for address in addresses):
            raise InvalidInputsError(
                _REFUSED,
                f"{self._name} leads to an address that its host is not to have: one that is not "
                f"public, unless host=address or host=network in TOKENIZER_CORPUS_URL_HOSTS allows "
                f"it",
            )
        return addresses

    async def _open(self, client: httpx.AsyncClient, addresses: list[Address]) -> httpx.Response:
        for address in addresses[:-1]:
            with contextlib.suppress(httpx.ConnectError):
                return await client.send(self._request(client, address), stream=True)
        return await client.send(self._request(client, addresses[-1]), stream=True)

    def _request(self, client: httpx.AsyncClient, address: Address) -> httpx.Request:
        url = self._url
        host = f"[{address}]" if address.version == 6 else str(address)
        return client.build_request(
            "GET",
            httpx.URL(
                scheme=url.scheme, host=host, port=url.port, raw_path=url.target.encode("ascii")
            ),
            headers={"Host": url.origin, "Accept": "*/*", "Accept-Encoding": "identity"},
            extensions={"sni_hostname": url.host},
        )

    def _check(self, response: httpx.Response) -> None:
        if response.is_redirect or 300 <= response.status_code < 400:
            raise InvalidInputsError(
                _REFUSED,
                f"{self._name} is redirected, which is not followed; name the last URL itself",
            )
        if response.status_code != 200:
            raise InvalidInputsError(
                _FAILED,
                f"{self._name} was answered with status {response.status_code} instead of 200",
            )
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise InvalidInputsError(_REFUSED, f"{self._name} is compressed; offer the plain text")

    async def _copy(self, response: httpx.Response, file: IO[bytes]) -> None:
        declared = response.headers.get("content-length")  # h11 takes only digits
        total = 0 if declared is None else self._n_bytes + int(declared)
        _require_room(self._name, total, self._max_bytes)
        clock = asyncio.get_running_loop().time
        pace = Pace(
            grace_seconds=PAUSE_SECONDS,
            most_seconds=PAUSE_SECONDS,
            bytes_per_second=MIN_BYTES_PER_SECOND,
        )
        parts = response.aiter_raw()
        while True:
            started = clock()
            async with asyncio.timeout(pace.seconds_left):
                data = await anext(parts, b"")
            if not data:
                return
            pace.note(waited_seconds=clock() - started, n_bytes=len(data))
            self._n_bytes += len(data)
            _require_room(self._name, self._n_bytes, self._max_bytes)
            file.write(data)
            self._report(self._n_bytes, total)
