"""Corpora and token files: both clients with a real server."""

import hashlib

import pytest

from tokenizer_client import InvalidRequestError, PreconditionFailedError


def test_corpora_are_uploaded_replaced_and_removed(admin, tmp_path):
    name = "c"
    corpus = admin.upload_corpus(name, iter(["a ", b"b ", "é"]))
    assert (corpus.id, corpus.bytes) == (name, 6)
    assert corpus.sha256 == hashlib.sha256("a b é".encode()).hexdigest()
    assert admin.describe_corpus(name) == corpus
    with pytest.raises(PreconditionFailedError) as told:
        admin.upload_corpus(name, b"other", replace=False)
    assert told.value.code == "corpus_exists"
    with pytest.raises(InvalidRequestError) as told:
        admin.upload_corpus(name, b"abc\xff")
    assert told.value.byte_offset == 3
    assert admin.describe_corpus(name) == corpus
    assert admin.upload_corpus(name, b"other").bytes == 5
    admin.remove_corpus(name)
    with pytest.raises(FileNotFoundError):
        admin.upload_corpus(name, tmp_path / "none")
