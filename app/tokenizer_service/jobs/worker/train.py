"""A training job in its child process: download, train, ask for permission, publish."""

from __future__ import annotations

import asyncio
from functools import partial

from tokenizer_core.engines import choose_engine
from tokenizer_core.errors import counted
from tokenizer_core.registry import open_artifacts
from tokenizer_core.strict_json import parse_record
from tokenizer_core.training.trainer import TrainingOptions, TrainingProgress, train
from tokenizer_service.egress import CorpusUrlError, ListedHost, parse_corpus_url
from tokenizer_service.jobs.errors import InvalidInputsError
from tokenizer_service.jobs.input_files import InputFile
from tokenizer_service.jobs.worker.context import (
    WorkerJob,
    check_inputs,
    corpus_format_of,
    name_inputs,
    open_inputs,
    say,
    vocabulary_options,
)


def train_and_publish(job: WorkerJob) -> None:
    """Train as requested, and publish the tokenizer once the server allows it."""
    request, events = job.request, job.events
    files = [parse_record(InputFile, value) for value in request["inputs"]]
    if request["input_urls"]:
        files = _download(job)
    engine = choose_engine(request["engine"])
    with open_inputs(files) as descriptors:
        say(f"training {request['name']} on {counted(len(files), 'file')}")
        say(f"the {engine.name} engine trains: {engine.reason}")
        paths = name_inputs(job, files, descriptors)
        is_read = False

        def report(progress: TrainingProgress) -> None:
            nonlocal is_read
            if not is_read and progress.phase != "count":
                check_inputs(files, descriptors)
                is_read = True
            events.report(progress.phase, progress.done, progress.total, progress.message)

        store, base = open_artifacts(request["store"], job.artifacts_dir), None
        if request.get("extend"):
            base = store.load(store.resolve(request["extend"])).spec
        result = train(
            paths,
            TrainingOptions(
                vocab_size=request["vocab_size"],
                special_tokens=request["special_tokens"] if base is None else (),
                pattern=request["pattern"] if base is None else None,
                extend=base,
                vocabulary=vocabulary_options(request),
                engine=engine.name,
                num_workers=request["num_workers"],
                corpus_format=corpus_format_of(job, paths),
                max_bad=request["max_bad"],
                scratch_folder=job.folder.scratch_path,
            ),
            progress=report,
        )
        provenance = [
            {
                "name": job.names.get(source.path, source.path),
                "size_bytes": source.size_bytes,
                "sha256": source.sha256,
            }
            for source in result.counts.sources
        ]
    for warning in result.warnings:
        say(f"warning: {warning}")
    job.wait_for_permission()
    ref = store.publish(
        result.spec,
        name=request["name"],
        training=result.report.to_dict(),
        provenance=provenance,
        command=f"POST /train, job {request['job_id']}",
    )
    say(f"published {ref}")
    job.report_published(
        name=ref.name,
        version=ref.version,
        digest=ref.digest,
        vocab_size=result.report.vocab_size,
        warnings=result.warnings,
    )


def _download(job: WorkerJob) -> list[InputFile]:
    # Imported here because httpx takes a tenth of a second, and most jobs download nothing.
    from tokenizer_service.jobs.downloads import download_corpora

    hosts = [ListedHost.parse(entry) for entry in job.request["corpus_url_hosts"]]
    try:
        prefixes = job.request["corpus_s3_prefixes"]
        urls = [parse_corpus_url(url, hosts, prefixes) for url in job.request["input_urls"]]
    except CorpusUrlError as error:
        detail = f"a URL is not taken any more: {error}"
        raise InvalidInputsError("download_refused", detail) from None
    download = download_corpora(
        urls,
        job.folder.documents_path,
        max_bytes=job.request["max_download_bytes"],
        report=partial(job.events.report, "download"),
    )
    return asyncio.run(download)
