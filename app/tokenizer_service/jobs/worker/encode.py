"""An encoding job in its child process: encode corpora, ask for permission, publish token files.

The tokenizer is the version that was pinned when the job was made. An attempt continues from the
files of a killed attempt. It also finds token files that an earlier attempt published but did not
report.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tokenizer_core.blobs.atomic_files import remove_folder, replace_synced
from tokenizer_core.corpus import (
    ConversationEncoder,
    EncodingProgress,
    TokenFiles,
    TokenFilesPlan,
    TokenManifest,
    encode_corpus,
    plan_token_files,
)
from tokenizer_core.corpus.token_manifest import partial_folder
from tokenizer_core.engines import choose_engine
from tokenizer_core.errors import (
    TokenFilesCorruptError,
    TokenFilesPlanError,
    TokenizerMismatchError,
)
from tokenizer_core.registry import open_artifacts
from tokenizer_core.strict_json import parse_record
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.jobs.input_files import InputFile
from tokenizer_service.jobs.token_files import TokenFilesFolder, TokenFilesTakenError
from tokenizer_service.jobs.worker.context import (
    WorkerJob,
    corpus_format_of,
    name_inputs,
    open_inputs,
    say,
)

PHASES: Final = {"encoding": "encode", "shuffling": "shuffle"}
"""Phase of the library -> phase of the job."""


def encode_and_publish(job: WorkerJob) -> None:
    """Encode as requested, and publish the token files once the server allows it."""
    request = job.request
    tokenizer, plan = _open_pinned(job)
    say(plan.end_in_words)
    how = request["conversations"]
    encoder = None if how is None else ConversationEncoder(tokenizer, **how)
    folders = TokenFilesFolder.of(job.artifacts_dir)
    growing = folders.growing(request["job_id"], request["takeovers"])
    path = folders.path(request["token_files_id"])
    manifest = _published_before(job, path)
    if manifest is None:
        if growing.exists():  # an earlier attempt ended before publishing
            manifest = TokenFiles.open(growing, tokenizer).manifest
        else:
            manifest = _encode(job, tokenizer, plan, growing, encoder)
        replace_synced(folders.note(growing), manifest.to_json())
        job.wait_for_permission(**_totals(manifest))
        try:
            folders.publish(growing, request["token_files_id"])
        except TokenFilesTakenError:
            if _published_before(job, path) is None:  # else an earlier attempt published it
                raise
    warnings = manifest.warnings(request["validation_share"], request["separator"])
    if encoder is not None:
        warnings = [*encoder.warnings, *warnings]
    for warning in warnings:
        say(f"warning: {warning}")
    say(f"published the token files {request['token_files_id']}")
    job.report_published(
        id=request["token_files_id"],
        **_totals(manifest),
        bytes=manifest.size_bytes,
        warnings=warnings,
    )


def _totals(manifest: TokenManifest) -> dict[str, int]:
    return {
        "documents": sum(split.n_documents for split in manifest.splits),
        "tokens": sum(split.n_tokens for split in manifest.splits),
    }


def _open_pinned(job: WorkerJob) -> tuple[Tokenizer, TokenFilesPlan]:
    """The pinned tokenizer, and the plan that was checked with it."""
    pinned = job.request["tokenizer"]
    store = open_artifacts(job.request["store"], job.artifacts_dir)
    ref = store.resolve(f"{pinned['name']}@{pinned['version']}")
    engine = choose_engine(job.request["engine"])
    tokenizer = store.load(ref, engine=engine.name)
    if tokenizer.spec.fingerprint != pinned["fingerprint"]:
        raise TokenizerMismatchError(
            f"{ref} is not the tokenizer it was when the job was made; post the request again"
        )
    say(f"{ref} encodes with the {engine.name} engine: {engine.reason}")
    return tokenizer, plan_token_files(tokenizer, **job.request["plan"], ref=ref)


def _published_before(job: WorkerJob, path: Path) -> TokenManifest | None:
    """The manifest that an earlier attempt of this job published, or None.

    Raises:
        TokenFilesTakenError: other token files have this id, even if they have the same tokenizer
            and corpora: the documents may be split or held out differently.
    """
    if not path.exists():
        return None
    manifest = TokenFiles.open(path).manifest
    folders = TokenFilesFolder.of(job.artifacts_dir)
    if manifest.to_json() in folders.notes(job.request["job_id"]):
        return manifest
    raise TokenFilesTakenError


def _encode(
    job: WorkerJob,
    tokenizer: Tokenizer,
    plan: TokenFilesPlan,
    growing: Path,
    document_encoder: ConversationEncoder | None,
) -> TokenManifest:
    request = job.request
    files = [parse_record(InputFile, value) for value in request["inputs"]]
    with open_inputs(files) as descriptors:
        paths = name_inputs(job, files, descriptors)
        encode = partial(
            encode_corpus,
            tokenizer,
            paths,
            growing,
            plan,
            corpus_format=corpus_format_of(job, paths),
            workers=request["num_workers"],
            max_bad=request["max_bad"],
            validation_share=request["validation_share"],
            shuffle=request["shuffle"],
            resume=True,
            progress=_reporter(job),
            document_encoder=document_encoder,
        )
        try:
            return encode()
        # The files are damaged, or have other settings.
        except (TokenFilesCorruptError, TokenFilesPlanError) as error:
            say(f"the files of an earlier attempt cannot be used, starting again: {error}")
            remove_folder(partial_folder(growing))
            return encode()


def _reporter(job: WorkerJob) -> Callable[[EncodingProgress], None]:
    """Send progress with the rate, and the time left, of this phase of this attempt."""
    phase, first, started = "", 0, 0.0

    def report(progress: EncodingProgress) -> None:
        nonlocal phase, first, started
        if phase != PHASES[progress.phase]:  # earlier bytes do not count for the rate
            phase = PHASES[progress.phase]
            first, started = progress.bytes_done, time.monotonic()
        counters = {"documents": progress.n_documents, "tokens": progress.n_tokens}
        seconds, done = time.monotonic() - started, progress.bytes_done - first
        if seconds > 0 and done > 0:
            rate = done / seconds
            left = progress.bytes_total - progress.bytes_done
            counters |= {"bytes_per_second": round(rate), "eta_seconds": round(left / rate)}
        message = f"{progress.bytes_done} of {progress.bytes_total} bytes"
        job.events.report(phase, progress.bytes_done, progress.bytes_total, message, counters)

    return report
