"""What a training request names, found and bound: each file as it is when the job is made.

It stands alone because a request may name its corpus in four ways, and a job knows only files (and
URLs, which its own process fetches). Touches the disk: call it from a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from app.egress import CorpusUrl, CorpusUrlError, ListedHost
from app.jobs.corpus_paths import CorpusFile, CorpusPathError, find_corpus_file
from app.jobs.errors import InvalidInputsError
from tokenizer_client.schemas.jobs import find_document_separator

if TYPE_CHECKING:
    from app.jobs.corpus_store import CorpusStore
    from app.jobs.folder import JobFolder
    from app.settings import Settings
    from tokenizer_client.schemas.jobs import TrainRequest

Found = TypeVar("Found")


def find_inputs(
    asked: TrainRequest, settings: Settings, corpora: CorpusStore, folder: JobFolder
) -> list[CorpusFile]:
    """The files of a request, documents written to `folder`; none where URLs are to be fetched.

    Raises:
        InvalidInputsError: points at each name that cannot be used.
        OSError: the disk refuses.
    """
    if asked.documents is not None:
        folder.make()
        separator = find_document_separator(asked.special_tokens)
        return folder.write_documents(asked.documents, separator)
    if asked.input_urls is not None:
        hosts = [ListedHost.parse(entry) for entry in settings.corpus_url_hosts]
        _each("input_urls", asked.input_urls, lambda url: CorpusUrl.parse(url, hosts))
        return []
    if asked.corpus_ids is not None:
        field, names, find = "corpus_ids", asked.corpus_ids, _corpus_finder(corpora)
    else:
        roots = settings.corpus_roots
        field, names = "input_paths", asked.input_paths or []
        find = lambda path: find_corpus_file(roots, path)  # noqa: E731
    files = _each(field, names, find)
    if not any(file.size_bytes for file in files):
        raise InvalidInputsError(
            "empty_corpus",
            "The corpus files are empty; there is nothing to learn from.",
            [(f"/{field}", "every file is empty")],
        )
    return files


def _corpus_finder(corpora: CorpusStore) -> Callable[[str], CorpusFile]:
    def find(corpus_id: str) -> CorpusFile:
        try:
            file = corpora.find_file(corpus_id)
        except CorpusPathError:
            file = None
        if file is None:
            raise CorpusPathError("there is no corpus with this id; see GET /corpora")
        return file

    return find


_CODES = {
    "input_paths": "invalid_corpus_path",
    "input_urls": "invalid_corpus_url",
    "corpus_ids": "corpus_not_found",
}


def _each(field: str, names: Sequence[str], find: Callable[[str], Found]) -> list[Found]:
    """What `find` gives for each name, or one problem for all that it refuses."""
    found: list[Found] = []
    wrong: list[tuple[str, str]] = []
    for index, name in enumerate(names):
        try:
            found.append(find(name))
        except (CorpusPathError, CorpusUrlError) as error:
            wrong.append((f"/{field}/{index}", str(error)))
    if wrong:
        index_text = wrong[0][0].rpartition("/")[2]
        raise InvalidInputsError(_CODES[field], f"{field}[{index_text}]: {wrong[0][1]}.", wrong)
    return found
