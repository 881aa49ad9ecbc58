"""The judge: equal text for all, bits per byte by hand, budgets, and equal runs for equal seeds.

All tests here train models, so they need torch; `test_judge_data.py` has those that do not.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.tokenizer_core.evaluation.small_tokenizers import THE, merging
from tokenizer_core import train_bpe
from tokenizer_core.errors import CorpusError, JudgeError
from tokenizer_core.evaluation.judge import JudgeOptions, judge
from tokenizer_core.evaluation.judge_data import ModelSize
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.tokenizer import Tokenizer

torch = pytest.importorskip("torch", reason="torch is not installed: make test-language-model")
language_model = pytest.importorskip("tokenizer_core.evaluation.language_model")

from tests.tokenizer_core.evaluation.compiling import without_compiler  # noqa: E402

pytestmark = pytest.mark.torch
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

SEPARATOR = "<|endoftext|>"
SMALL = ModelSize("small test", 16, 1, 2, 16, 4, 1e-2)
OPTIONS = JudgeOptions(
    budget="bytes", amount=4000, size=SMALL, n_seeds=1, validation_bytes=600, device="cpu"
)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other would take most of the time of such small models."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    documents = [
        f"the other {i}, naïve then the e\u0301nd {i * 7919 % 101}\n" * 3 for i in range(60)
    ]
    path.write_text(SEPARATOR.join(documents), encoding="utf-8")
    return path


@pytest.mark.parametrize("normalizer", ["none", "nfc"])
def test_a_tokenizer_that_drops_text_is_refused(corpus, normalizer):
    letters = SplitPattern("custom", "[a-z]+", unmatched="drop")
    spec = replace(merging(THE).spec, pattern=letters, normalizer=normalizer)
    with pytest.raises(JudgeError, match="drops a part of the text"):
        judge({"letters": Tokenizer.from_spec(spec)}, corpus, OPTIONS)


def three():
    return {
        "the": merging(THE),
        "bytes": merging([]),
        "nfc": merging(THE, normalizer="nfc", special=["<|end|>"]),
    }


def test_every_tokenizer_has_the_same_text(corpus):
    judgement = judge(three(), corpus, OPTIONS)
    of_bytes = {each.name: each for each in judgement.tokenizers}["bytes"]
    # a byte tokenizer has one token for each byte
    assert of_bytes.n_validation_tokens == judgement.corpus.validation_bytes
    assert of_bytes.bytes_per_token == 1
    for judged in judgement.tokenizers:
        n_bytes = judged.bytes_per_token * judged.n_validation_tokens
        assert n_bytes == pytest.approx(judgement.corpus.validation_bytes)
        (model,) = judged.models
        nats = model.loss * judged.n_validation_tokens
        assert model.bits_per_byte == pytest.approx(
            nats / math.log(2) / judgement.corpus.validation_bytes
        )
        assert 0 < model.bits_per_byte < 8
    assert {each.normalizer for each in judgement.tokenizers} == {"none", "nfc"}
    whole = corpus.read_text(encoding="utf-8").replace(SEPARATOR, "")
    known = judgement.corpus
    assert known.train_bytes + known.validation_bytes == len(whole.encode())
    assert 600 <= known.validation_bytes < 600 + 200
    assert known.n_documents == 60


def test_bits_per_byte_are_those_of_the_logits(corpus, monkeypatch):
    """Each id of the validation text, one at a time, with the context that the window gives it."""
    trainers, streams = [], []

    class Recorded(language_model.Trainer):
        def evaluate(self, windows, n_bytes_of_ids):
            trainers.append(self)
            batches = list(windows)
            streams.append(batches)
            return super().evaluate(batches, n_bytes_of_ids)

    monkeypatch.setattr(language_model, "Trainer", Recorded)
    tokenizer = merging(THE)
    judgement = judge({"the": tokenizer}, corpus, OPTIONS)
    (trainer,), (batches,) = trainers, streams
    boundary = tokenizer.spec.largest_id + 1
    nats, counted = 0.0, []
    for inputs, targets in batches:
        for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            for at, target in enumerate(wanted):
                if target in (-1, boundary):
                    continue
                with torch.no_grad():
                    logits = trainer.model(torch.tensor([row[: at + 1]]))[0, -1].double()
                nats -= float(torch.log_softmax(logits, dim=-1)[target])
                counted.append(target)
    found = judgement.tokenizers[0].models[0]
    n_bytes = judgement.corpus.validation_bytes
    assert len(tokenizer.decode_bytes(counted)) == n_bytes
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-5)


def test_a_model_that_takes_all_bytes_for_equally_likely_has_eight_bits(corpus, monkeypatch):
    def forward(self, ids, caches=None):
        logits = torch.zeros(*ids.shape, self.config.vocab_size)
        logits[..., -1] = -40  # the boundary
        return logits + 0 * sum(parameter.sum() for parameter in self.parameters())

    monkeypatch.setattr(language_model.TransformerLM, "forward", forward)
    judgement = judge({"bytes": merging([])}, corpus, OPTIONS)
    assert judgement.tokenizers[0].bits_per_byte.mean == pytest.approx(8, abs=1e-6)


def test_equal_seeds_give_equal_losses_and_others_give_others(corpus):
    def losses(seed, n_seeds):
        options = replace(OPTIONS, seed=seed, n_seeds=n_seeds)
        (judged,) = judge({"the": merging(THE)}, corpus, options).tokenizers
        return [model.bits_per_byte for model in judged.models]

    first = losses(3, 2)
    assert losses(3, 2) == first
    assert losses(3, 1) == first[:1]
    assert first[0] != first[1]


def test_a_budget_of_operations_and_one_of_bytes(corpus):
    tokenizers = three()
    step = SMALL.n_tokens_per_step
    by_bytes = judge(tokenizers, corpus, OPTIONS)
    for judged in by_bytes.tokenizers:
        assert judged.n_tokens == judged.n_steps * step
        per_id = judged.n_bytes / judged.n_tokens
        assert 4000 - step * per_id < judged.n_bytes <= 4000
        assert judged.epochs == pytest.approx(
            judged.n_bytes / by_bytes.corpus.train_bytes, rel=1e-3
        )
    amount = 60 * step * max(judged.flops_per_token for judged in by_bytes.tokenizers)
    options = replace(OPTIONS, budget="flops", amount=amount)
    for judged in judge(tokenizers, corpus, options).tokenizers:
        assert judged.flops == judged.n_tokens * judged.flops_per_token
        assert amount - step * judged.flops_per_token < judged.flops <= amount
        sizes = language_model.ModelConfig(judged.vocab_size + 1, 16, 16, 1, 2)
        model = language_model.TransformerLM(sizes)
        assert judged.n_parameters == model.n_parameters
        embedded = model.token_embeddings.weight.numel() + model.lm_head.weight.numel()
        assert judged.n_parameters_of_layers == model.n_parameters - embedded


def test_a_trained_tokenizer_compresses_and_learns_a_repetitive_text_faster(tmp_path):
    rng = np.random.default_rng(0)
    words = ["stone", "river", "the", "garden", "winter", "lantern", "and", "mountain"]
    path = tmp_path / "repetitive.txt"
    documents = [" ".join(rng.choice(words, 20).tolist()) for _ in range(200)]
    path.write_text(SEPARATOR.join(documents))
    vocab, merges = train_bpe(path, 300, [SEPARATOR], num_workers=1)
    trained = Tokenizer(vocab, merges, [SEPARATOR])
    options = replace(OPTIONS, budget="flops", amount=3 * 10**8, validation_bytes=2000)
    judgement = judge({"bytes": merging([]), "trained": trained}, path, options)
    by_name = {each.name: each for each in judgement.tokenizers}
    assert by_name["trained"].bytes_per_token > 3 * by_name["bytes"].bytes_per_token
    assert judgement.best is by_name["trained"]
    # eight equally likely words of 5.25 letters and a space: 0.48 bits for each byte
    assert 0.45 < by_name["trained"].bits_per_byte.mean < by_name["bytes"].bits_per_byte.mean
    for judged in judgement.tokenizers:
        curve = judged.models[0].curve
        assert curve[-1].bits_per_byte < curve[0].bits_per_byte
        assert (curve[-1].n_tokens, curve[-1].flops) == (judged.n_tokens, judged.flops)


def test_copies_of_a_document_are_on_the_same_side_in_any_order(tmp_path, monkeypatch):
    documents = [f"document {i % 40} of some length, the other\n" for i in range(120)]
    seen = []

    class Recorded(language_model.Trainer):
        def __init__(self, model, config, batches):
            seen.append(Counter(texts_of(batches)))
            super().__init__(model, config, batches)

    def texts_of(stream):
        text = tokenizer.decode_bytes([id_ if id_ < 256 else 0 for id_ in stream.ids.tolist()])
        return text.decode().split("\0")[1:]

    monkeypatch.setattr(language_model, "Trainer", Recorded)
    tokenizer = merging([])
    options = replace(OPTIONS, amount=800)
    for order in (documents, documents[::-1]):
        path = tmp_path / "copies.txt"
        path.write_text(SEPARATOR.join(order))
        judge({"bytes": tokenizer}, path, options)
    assert seen[0] == seen[1]
    assert set(seen[0].values()) == {3}
    assert 0 < len(seen[0]) < 40


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        (["one document"], {}, "has 1 documents.*--separator"),
        (["first document", "other document"], {}, "too small.*--validation-bytes"),
        ([f"document {i}" for i in range(99)], {"amount": 400}, "for [0-9] steps.*give at least"),
        ([f"document {i}" for i in range(99)], {"device": "cuda:99"}, "GPUs here; take another"),
    ],
)
def test_what_cannot_be_judged_says_the_remedy(tmp_path, documents, options, message):
    path = tmp_path / "corpus.txt"
    path.write_text(SEPARATOR.join(documents))
    with pytest.raises((CorpusError, JudgeError), match=message):
        judge({"bytes": merging([])}, path, replace(OPTIONS, validation_bytes=200, **options))


def test_the_amount_that_an_error_names_is_enough(corpus):
    with pytest.raises(JudgeError) as caught:
        judge({"bytes": merging([])}, corpus, replace(OPTIONS, budget="flops", amount=1000))
    named = str(caught.value).partition("give at least ")[2].partition(", or")[0]
    options = replace(OPTIONS, budget="flops", amount=int(named.replace(",", "")))
    assert judge({"bytes": merging([])}, corpus, options).tokenizers[0].n_steps >= 10


def test_a_model_that_diverges_is_an_error(corpus):
    options = replace(OPTIONS, size=replace(SMALL, learning_rate=1e30))
    with pytest.raises(JudgeError, match=r"bytes, seed 0: the loss of step .* lower the learning"):
        judge({"bytes": merging([])}, corpus, options)


def test_a_model_that_cannot_be_compiled_is_an_error(corpus):
    with (
        without_compiler(),
        pytest.raises(JudgeError, match=r"torch cannot compile the model: .*C[+][+] compiler"),
    ):
        judge({"bytes": merging([])}, corpus, replace(OPTIONS, compiles=True))


def test_too_little_memory_of_the_gpu_is_an_error(corpus, monkeypatch):
    def step(self):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(language_model.Trainer, "step", step)
    with pytest.raises(JudgeError, match="too little memory for bytes; take a smaller batch"):
        judge({"bytes": merging([])}, corpus, OPTIONS)


@needs_gpu
def test_a_gpu_judges_as_the_cpu_does(corpus):
    cpu = judge(three(), corpus, OPTIONS)
    gpu = judge(three(), corpus, replace(OPTIONS, device="auto"))
    assert torch.cuda.get_device_name() in gpu.machine
    assert gpu.machine.endswith("bfloat16")
    for mine, theirs in zip(gpu.tokenizers, cpu.tokenizers, strict=True):
        assert mine.bits_per_byte.mean == pytest.approx(theirs.bits_per_byte.mean, rel=2e-2)
        assert (mine.n_tokens, mine.flops) == (theirs.n_tokens, theirs.flops)


@needs_gpu
def test_a_model_that_does_not_fit_the_gpu_is_an_error_and_frees_it(corpus):
    # Its first array would take 400 GB, so other tests on the same GPU keep their memory.
    huge = replace(SMALL, context_length=64, batch_size=400_000, width=4096)
    options = replace(OPTIONS, device="cuda", size=huge, amount=10**10)
    with pytest.raises(JudgeError, match="too little memory for bytes; take a smaller batch"):
        judge({"bytes": merging([])}, corpus, options)
    judge({"bytes": merging([])}, corpus, replace(OPTIONS, device="cuda"))


def test_the_progress_rises_to_nearly_all_and_an_interrupt_leaves_no_files(
    corpus, tmp_path, monkeypatch
):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    shown = []
    judge({"bytes": merging([])}, corpus, OPTIONS, lambda word, done: shown.append((word, done)))
    fractions = [done for _, done in shown]
    assert fractions == sorted(fractions)
    assert 0.5 < fractions[-1] <= 1
    assert [word for word, _ in shown][:2] == ["encoding for bytes", "bytes, seed 0"]
    assert list(folder.iterdir()) == []

    def interrupt(word, done):
        if done:
            assert list(folder.iterdir()) != []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge({"bytes": merging([])}, corpus, OPTIONS, interrupt)
    assert list(folder.iterdir()) == []
