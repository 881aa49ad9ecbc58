"""Settings of the service: read from the environment once, checked, frozen.

The docstring of a field is its description. A test compares docs/settings.md with what
`python -m tokenizer_service.settings` writes.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tokenizer_client.schemas.tokens import explain, form
from tokenizer_core.registry.versions import checked_name, checked_version
from tokenizer_service.egress import ListedHost, check_s3_prefixes
from tokenizer_service.ingress import AllowedHosts, check_origins, socket_path

PREFIX: Final = "TOKENIZER_"
_OTHER_VARIABLES: Final = {
    "TOKENIZER_URL": "The client: address of the service, `http://HOST` or `unix:/path`.",
    "TOKENIZER_API_KEY": "The client: its key.",
    "TOKENIZER_VOCABULARIES_URL": "The command `tokenizer pull`: folder to download from, for "
    "instance a mirror. Unset: the address that tiktoken uses.",
    "TOKENIZER_KERNEL": "The native engine: `avx512`, `avx2`, `neon` or `portable`, to compare "
    "them. The ids are the same. Unset: the fastest that the processor has.",
    "TOKENIZER_COMPILED": "`off`: neither write nor use compiled tokenizers, which make the next "
    "start of a process fast. They are in the folders of published versions and in the user's "
    "cache folder, there at most 512 MB.",
    "TOKENIZER_REQUIRE_NATIVE": "The build and the tests: fail if the native engine is missing.",
    "TOKENIZER_TEST_DATA": "The tests: folder of the larger corpora and vocabularies.",
    "TOKENIZER_CHAT_TEMPLATES": "The tests: folder of public chat templates, `*.jinja`.",
}
"""Variables that other parts of the project read, and their meanings."""

_SIZE: Final = r"(\d{1,12}) ?([KMGT])(?:i?B)?"

_OCTAL: Final = form("^0?[0-7]{3}$", "must be three digits from 0 to 7, such as 660")

_PAGE_HEAD: Final = """\
# Settings

The service reads its settings from the environment once, at start. It refuses to start with a
value of the wrong form or outside its range, and names the variable, the reason and the default.
A row says what happens if the folder or tokenizer that a value names is missing. The service warns
about a `TOKENIZER_` variable that it does not know.

This page is generated: `python -m tokenizer_service.settings > docs/settings.md`.

| variable | default | meaning |
|---|---|---|"""

_PAGE_MIDDLE: Final = """
## Other variables

Other parts of the project read these.

