"""ArtifactRef, the name of one version, and the rules for names and versions.

Names become folder names and parts of addresses, so an allow-list limits their characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import ArtifactNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTIVE: Final = "active"
"""The alias of the active version; no tokenizer may have this name."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
VERSION: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """One version of a tokenizer; `digest` is its spec's fingerprint (sha256, hex)."""

    name: str
    version: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def require_ref(ref: ArtifactRef) -> None:
    """Raise TypeError for what is no ArtifactRef, such as a name."""
    if not isinstance(ref, ArtifactRef):
        raise TypeError(
            f"ref must be an ArtifactRef, such as store.resolve('NAME') gives, not {ref!r:.80}"
        )


def checked_name(name: str) -> str:
    """`name`, if it is valid for a tokenizer; else raise ArtifactNameError.

    Example:
        >>> checked_name("../x")
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.ArtifactNameError: invalid name '../x': a tokenizer's name has up ...
    """
    if not NAME.fullmatch(name) or name == ACTIVE:
        raise ArtifactNameError(
            f"invalid name {name!a:.80}: a tokenizer's name has up to 64 of a-z 0-9 . _ - and "
            f"starts with a letter or digit; 'active' is taken"
        )
    return name


def checked_version(version: str) -> str:
    """`version`, if it is well-formed; else raise ArtifactNameError."""
    if not VERSION.fullmatch(version):
        raise ArtifactNameError(
            f"invalid name {version!a:.80}: a version reads like 20261121T041500Z-1a2b3c4d"
        )
    return version


def time_of(version: str) -> datetime:
    """When a version was published."""
    time, _, _ = version.partition("-")
    return datetime.strptime(time, _TIME_FORMAT).replace(tzinfo=UTC)


def next_version(taken: Sequence[str], digest: str) -> str:
    """The version to publish now: the UTC time and the start of `digest`.

    It sorts after all of `taken` (sorted), even if the clock was set back or two versions are
    published within one second. So the last version in order is always the newest.

    Example:
        >>> next_version(["29991231T235958Z-00000000"], "1a2b3c4d5e6f")
        '29991231T235959Z-1a2b3c4d'
    """
    now = datetime.now(UTC)
    if taken and VERSION.fullmatch(taken[-1]):
        now = max(now, time_of(taken[-1]) + timedelta(seconds=1))
    return f"{now.strftime(_TIME_FORMAT)}-{digest[:8]}"
