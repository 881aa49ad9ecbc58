"""Jobs: both clients with a real server."""

import numpy as np
import pytest

from tests.tokenizer_service.conftest import CORPUS
from tokenizer_client import (
    ConflictError,
    InvalidRequestError,
    JobFailedError,
    NotFoundError,
)
from tokenizer_core.corpus import TokenFiles

SPECIAL = "<|endoftext|>"
TEXT = f"{CORPUS}{SPECIAL}" * 20


@pytest.mark.parametrize("make_client", ["async"], indirect=True)
def test_a_corpus_is_encoded_and_downloaded_and_a_promotion_rolled_back(admin, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    told = []
    corpus = admin.corpora.upload("news", path, on_progress=lambda *sizes: told.append(sizes))
    assert corpus.bytes == len(TEXT.encode())
    assert told == [(corpus.bytes, corpus.bytes)]

    before = admin.tokenizers.active()
    promotion = admin.tokenizers.promote("other", if_match=before.digest)
    assert admin.tokenizers.active().digest == promotion.active.digest != before.digest

    # The other tokenizer's ids begin at 1000: none is also one of the pinned one.
    pinned = admin.pinned(f"starter@{before.version}", digest=before.digest)
    seen = []
    started = pinned.corpora.encode("news", token_files_id="news", validation_share=0.2, seed=1)
    done = admin.jobs.wait(started.id, on_progress=seen.append)
    assert (done.state, seen[-1]) == ("succeeded", done)
    folder = tmp_path / "tokens"
    view = admin.token_files.download("news", folder)
    files = TokenFiles.open(folder)
    assert files.manifest.plan.tokenizer.version == before.version
    assert files.n_tokens("train") == view.splits["train"].tokens
    text = pinned.decode(np.fromfile(folder / "train.bin", np.uint16)[:50])
    assert text == TEXT[: len(text)]

    assert admin.tokenizers.roll_back(promotion).active.digest == before.digest
    assert admin.tokenizers.active() == before
    with pytest.raises(ConflictError):  # a rollback can return to it
        admin.tokenizers.remove(f"other@{promotion.active.version}")
    admin.token_files.remove("news")
    admin.corpora.remove("news")
    assert admin.corpora.list().corpora == []
    assert admin.token_files.list().token_files == []
    assert [one.kind for one in admin.jobs.list(kind="encode")] == ["encode"]


@pytest.mark.parametrize("make_client", ["blocking"], indirect=True)
def test_a_failed_job_raises_its_reason(admin):
    with pytest.raises(InvalidRequestError, match="exactly one of"):
        admin.train(vocab_size=300)
    with pytest.raises(NotFoundError):
        admin.corpora.encode("no-such-corpus")
    with pytest.raises(NotFoundError):
        admin.jobs.wait("20261122T000000Z-0123456789ab")
    started = admin.train(documents=["low lower " * 50], vocab_size=300, limits={"seconds": 0.001})
    with pytest.raises(JobFailedError, match=started.id) as told:
        admin.jobs.wait(started.id)
    assert told.value.job.state == "failed"
    assert told.value.code == told.value.job.error.code
    assert admin.jobs.cancel(started.id).state == "failed"
