"""The model against torch's own layers; training, sampling and the judge; the README's commands.

`make test-language-model` installs torch and runs this.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import REPOSITORY

torch = pytest.importorskip("torch", reason="torch is not installed: make test-language-model")

EXAMPLE = REPOSITORY / "examples" / "language_model"
sys.path.insert(0, str(EXAMPLE))

import judge  # noqa: E402
import model as lm  # noqa: E402
from sample import generate, load_model  # noqa: E402
from train import Trainer, TrainingConfig  # noqa: E402

from tokenizer_core import Tokenizer  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = b"the quick brown fox jumps over the lazy dog. " * 40
SMALL = lm.ModelConfig(256, context_length=16, width=32, n_layers=2, n_heads=4)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for each other would take most of the time of such small models."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_close(ours, theirs, tolerance=1e-9):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, check_dtype=False)


# ---- Layers


def test_causal_attention_equals_torch():
    torchs = torch.nn.MultiheadAttention(32, 4, bias=False, batch_first=True).eval()
    ours = lm.CausalAttention(32, 4)
    names = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    weights = dict(zip(names, torchs.in_proj_weight.chunk(3), strict=True))
    ours.load_state_dict(weights | {"output_proj.weight": torchs.out_proj.weight})
    x = random(2, 6, 32, dtype=torch.float32)
    hidden = ~torch.ones(6, 6, dtype=torch.bool).tril()
    assert_close(ours(x), torchs(x, x, x, attn_mask=hidden, need_weights=False)[0], 1e-5)


def test_cross_entropy_and_its_gradient_equal_torch():
    logits = (random(5, 7, 11, dtype=torch.float32) * 300).requires_grad_()
    targets = torch.randint(0, 11, (5, 7), generator=torch.Generator().manual_seed(0))
    ours = lm.token_losses(logits, targets).mean()
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert_close(ours, theirs, 1e-5)
    assert_close(torch.autograd.grad(ours, logits)[0], torch.autograd.grad(theirs, logits)[0], 1e-5)


def test_adamw_equals_torch():
    options = {"lr": 0.05, "betas": (0.8, 0.97), "eps": 1e-6, "weight_decay": 0.3}
    parameters = [torch.nn.Parameter(random(4, 3)) for _ in range(2)]
    optimizers = [
        lm.AdamW([parameters[0]], **options),
        torch.optim.AdamW([parameters[1]], **options),
    ]
    for step in range(50):
        for parameter, optimizer in zip(parameters, optimizers, strict=True):
            optimizer.zero_grad()
            (parameter * random(4, 3, seed=step)).square().sum().backward()
            optimizer.step()
    assert_close(parameters[0], parameters[1], 1e-12)


# ---- The model


def test_no_position_sees_a_later_one_and_the_cache_changes_no_logits():
    model = lm.TransformerLM(SMALL)
    ids = torch.arange(10)[None]
    changed = ids.clone()
    changed[0, 6:] = 99
    assert_close(model(ids)[:, :6], model(changed)[:, :6], 1e-6)
    assert not torch.allclose(model(ids)[:, 6:], model(changed)[:, 6:])
    caches = [lm.KeyValueCache() for _ in model.layers]
    parts = [model(part, caches) for part in ids.split([3, 1, 1, 5], dim=1)]
    assert_close(torch.cat(parts, dim=1), model(ids), 1e-5)


# ---- Training


class Text:
    """Batches of bytes."""

    def __init__(self, text):
        self.ids = np.frombuffer(text, np.uint8).astype(np.int64)

    def sample_batch(self, batch_size, context_length, rng):
        starts = rng.integers(0, len(self.ids) - context_length, size=batch_size)
        rows = np.stack([self.ids[start : start + context_length + 1] for start in starts])
        return rows[:, :-1].copy(), rows[:, 1:].copy()


def trainer(n_steps=20, *, model=SMALL, text=TEXT, **options):
    config = TrainingConfig(n_steps, **{"batch_size": 4, "n_warmup_steps": 2} | options)
    return Trainer(model, config, Text(text))


def test_one_batch_can_be_learned_by_heart():
    run = trainer(150, text=TEXT[:17], max_lr=1e-2, min_lr=1e-3, weight_decay=0.0)
    losses = [run.step() for _ in range(150)]
    assert losses[0] > 4
    assert losses[-1] < 0.02


def test_a_resumed_run_has_the_same_losses(tmp_path):
    path = tmp_path / "checkpoint.pt"
    whole = trainer(12)
    losses = [whole.step() for _ in range(12)]
    first = trainer(12)
    assert [first.step() for _ in range(5)] == losses[:5]
    first.save(path, tokenizer="a")
    assert list(tmp_path.iterdir()) == [path]
    resumed = trainer(12)
    resumed.resume(path, tokenizer="a")
    assert [resumed.step() for _ in range(7)] == losses[5:]
    assert resumed.is_done


def test_a_checkpoint_refuses_another_tokenizer_model_or_setting(tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer().save(path, tokenizer="a")
    for load in (trainer().resume, load_model):
        with pytest.raises(ValueError, match="another tokenizer"):
            load(path, tokenizer="b")
    with pytest.raises(ValueError, match="trained with width 32, not 64"):
        trainer(model=replace(SMALL, width=64)).resume(path, tokenizer="a")
    with pytest.raises(ValueError, match=r"trained with max_lr 0\.001, not 0\.5"):
        trainer(max_lr=0.5).resume(path, tokenizer="a")
    trainer(n_steps=40).resume(path, tokenizer="a")


def test_bits_per_byte_are_those_of_the_logits():
    run = trainer()
    inputs, targets = Text(TEXT).sample_batch(3, 16, np.random.default_rng(1))
    targets[0, 10:] = -1  # padding
    lengths = np.ones(256, np.int32)
    lengths[ord("t")] = 0  # as a special token
    lengths[ord("h")] = 3
    with torch.no_grad():
        logs = run.model(torch.from_numpy(inputs)).double().log_softmax(-1)
    nats = n_bytes = 0.0
    for row, column in np.ndindex(*targets.shape):
        target = targets[row, column]
        if target >= 0 and lengths[target]:
            nats -= float(logs[row, column, target])
            n_bytes += int(lengths[target])
    result = run.evaluate([(inputs, targets)], lengths)
    assert (result.n_bytes, result.n_tokens) == (n_bytes, 3 * 16 - 6)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-5)


# ---- Sampling


def test_sampling_repeats_a_seed_and_ends_at_the_stop_id():
    model = lm.TransformerLM(SMALL)

    def text(seed, **options):
        return list(generate(model, [1, 2, 3], max_tokens=40, seed=seed, **options))

    assert text(1) == text(1) != text(2)
    assert len(text(1)) == 40  # beyond the context of 16
    likeliest = text(1, temperature=0)
    assert likeliest == text(2, temperature=0)
    assert text(1, temperature=0, stop_id=likeliest[0]) == []
    ids = [1, 2, 3]
    for chosen in likeliest[:13]:
        assert chosen == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(chosen)


# ---- The judge


@pytest.mark.parametrize("n_ids", [1, 2, 7, 8, 9, 31])
@pytest.mark.parametrize(("context", "batch_size"), [(1, 1), (2, 3), (7, 3), (8, 1)])
def test_each_id_after_the_first_is_a_target_once(n_ids, context, batch_size):
    stream = judge.TokenStream(Tokenizer({id_: bytes([id_]) for id_ in range(256)}, []), ["a"])
    stream.ids = np.arange(100, 100 + n_ids)
    seen = []
    for inputs, targets in stream.windows(batch_size, context):
        assert 1 <= len(inputs) <= batch_size
        for row, wanted in zip(inputs, targets, strict=True):
            for at in np.flatnonzero(wanted >= 0):
                assert row[: at + 1].tolist() == list(range(wanted[at] - at - 1, wanted[at]))
                assert at >= context - max(context // 2, 1) or wanted[at] == 101 + at
                seen.append(int(wanted[at]))
    assert seen == list(range(101, 100 + n_ids))


# ---- The commands of the README

STORY = (
    "Once upon a time there was a {}. The {} liked to play in the sun. The end.\n<|endoftext|>\n"
)
ANIMALS = ("cat", "dog", "bird", "fox", "cow", "duck", "frog", "mouse", "bear", "pig")
TINY = ["model.context_length=32", "model.width=32", "model.n_layers=1", "training.batch_size=8",
        "training.n_warmup_steps=2", "training.n_steps=40", "report.every=10",
        "report.validation_batches=2"]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Run a command in a folder with a text; `python` and `tokenizer` are those of the tests."""
    text = "".join(STORY.format(f"{animal} {i}", animal) for i in range(60) for animal in ANIMALS)
    (tmp_path / "stories.txt").write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    programs = {
        "python": [sys.executable],
        "tokenizer": [sys.executable, "-m", "tokenizer_service.cli"],
    }
    paths = [str(REPOSITORY), str(REPOSITORY / "app"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}

    def run(words, *more, code=0):
        command = [*programs[words[0]], *words[1:], *more]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout + done.stderr

    return run


def metrics(folder, name):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(row["step"], row[name]) for row in rows if name in row]


