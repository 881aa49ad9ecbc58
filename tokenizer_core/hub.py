"""Downloads the tokenizer files of a model from the Hugging Face Hub, with `huggingface_hub`.

`huggingface_hub` is the extra `hub`. It keeps the files in its cache and follows its variables of
the environment: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN`.
"""

from __future__ import annotations

from pathlib import Path

from tokenizer_core.errors import HubError
from tokenizer_core.formats.model_folder import (
    FILE_NAMES,
    MERGES,
    SENTENCEPIECE,
    TEKKEN,
    TOKENIZER,
    VOCAB,
    has_vocabulary,
)


def download_model_folder(name: str, revision: str | None = None) -> Path:
    """The folder in the cache with the tokenizer files of the model `owner/name`.

    `revision` is a branch, a tag or a commit (default: `main`). Files in the cache are not fetched
    again. Without a network, the folder of an earlier call is used.

    Raises:
        HubError: `huggingface_hub` is not installed; no such model or revision; no network and
            nothing in the cache; a mirror answers with anything else; the model has no
            `tokenizer.json`, no `vocab.json` with `merges.txt`, no `tekken.json`, and no
            `tokenizer.model` of SentencePiece.
    """
    # Imported here because it is optional, and because it reads its variables when it is imported.
    try:
        import huggingface_hub
    except ImportError as error:
        raise HubError(
            "downloads from the Hugging Face Hub need huggingface_hub: "
            "pip install 'tokenizer-service[hub]'"
        ) from error
    if name.count("/") != 1 or not all(name.split("/")):
        raise HubError(f"the model {name!r:.80} must be owner/name, such as Qwen/Qwen3-8B")
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(FILE_NAMES)
        )
    # A server that is no Hub may answer with anything: huggingface_hub then fails with any error.
    except Exception as error:
        raise _error(name, error) from error
    if not has_vocabulary(Path(folder)):
        raise HubError(
            f"the model {name} has no {TOKENIZER}, no {VOCAB} with {MERGES}, no {TEKKEN}, and no "
            f"{SENTENCEPIECE} of SentencePiece; download its vocabulary and load that file"
        )
    return Path(folder)


def _error(name: str, error: Exception) -> HubError:
    reason = " ".join(str(error).split())
    return HubError(
        f"the tokenizer of {name} could not be downloaded ({type(error).__name__}: {reason:.300}); "
        f"check the name, the revision, HF_TOKEN, the network, HF_ENDPOINT and HF_HUB_OFFLINE"
    )
