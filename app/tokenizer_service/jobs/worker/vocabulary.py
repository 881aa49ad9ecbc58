"""An import in its child process: the files of a form, read within limits and published.

The files may be hostile. The limits end this process, and the server loads only what passed here.
"""

from __future__ import annotations

import contextlib
import re
import resource
import warnings
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any, Final

from tokenizer_core.errors import FormatError, MissingPatternError
from tokenizer_core.presets import load_path_spec, load_preset_spec
from tokenizer_core.registry import open_artifacts
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.jobs.worker.context import WorkerJob, say

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_FILES: Final = 32
_MAX_WRITTEN_BYTES: Final = 1 << 30
_PAIR: Final = {"vocab.json", "merges.txt"}
_RANKS_NEED: Final = (
    "a .tiktoken file says neither how text is split nor which tokens are special; add preset=NAME "
    "to the URL, or pattern=NAME and for each special token special=TOKEN=ID, or no_special=true"
)


def import_and_publish(job: WorkerJob) -> None:
    """Read the uploaded files as the request says, and publish the tokenizer."""
    request = job.request
    limit_process(request["memory_bytes"])
    form = read_form((job.folder.path / "body").read_bytes(), request["content_type"])
    folder = job.folder.scratch_path / "files"
    folder.mkdir()
    for name, content in form.items():
        (folder / name).write_bytes(content)
    # Messages name the files as the request does.
    job.names.update({f"{folder}/": "", str(folder): "the form"})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        spec = _read(folder, sorted(form), request)
    store = open_artifacts(request["store"], job.artifacts_dir)
    store.check_may_publish(request["name"], spec.fingerprint)
    ref = store.publish(spec, name=request["name"], command=f"POST /tokenizers/{request['name']}")
    say(f"published {ref}")
    job.report_published(
        name=ref.name,
        version=ref.version,
        digest=ref.digest,
        vocab_size=len(spec.vocab),
        warnings=[str(one.message) for one in found if issubclass(one.category, UserWarning)],
    )


def limit_process(memory_bytes: int) -> None:
    """Allow this process so much more address space."""
    used = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for which, limit in (
        (resource.RLIMIT_AS, used + memory_bytes),
        (resource.RLIMIT_FSIZE, _MAX_WRITTEN_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        # A system may refuse one of them (macOS has no limit of address space).
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (limit, limit))


def read_form(body: bytes, content_type: str) -> dict[str, bytes]:
    """The parts of a multipart/form-data body by their names; raises FormatError."""
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    if not boundary or not boundary.isascii():
        raise FormatError("the Content-Type of the form has no boundary; let curl -F write it")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise FormatError("the form has no file or no end; send each file with curl -F NAME=@FILE")
    form: dict[str, bytes] = {}
    for part in parts[:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = BytesHeaderParser().parsebytes(head).get_param("name", "", "content-disposition")
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise FormatError(
                "the name of a part is a file name of letters, digits and ._-, as in "
                "curl -F tokenizer.json=@FILE"
            )
        if name in form or len(form) == _MAX_FILES:
            raise FormatError(f"the form has {name} twice, or more than {_MAX_FILES} files")
        form[name] = content
    return form


def _read(folder: Path, names: list[str], request: Any) -> TokenizerSpec:
    preset, pattern, special = request["preset"], request["pattern"], request["special"]
    if preset is not None:
        if len(names) > 1 or pattern is not None or special is not None:
            raise FormatError("preset says all of one file; leave the other files and options out")
        return load_preset_spec(preset, folder / names[0])
    if len(names) == 1 or set(names) == _PAIR:
        paths = [folder / name for name in sorted(names, reverse=True)]
    else:
        paths = [folder]
    try:
        spec = load_path_spec(*paths, pattern=pattern, special_tokens=special, ids=request["ids"])
    except MissingPatternError:
        raise FormatError(_RANKS_NEED) from None
    if pattern and special is None and spec.kind == "ranks" and not spec.added_tokens:
        raise FormatError(_RANKS_NEED)
    return spec
