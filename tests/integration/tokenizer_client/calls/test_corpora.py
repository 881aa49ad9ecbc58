"""Corpora and token files: both clients with a real server."""

import hashlib

import pytest

from tokenizer_client import InvalidRequestError, PreconditionFailedError


def test_corpora_are_uploaded_replaced_and_removed(admin, tmp_path):
    name = "c"
    corpus = admin.corpora.upload(name, iter(["a ", b"b ", "é"]))
    assert (corpus.id, corpus.bytes) == (name, 6)
    assert corpus.sha256 == hashlib.sha256("a b é".encode()).hexdigest()
    assert admin.corpora.get(name) == corpus
    with pytest.raises(PreconditionFailedError) as told:
        admin.corpora.upload(name, b"other", replace=False)
    assert told.value.code == "corpus_exists"
    with pytest.raises(InvalidRequestError) as told:
        admin.corpora.upload(name, b"abc\xff")
    assert told.value.byte_offset == 3
    assert admin.corpora.get(name) == corpus
    assert admin.corpora.upload(name, b"other").bytes == 5
    admin.corpora.remove(name)
    with pytest.raises(FileNotFoundError):
        admin.corpora.upload(name, tmp_path / "none")