@pytest.mark.timeout(600)
def test_the_readme_leads_to_a_story(run, tmp_path):
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    _, start, compare = re.findall(r"```sh\n(.*?)```", readme, flags=re.DOTALL)
    train_tokenizer, encode, train, sample = map(shlex.split, start.splitlines())
    size = train_tokenizer.index("--vocab-size") + 1
    train_tokenizer[size] = "300"
    run(train_tokenizer)
    run(encode)
    shown = run(train, *TINY)
    bits = metrics(tmp_path / "run", "bits_per_byte")
    assert [step for step, _ in bits] == [10, 20, 30, 40]
    assert bits[-1][1] < bits[0][1] < 8
    assert f"{bits[-1][1]:.3f} bits per byte" in shown
    assert (tmp_path / "run" / "loss.svg").read_text().count("<polyline") == 2

    # Stopped after 15 of 40 steps, between two reports, with its last line cut off; then continued.
    assert "continuing" not in run(train, *TINY, "out=halves", "report.stop_after=15")
    with (tmp_path / "halves" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "lo')
    assert "continuing halves after step 15" in run(train, *TINY, "out=halves")
    assert metrics(tmp_path / "halves", "loss") == metrics(tmp_path / "run", "loss")

    story = run(sample, "--seed", "1")
    assert story.startswith("Once upon a time")
    assert story == run(sample, "--seed", "1") != run(sample, "--seed", "2")

    assert "no setting" in run([*train, "loud"], code=1)
    assert "speed" in run([*train, "speed=3"], code=1)

    # Another tokenizer's ids are refused.
    train_tokenizer[size] = "290"
    run(train_tokenizer)
    run([*encode[:-1], "others"])
    assert "another tokenizer" in run(train, *TINY, "tokens=others", code=1)

    # GPT-2's vocabulary would take a minute.
    judge_command = shlex.split(compare.splitlines()[0].replace("gpt2", "again=stories"))
    quick = ["--budget=bytes", "--amount=25000", "--validation-bytes=2000", "--seeds=1"]
    shown = run(judge_command, *quick, "--json=judge.json")
    assert "Fewest bits per byte: " in shown
    written = json.loads((tmp_path / "judge.json").read_text())
    assert [each["name"] for each in written["tokenizers"]] == ["stories", "again"]
