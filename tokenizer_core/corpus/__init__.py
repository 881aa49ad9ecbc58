"""Token files: the ids of a corpus as files for training, bound to the tokenizer that made them.

- plan: `token_plan`, `token_layouts` (the file formats of each trainer)
- write: `token_writer`, `split_writer`, `staging`
- describe: `token_manifest`, `document_index` (where documents are), `token_counts`, `loss_mask`
- read: `token_files`, `token_dataset` (training batches), `token_samples` (a data set of
  PyTorch), `verify_token_files`
- pack documents into sequences: `packing`, `best_fit`
- in a bucket: `remote_token_files`
- from documents: `corpus_encoding`, with `document_batches`, `document_cuts`, `batch_encoding`,
  `encoding_run` and `document_shuffle`; from conversations: `conversation_encoding`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

# This name is also that of its module.
from tokenizer_core.corpus.verify_token_files import verify_token_files
from tokenizer_core.documents import CorpusFormat

if TYPE_CHECKING:
    from tokenizer_core.corpus.conversation_encoding import ConversationEncoder
    from tokenizer_core.corpus.corpus_encoding import encode_corpus
    from tokenizer_core.corpus.encoding_run import EncodingProgress
    from tokenizer_core.corpus.packing import PackManifest, pack_token_files, verify_pack
    from tokenizer_core.corpus.remote_token_files import upload_token_files
    from tokenizer_core.corpus.token_counts import RARE
    from tokenizer_core.corpus.token_dataset import TokenDataset
    from tokenizer_core.corpus.token_files import TokenFiles
    from tokenizer_core.corpus.token_layouts import LAYOUTS
    from tokenizer_core.corpus.token_manifest import LostTokens, SplitRecord, TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan, plan_token_files
    from tokenizer_core.corpus.token_writer import TokenFilesWriter, can_resume

__all__ = [
    "LAYOUTS",
    "RARE",
    "ConversationEncoder",
    "CorpusFormat",
    "EncodingProgress",
    "LostTokens",
    "PackManifest",
    "SplitRecord",
    "TokenDataset",
    "TokenFiles",
    "TokenFilesPlan",
    "TokenFilesWriter",
    "TokenManifest",
    "can_resume",
    "encode_corpus",
    "pack_token_files",
    "plan_token_files",
    "upload_token_files",
    "verify_pack",
    "verify_token_files",
]

_HOMES: Final = {
    "LAYOUTS": "token_layouts",
    "RARE": "token_counts",
    "ConversationEncoder": "conversation_encoding",
    "EncodingProgress": "encoding_run",
    "LostTokens": "token_manifest",
    "PackManifest": "packing",
    "SplitRecord": "token_manifest",
    "TokenDataset": "token_dataset",
    "TokenFiles": "token_files",
    "TokenFilesPlan": "token_plan",
    "TokenFilesWriter": "token_writer",
    "TokenManifest": "token_manifest",
    "can_resume": "token_writer",
    "encode_corpus": "corpus_encoding",
    "pack_token_files": "packing",
    "plan_token_files": "token_plan",
    "upload_token_files": "remote_token_files",
    "verify_pack": "packing",
}


if not TYPE_CHECKING:  # else a misspelt name has a type

    def __getattr__(name: str) -> object:
        """Import a public name on first use: writing token files needs no chat templates."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