| variable | meaning |
|---|---|"""


class SettingsError(ValueError):
    """A variable has a wrong value. The message names the variable and the remedy."""


def _entries_of(value: object) -> object:
    """The entries between commas; an empty text has none, as if the variable were not set."""
    if not isinstance(value, str):
        return value
    entries = tuple(entry.strip() for entry in value.split(",") if entry.strip())
    if value.strip() and not entries:
        raise ValueError("it has only commas; name an entry, or leave it out")
    return entries


def _bytes_of(value: object) -> object:
    """The number of bytes of `64M`; a unit is a power of 1024."""
    if not isinstance(value, str) or re.fullmatch(r"\s*[+-]?[0-9_]+\s*", value):
        return value
    if not (match := re.fullmatch(_SIZE, value, re.ASCII)):
        raise ValueError("must be a number of bytes, or a size such as 64M")
    return int(match[1]) << 10 * (1 + "KMGT".index(match[2]))


def _folders_of(value: object) -> object:
    return tuple(filter(None, value.split(":"))) if isinstance(value, str) else value


def _if(check: Callable[[Any], object]) -> AfterValidator:
    """Take a value that `check` takes without a ValueError."""
    return AfterValidator(lambda value: (check(value), value)[1])


def _check_listed_hosts(entries: tuple[str, ...]) -> None:
    for entry in entries:
        ListedHost.parse(entry)


def _check_reference(text: str) -> None:
    name, at, version = text.partition("@")
    checked_name(name)
    if at:
        checked_version(version)


def _check_database(address: SecretStr) -> None:
    """Raise ValueError unless it is a PostgreSQL address; the message never repeats it."""
    try:
        parts = urlsplit(address.get_secret_value())
        # After an @ in a password, the rest of it would be a part of the host, which errors name.
        is_one = parts.scheme in ("postgresql", "postgres") and parts.netloc.count("@") <= 1
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(
            "it must read like postgresql://user:password@host:5432/database; within user and "
            "password write @ : / as %40 %3A %2F"
        )
    if importlib.util.find_spec("psycopg") is None:
        raise ValueError("it needs the extra postgres; pip install 'tokenizer-service[postgres]'")


Bytes = Annotated[int, BeforeValidator(_bytes_of)]
KeyList = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_entries_of)]
WordList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_entries_of)]
FolderList = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_folders_of)]


class Settings(BaseSettings):
    """The settings of one service. `Settings.from_environment()` reads them."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    host: Annotated[str, Field(min_length=1), _if(socket_path)] = "127.0.0.1"
    """Address to listen on, or `unix:/path` for a Unix socket."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one. A Unix socket has none. If Kubernetes sets it, to
    `tcp://...`, set `enableServiceLinks: false`."""

    socket_mode: Annotated[str, Field(pattern=_OCTAL)] = "660"
    """Permissions of the Unix socket, in octal; who may write to it may connect. `660`: the
    service's user and the group of the file. `666`: every user of this machine."""

    allowed_hosts: Annotated[WordList, _if(AllowedHosts)] = ()
    """Hosts under which clients may address the service, separated by commas: `name`, `*.name`
    (every name below it), `.name` (both), an address, a network, or `*` for every host; without
    ports. The health routes answer to every host. Unset: every host, but if TOKENIZER_HOST is a
    loopback address, only `localhost`, `*.localhost` and the loopback addresses."""

    cors_origins: Annotated[WordList, _if(check_origins)] = ()
    """Origins whose pages may use the read routes (CORS), separated by commas: `https://host` or
    `http://host:port`, exactly; no `*`. Unset: none."""

    artifacts_dir: Path = Path("artifacts")
    """Folder of the published tokenizers, the active pointer and the job database. One that is
    named must exist. Unset: a new folder gets the starter of the package."""

    store: str | None = None
    """Store that several hosts share for published tokenizers and the active pointer:
    `s3://bucket/prefix` or a folder. Unset: TOKENIZER_ARTIFACTS_DIR."""

    corpus_roots: FolderList = (Path("corpora"),)
    """Folders that training jobs may read, separated by `:`. Paths in requests are relative to
    them. The service warns of a folder that does not exist."""

    admin_keys: KeyList = ()
    """Keys for the admin routes (training, promotion, uploads), separated by commas. Unset: the
    service generates one at start and prints it once; with TOKENIZER_LOG_FORMAT=json it writes it
    to `run/admin_key` in the artifacts folder."""

    read_keys: KeyList = ()
    """Keys for encoding and the other read routes, separated by commas. Unset: these routes are
    open."""

    require_admin_key: bool = False
    """Refuse to start without TOKENIZER_ADMIN_KEYS. The container image sets it."""

    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of serving processes."""

    default: Annotated[str, Field(min_length=1), _if(_check_reference)] = "starter"
    """Tokenizer to serve until one is promoted: `name`, which is its newest version at the first
    start and stays that one, or `name@version`. One that is set must be published, unless nothing
    is, or a promoted one serves."""

    fallback: Literal["none", "previous"] = "none"
    """What to serve after a start if the active version is damaged or missing: `none`, so that
    requests without a version get 503, or `previous`, the latest sound version that was active
    before, whose ids differ."""

    engine: Literal["auto", "native", "python"] = "auto"
    """Engine that encodes and trains: `native`, `python`, or `auto` for native where it is built,
    else python."""

    model: Literal["strict", "ignore"] = "strict"
    """What `model` means in requests of other servers' clients: `strict`, a tokenizer's name or
    alias, and 404 for any other; `ignore`, nothing, so that every `model` gets the active
    tokenizer."""

    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Least severe level to log: `critical`, `error`, `warning`, `info` or `debug`."""

    log_format: Literal["text", "json"] = "text"
    """Format of the log: `text`, or `json` for one object per line, without the commands to try."""

    max_body_bytes: Annotated[Bytes, Field(ge=1024, le=1 << 40)] = 64 * 1024 * 1024
    """Largest request body in bytes; this and other sizes also as `64M` (K, M, G, T). Streams and
    corpus uploads are exempt."""

    max_response_bytes: Annotated[Bytes, Field(ge=1024, le=1 << 42)] | None = None
    """Most bytes of text that one request may decode, and of text and ids that overlapping chunks
    may repeat. Unset: four times TOKENIZER_MAX_BODY_BYTES."""

    request_memory_bytes: Annotated[Bytes, Field(ge=1024, le=1 << 44)] | None = None
    """Memory in bytes that all requests of a serving process may hold together: large bodies,
    parsed values, unsent responses, and what streams hold back. Further large requests get 503.
    Unset: 16 times TOKENIZER_MAX_BODY_BYTES."""

    max_connections: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """Most connections per serving process. Unset: derived from the limit of open files, at most
    10000."""

    header_seconds: Annotated[float, Field(gt=0, le=3600)] = 10
    """Time in seconds for the headers of a request to arrive. A body gets the same time before its
    minimum rate applies."""

    send_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """Time in seconds a client may go without reading any of its response."""

    stream_idle_seconds: Annotated[float, Field(gt=0, le=86400)] = 300
    """Time in seconds a stream may wait for the next 1024 bytes of its input, or for its reader."""

    work_seconds: Annotated[float, Field(gt=0, le=86400)] = 300
    """Time in seconds that a large request may work on a thread, or an import in its process. Then
    it ends with a 413; a stream with an error."""

    chat_seconds: Annotated[float, Field(gt=0, le=3600)] = 5
    """Time in seconds that a chat template may take for one conversation."""

    chat_memory_bytes: Annotated[Bytes, Field(ge=16 * 1024 * 1024, le=1 << 40)] = 256 * 1024 * 1024
    """Memory in bytes that a chat template may take for one conversation, in a process of its own.
    """

    threads: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Threads for large requests, per process. Unset: one per core, at most four."""

    corpora_max_bytes: Annotated[Bytes, Field(ge=1024, le=1 << 50)] = 100 * 1024 * 1024 * 1024
    """Largest total size of uploaded corpora in bytes, and the most that one training job may
    download."""

    corpus_url_hosts: Annotated[WordList, _if(_check_listed_hosts)] = ()
    """Hosts that training jobs may download from, separated by commas: `host[:port]`, which must
    resolve to a public address, or `host[:port]=ADDRESS` to allow that address or network. Unset:
    none."""

    corpus_s3_prefixes: Annotated[WordList, _if(check_s3_prefixes)] = ()
    """Buckets and prefixes that training jobs may read, separated by commas: `s3://bucket` or
    `s3://bucket/prefix`, for what is below it. Needs the extra `s3`, and credentials as for
    TOKENIZER_STORE. Unset: none."""

    token_files_max_bytes: Annotated[Bytes, Field(ge=1024, le=1 << 50)] | None = None
    """Largest total size of token files in bytes, checked when a job is requested. Unset: limited
    by the disk."""

    train_queue: Annotated[int, Field(ge=0, le=10_000)] = 8
    """Jobs of any kind that may wait. 0: no queue; a request gets 409 while a job runs."""

    jobs_database: Annotated[SecretStr, _if(_check_database)] | None = None
    """Job database that replicas share: `postgresql://user:password@host/database`. Unset: a SQLite
    file in the artifacts folder."""

    lease_seconds: Annotated[float, Field(ge=1, le=86400)] = 60
    """Job lease in seconds: another host may restart a job whose lease was not renewed for this
    long."""

    train_memory_bytes: Annotated[Bytes, Field(ge=1 << 20, le=1 << 50)] | None = None
    """Most resident memory of one job in bytes. A request can only set a lower limit. Unset: three
    quarters of the memory of the machine or container."""

    train_threads: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Threads (processes with the Python engine) that count or encode a corpus. Unset: one per
    core."""

    job_nice: Annotated[int, Field(ge=0, le=19)] = 10
    """Niceness of jobs and imports, 0 to 19. Beside a busy program of niceness 0, a job with 10
    gets a tenth of a processor, with 19 a seventieth: a job of a second may take minutes."""

    keep_versions: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Versions of a name to keep when a job publishes a new one. 0: all. Versions in use are always
    kept."""

    @field_validator("artifacts_dir", mode="before")
    @classmethod
    def _check_folder(cls, value: object) -> object:
        if value == "":  # which would be the current folder
            raise ValueError("is empty; name a folder, or unset the variable")
        return value

    @classmethod
    def from_environment(cls) -> Settings:
        """Read the settings from the environment; raises SettingsError for a wrong one."""
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

    @property
    def names_tokenizers(self) -> bool:
        """Whether the folder or the store of the published tokenizers is named."""
        return bool(self.store) or "artifacts_dir" in self.model_fields_set

    @property
    def thread_count(self) -> int:
        """Threads for large requests."""
        return self.threads or min(4, os.cpu_count() or 1)

    @property
    def response_limit(self) -> int:
        """Most bytes of text, or of overlapping chunks, that one request may make."""
        return self.max_response_bytes or 4 * self.max_body_bytes

    @property
    def memory_limit(self) -> int:
        """Bytes that all requests of a serving process may hold together."""
        return self.request_memory_bytes or 16 * self.max_body_bytes


def missing_corpus_roots(settings: Settings) -> list[Path]:
    """The corpus roots that the variable names and that are no folders; one that cannot be examined
    is not among them."""
    if "corpus_roots" not in settings.model_fields_set:
        return []
    missing = []
    for root in settings.corpus_roots:
        with contextlib.suppress(OSError):
            if not root.is_dir():
                missing.append(root)
    return missing


def describe() -> list[tuple[str, str, str]]:
    """Rows (variable, default, meaning) in the order of the fields."""
    return [
        (PREFIX + name.upper(), _render_default(field.default), _meaning_of(field))
        for name, field in Settings.model_fields.items()
    ]


def render_page() -> str:
    """The text of docs/settings.md."""
    settings = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |"
        for name, default, meaning in describe()
    ]
    others = [f"| `{name}` | {meaning} |" for name, meaning in _OTHER_VARIABLES.items()]
    return "\n".join([_PAGE_HEAD, *settings, _PAGE_MIDDLE, *others, ""])


def unknown_variables(environment: dict[str, str] | None = None) -> list[str]:
    """One line for each `TOKENIZER_` variable that no part of the project reads."""
    known = {row[0] for row in describe()}
    # Their common beginning would make any two of them similar.
    words = [name.removeprefix(PREFIX) for name in known]
    found = set(os.environ if environment is None else environment)
    lines = []
    for name in sorted(found - known - _OTHER_VARIABLES.keys()):
        if name.startswith(PREFIX):
            near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
            remedy = f"did you mean {PREFIX}{near[0]}?" if near else "see docs/settings.md"
            lines.append(f"{name} is not a setting; {remedy}")
    return lines


def _meaning_of(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _render_default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return ":".join(str(part) for part in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_input=False, include_url=False):
        name = str(item["loc"][0]) if item["loc"] else ""
        field = Settings.model_fields.get(name)
        meaning = f" It means: {_meaning_of(field)}" if field else ""
        unset = _render_default(field.default) if field else ""
        default = f" Unset it for the default ({unset})." if unset else ""
        lines.append(f"{PREFIX}{name.upper()}: {explain(item)}.{meaning}{default}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render_page())
