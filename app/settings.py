"""Settings: the environment read once, checked, frozen.

Every variable is here with its default and its meaning, so that the table in the documentation can
be tested against `describe()`. Built by `app.main` and `app.cli` and handed down; nothing else
reads the environment.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.egress import ListedHost

PREFIX: Final = "TOKENIZER_"
_KNOWN_ELSEWHERE: Final = frozenset(
    {"TOKENIZER_TEST_DATA", "TOKENIZER_REQUIRE_NATIVE", "TOKENIZER_URL", "TOKENIZER_API_KEY"}
)

KeyList = Annotated[tuple[SecretStr, ...], NoDecode]
WordList = Annotated[tuple[str, ...], NoDecode]
FolderList = Annotated[tuple[Path, ...], NoDecode]


class SettingsError(ValueError):
    """A variable holds what it cannot; the message names the variable and the remedy."""


class Settings(BaseSettings):
    """What the service was told at start. `Settings.from_environment()` reads it.

    Example:
        >>> Settings(port=9000, corpus_roots="corpora:more").corpus_roots
        (PosixPath('corpora'), PosixPath('more'))
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    artifacts_dir: Path = Field(
        default=Path("artifacts"),
        description="Folder of the published tokenizers, the active pointer and the job database.",
    )
    store: str | None = Field(
        default=None,
        description="Where versions and the active pointer are, if hosts share them: "
        "`s3://bucket/prefix`, or a folder. Unset: in TOKENIZER_ARTIFACTS_DIR.",
    )
    corpus_roots: FolderList = Field(
        default=(Path("corpora"),),
        description="Folders a training run may read, separated by `:`; its paths are below them.",
    )
    admin_keys: KeyList = Field(
        default=(),
        description="Keys for training and promotion, separated by commas. "
        "None: one is generated at start and printed once.",
    )
    read_keys: KeyList = Field(
        default=(),
        description="Keys for encoding and the other read routes, separated by commas. "
        "None: these routes are open.",
    )
    require_admin_key: bool = Field(
        default=False,
        description="Refuse to start without TOKENIZER_ADMIN_KEYS, as the container does.",
    )
    workers: int = Field(default=1, ge=1, le=256, description="Serving processes.")
    default: str = Field(
        default="starter",
        min_length=1,
        description="Tokenizer served until one is promoted: `name` or `name@version`.",
    )
    engine: Literal["auto", "native", "python"] = Field(
        default="auto",
        description="What computes the ids and trains: `native`, `python`, or `auto`: native where "
        "it was built.",
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="info", description="`critical`, `error`, `warning`, `info` or `debug`."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="`text`, or `json`: one object a line."
    )
    max_body_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024,
        le=1 << 40,
        description="Largest request body in bytes; streams have no limit.",
    )
    max_connections: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Connections each serving process holds; unset: as the limit of open files "
        "allows, at most 10000.",
    )
    header_seconds: float = Field(
        default=10,
        gt=0,
        le=3600,
        description="Seconds in which the headers of a request must arrive; a body has as long "
        "before its minimum rate counts.",
    )
    send_seconds: float = Field(
        default=60,
        gt=0,
        le=3600,
        description="Seconds a client may take nothing of its answer.",
    )
    stream_idle_seconds: float = Field(
        default=300,
        gt=0,
        le=86400,
        description="Seconds a stream may wait for 1024 bytes of its text, or for its reader.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Threads for large requests in each process; unset: one for each core, at "
        "most four.",
    )
    corpora_max_bytes: int = Field(
        default=100 * 1024 * 1024 * 1024,
        ge=1024,
        le=1 << 50,
        description="Largest size of all uploaded corpora together, in bytes, and of what one "
        "training run fetches from URLs.",
    )
    corpus_url_hosts: WordList = Field(
        default=(),
        description="Hosts a training run may fetch from, separated by commas: `host` or "
        "`host:port`, whose address must be public, or with `=address` or `=network` that one.",
    )
    token_files_max_bytes: int | None = Field(
        default=None,
        ge=1024,
        le=1 << 50,
        description="Largest size of all token files together, in bytes, looked at when a job is "
        "asked for; unset: what the disk has.",
    )
    train_queue: int = Field(
        default=8,
        ge=0,
        le=10_000,
        description="Jobs, training or encoding, that may wait; 0: none, 409 when busy.",
    )
    jobs_database: SecretStr | None = Field(
        default=None,
        description="Database of the jobs that replicas share: "
        "`postgresql://user:password@host/database`; unset: a SQLite file in the artifacts folder.",
    )
    lease_seconds: float = Field(
        default=60,
        ge=1,
        le=86400,
        description="Seconds after which another host may begin a job again whose server has not "
        "said that it lives.",
    )
    train_memory_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        le=1 << 50,
        description="Most resident memory of a job in bytes, whatever its request allows; unset: "
        "no bound but the request's.",
    )
    train_threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Threads, or processes of the Python engine, that count or encode a corpus; "
        "unset: one for each core.",
    )
    executor: Literal["local", "ray"] = Field(
        default="local",
        description="Who counts for a training job, and encodes: `local`, its own process, or "
        "`ray`, a cluster whose nodes see its files at the same paths.",
    )
    ray_address: str = Field(
        default="auto",
        min_length=1,
        description="Where that cluster is: `host:port`, or `auto`: on this machine.",
    )
    run_storage: str | None = Field(
        default=None,
        min_length=1,
        description="Where the cluster's workers keep what they have done, a folder they share or "
        "`s3://bucket/prefix`; unset: the job's folder below the artifacts.",
    )
    keep_versions: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Versions of a name that stay when a job publishes another; 0: all. What is in "
        "use always stays.",
    )

    @field_validator("admin_keys", "read_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key.strip() for key in value.split(",") if key.strip())
        return value

    @field_validator("corpus_url_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        if isinstance(value, str):
            value = tuple(entry.strip() for entry in value.split(",") if entry.strip())
            for entry in value:
                ListedHost.parse(entry)
        return value

    @field_validator("jobs_database", mode="after")
    @classmethod
    def _check_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _require_postgres_address(value.get_secret_value())
        return value

    @field_validator("corpus_roots", mode="before")
    @classmethod
    def _split_folders(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(folder for folder in value.split(":") if folder)
        return value

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings the environment holds.

        Raises:
            SettingsError: a variable is wrong; names it, says why, and what it may be.
        """
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError(_explain(error)) from None

    @property
    def thread_count(self) -> int:
        """Threads that work on large requests."""
        return self.threads or min(4, os.cpu_count() or 1)


def describe() -> list[tuple[str, str, str]]:
    """Rows (variable, default, meaning), in order: what the documentation shows."""
    return [
        (PREFIX + name.upper(), _render_default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def unknown_variables(environment: dict[str, str] | None = None) -> list[str]:
    """One line for each `TOKENIZER_` variable that means nothing here: a misspelling is said.

    Example:
        >>> unknown_variables({"TOKENIZER_PORTS": "1"})
        ['TOKENIZER_PORTS is not a setting; did you mean TOKENIZER_PORT?']
    """
    known = {row[0] for row in describe()}
    found = set(os.environ if environment is None else environment)
    lines = []
    for name in sorted(found - known - _KNOWN_ELSEWHERE):
        if name.startswith(PREFIX):
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else "see the table of settings"
            lines.append(f"{name} is not a setting; {remedy}")
    return lines


def _require_postgres_address(address: str) -> None:
    """Raise ValueError, which repeats nothing of it, unless it can be one and can be used."""
    try:
        parts = urlsplit(address)
        # An @ in a password would make the rest of it a part of the host, which errors name.
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
        meaning = f" It means: {field.description}" if field else ""
        default = f" Unset it for the default ({_render_default(field.default)})." if field else ""
        lines.append(f"{PREFIX}{name.upper()}: {item['msg']}.{meaning}{default}")
    return "\n".join(lines)
