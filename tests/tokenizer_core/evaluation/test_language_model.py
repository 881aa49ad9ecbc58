"""The language model against torch's own layers, loss, optimizer and clipping; training, resuming
and sampling. `make test-language-model` installs torch and runs this."""

import io
import math
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-language-model")

from tests.tokenizer_core.evaluation.compiling import without_compiler  # noqa: E402
from tokenizer_core.errors import FormatError  # noqa: E402
from tokenizer_core.evaluation import language_model as lm  # noqa: E402

pytestmark = pytest.mark.torch
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

TEXT = b"the quick brown fox jumps over the lazy dog. " * 40
SMALL = lm.ModelConfig(256, context_length=16, width=32, n_layers=2, n_heads=4)


class Text:
    """Batches of bytes."""

    def __init__(self, text=TEXT):
        self.ids = np.frombuffer(text, np.uint8).astype(np.int64)

    def sample_batch(self, batch_size, context_length, rng):
        starts = rng.integers(0, len(self.ids) - context_length, size=batch_size)
        rows = np.stack([self.ids[start : start + context_length + 1] for start in starts])
        return rows[:, :-1].copy(), rows[:, 1:].copy()


def trainer(n_steps=20, *, model=SMALL, text=TEXT, **options):
    config = lm.TrainingConfig(n_steps, **{"batch_size": 4, "n_warmup_steps": 2} | options)
    return lm.Trainer(model, config, Text(text))


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_close(ours, theirs, tolerance=1e-9):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, check_dtype=False)


@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_is_torchs(is_causal):
    queries, keys, values = (random(2, 3, 7, 4, seed=seed).requires_grad_() for seed in range(3))
    mask = torch.ones(7, 7, dtype=torch.bool).tril() if is_causal else None
    ours = lm.attention(queries, keys, values, mask)
    theirs = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)
    assert_close(ours, theirs, 1e-6)  # ours computes the scores in float32
    weights = random(2, 3, 7, 4, seed=9)
    for got, wanted in zip(
        torch.autograd.grad((ours * weights).sum(), (queries, keys, values)),
        torch.autograd.grad((theirs * weights).sum(), (queries, keys, values)),
        strict=True,
    ):
        assert_close(got, wanted, 1e-6)


def test_multi_head_attention_is_torchs():
    torchs = torch.nn.MultiheadAttention(32, 4, bias=False, batch_first=True).eval()
    ours = lm.CausalAttention(32, 4)
    projections = torchs.in_proj_weight.chunk(3)
    names = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    weights = dict(zip(names, projections, strict=True))
    ours.load_state_dict(weights | {"output_proj.weight": torchs.out_proj.weight})
    x = random(2, 6, 32, dtype=torch.float32)
    hidden = ~torch.ones(6, 6, dtype=torch.bool).tril()
    assert_close(ours(x), torchs(x, x, x, attn_mask=hidden, need_weights=False)[0], 1e-5)


def test_rope_turns_each_pair_as_a_complex_number():
    x, positions = random(2, 5, 8), torch.tensor([3, 0, 7, 1, 7])
    pairs = torch.view_as_complex(x.unflatten(-1, (4, 2)).contiguous())
    angles = positions[:, None] * 100.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    wanted = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    assert_close(lm.RotaryEmbedding(100.0, 8, 10)(x, positions), wanted, 1e-6)


def test_rope_keeps_what_depends_on_distance():
    rope = lm.RotaryEmbedding(10_000.0, 16, 64)
    query, key = random(16, seed=1), random(16, seed=2)
    at = [
        float(rope(query[None], torch.tensor([p]))[0] @ rope(key[None], torch.tensor([p - 5]))[0])
        for p in (5, 20, 63)
    ]
    assert at == pytest.approx([at[0]] * 3, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_is_torchs_and_does_not_overflow(dtype):
    norm = lm.RMSNorm(16)
    norm.weight.data = random(16, dtype=torch.float32)
    x = random(3, 16, dtype=torch.float32).to(dtype)
    theirs = torch.nn.functional.rms_norm(x.float(), (16,), norm.weight, norm.eps).to(dtype)
    assert_close(norm(x), theirs, 1e-6)
    assert norm((x.float() * 1e18).to(dtype)).isfinite().all()


def test_small_layers_are_torchs():
    x = random(4, 9) * 5
    assert_close(lm.silu(x), torch.nn.functional.silu(x))
    assert_close(lm.softmax(x + 1000, dim=0), x.softmax(dim=0))
    ids = torch.tensor([[1, 2], [2, 7]])
    embedding = lm.Embedding(8, 3)
    assert_close(embedding(ids), torch.nn.functional.embedding(ids, embedding.weight))


def test_cross_entropy_and_its_gradient_are_torchs():
    logits = (random(5, 7, 11, dtype=torch.float32) * 300).requires_grad_()
    targets = torch.randint(0, 11, (5, 7), generator=torch.Generator().manual_seed(0))
    ours = lm.token_losses(logits, targets).mean()
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert_close(ours, theirs, 1e-5)
    assert_close(torch.autograd.grad(ours, logits)[0], torch.autograd.grad(theirs, logits)[0], 1e-5)


def test_gradients_of_the_whole_model_are_finite_differences():
    config = lm.ModelConfig(5, context_length=4, width=4, n_layers=1, n_heads=2, d_ff=8)
    model = lm.TransformerLM(config).double()
    ids, targets = torch.tensor([[1, 2, 3, 0]]), torch.tensor([[2, 3, 0, 4]])

    def loss():
        logits = model(ids)
        return torch.nn.functional.cross_entropy(logits[0], targets[0])

    loss().backward()
    for name, parameter in model.named_parameters():
        direction = random(*parameter.shape, seed=len(name))
        slope = float((parameter.grad * direction).sum())
        sides = []
        for sign in (1, -1):
            # Attention and norm work in float32, so the step must be large.
            parameter.data += sign * 1e-3 * direction
            sides.append(float(loss().detach()))
            parameter.data -= sign * 1e-3 * direction
        assert slope == pytest.approx((sides[0] - sides[1]) / 2e-3, rel=2e-2, abs=2e-3), name


def test_adamw_is_torchs():
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


@pytest.mark.parametrize("option", [{"lr": -1}, {"eps": -1}, {"betas": (1.0, 0.9)}])
def test_adamw_refuses_options_out_of_range(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        lm.AdamW([torch.nn.Parameter(torch.zeros(1))], **option)


@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clipping_is_torchs(max_norm):
    ours, theirs = ([torch.nn.Parameter(random(3, n)) for n in (2, 5)] for _ in range(2))
    for parameters in (ours, theirs):
        sum((parameter**3).sum() for parameter in parameters).backward()
    norm = lm.clip_gradients([*ours, torch.nn.Parameter(torch.zeros(1))], max_norm)
    assert float(norm) == pytest.approx(
        float(torch.nn.utils.clip_grad_norm_(theirs, max_norm)), rel=1e-5
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad, other.grad, 1e-5)


def test_clipping_nothing_is_nothing():
    assert float(lm.clip_gradients([torch.nn.Parameter(torch.zeros(1))], 1.0)) == 0


def test_no_position_sees_a_later_one():
    model = lm.TransformerLM(SMALL)
    ids = torch.arange(10)[None]
    changed = ids.clone()
    changed[0, 6:] = 99
    assert_close(model(ids)[:, :6], model(changed)[:, :6], 1e-6)
    assert not torch.allclose(model(ids)[:, 6:], model(changed)[:, 6:])


def test_the_cache_changes_no_logits():
    model = lm.TransformerLM(SMALL)
    ids = torch.tensor([[5, 9, 1, 1, 200, 31, 7]])
    caches = [lm.KeyValueCache() for _ in model.layers]
    parts = [model(part, caches) for part in ids.split([3, 1, 1, 2], dim=1)]
    assert_close(torch.cat(parts, dim=1), model(ids), 1e-5)


def test_the_seed_decides_the_weights():
    first, same, other = (lm.TransformerLM(SMALL, seed) for seed in (1, 1, 2))
    assert torch.equal(first.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_flops_are_counted_by_torch_alike():
    from torch.utils.flop_counter import FlopCounterMode

    model = lm.TransformerLM(SMALL)
    ids = torch.zeros(2, SMALL.context_length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(ids)
    assert 3 * counter.get_total_flops() == model.flops_per_token * ids.numel()


def test_one_batch_can_be_learned_by_heart():
    run = trainer(150, text=TEXT[:17], max_lr=1e-2, min_lr=1e-3, weight_decay=0.0)
    losses = [run.step() for _ in range(150)]
    assert losses[0] > 4
    assert losses[-1] < 0.02


def test_a_resumed_run_has_the_same_losses(tmp_path):
    whole = trainer(12)
    losses = [whole.step() for _ in range(12)]
    first = trainer(12)
    assert [first.step() for _ in range(5)] == losses[:5]
    first.save(tmp_path / "checkpoint.pt", tokenizer="a")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    resumed = trainer(12)
    resumed.resume(tmp_path / "checkpoint.pt", tokenizer="a")
    assert [resumed.step() for _ in range(7)] == losses[5:]
    assert resumed.is_done


def test_a_checkpoint_refuses_other_tokenizers_and_sizes(tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer().save(path, tokenizer="a" * 64)
    with pytest.raises(FormatError, match="another tokenizer"):
        trainer().resume(path, tokenizer="b" * 64)
    with pytest.raises(FormatError, match="another tokenizer"):
        lm.load_model(path, tokenizer="b" * 64)
    wider = lm.ModelConfig(256, context_length=16, width=64, n_layers=2, n_heads=4)
    with pytest.raises(FormatError, match="other sizes"):
        trainer(model=wider).resume(path, tokenizer="a" * 64)


def test_a_resumed_run_keeps_its_settings(tmp_path):
    trainer().save(tmp_path / "checkpoint.pt", tokenizer="a")
    with pytest.raises(FormatError, match=r"trained with max_lr 0\.001, not 0\.5"):
        trainer(max_lr=0.5).resume(tmp_path / "checkpoint.pt", tokenizer="a")
    trainer(n_steps=40).resume(tmp_path / "checkpoint.pt", tokenizer="a")


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04broken"])
def test_a_damaged_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"checkpoint\.pt is no checkpoint"):
        lm.load_model(path, tokenizer="a")


def test_a_foreign_checkpoint_is_refused():
    file = io.BytesIO()
    torch.save({"weights": torch.zeros(1)}, file)
    file.seek(0)
    with pytest.raises(FormatError, match="no checkpoint of a language model"):
        lm.load_checkpoint(file)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    run = trainer()
    run.save(path, tokenizer="a")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        run.save(path, tokenizer="a")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_infinite_loss_ends_the_run_before_the_weights_change():
    run = trainer()
    run.model.lm_head.weight.data[0] = math.inf
    before = run.model.token_embeddings.weight.clone()
    with pytest.raises(ArithmeticError, match="lower the learning rate"):
        run.step()
    assert torch.equal(run.model.token_embeddings.weight, before)


def test_bits_per_byte_are_those_of_the_logits():
    run = trainer()
    inputs, targets = Text().sample_batch(3, 16, np.random.default_rng(1))
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
    assert result.loss > result.nats_of_bytes / result.n_tokens


def test_the_schedule_has_its_corners():
    rates = [lm.cosine_schedule(step, 1.0, 0.1, 4, 10) for step in range(13)]
    assert rates[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert rates[7] == pytest.approx(0.55)
    assert rates[10:] == [0.1, 0.1, 0.1]


def test_sampling_is_reproducible_by_its_seed():
    model = lm.TransformerLM(SMALL)

    def text(seed, **options):
        return list(lm.generate(model, [1, 2, 3], max_tokens=40, seed=seed, **options))

    assert text(1) == text(1) != text(2)
    assert text(1, temperature=0) == text(2, temperature=0)
    assert len(text(1)) == 40  # beyond the context of 16


def test_greedy_text_is_the_likeliest_id_of_the_context():
    model = lm.TransformerLM(SMALL)
    ids = [7, 8, 9]
    for chosen in lm.generate(model, list(ids), max_tokens=13, temperature=0):
        assert chosen == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(chosen)


def test_the_stop_id_ends_the_text():
    model = lm.TransformerLM(SMALL)
    ids = list(lm.generate(model, [1], max_tokens=30, temperature=0))
    assert list(lm.generate(model, [1], max_tokens=30, temperature=0, stop_id=ids[0])) == []


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.4, {0}), (0.49, {0}), (0.51, {0, 1}), (0.8, {0, 1}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_fewest_that_reach_it(top_p, kept):
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    generator = torch.Generator().manual_seed(0)
    drawn = [
        lm.sample_id(logits, temperature=1.0, top_p=top_p, generator=generator) for _ in range(200)
    ]
    assert set(drawn) == kept


@pytest.mark.parametrize(
    ("prompt", "options"),
    [([], {}), ([1], {"temperature": -1}), ([1], {"top_p": 0}), ([1], {"top_p": 1.5})],
)
def test_sampling_refuses_options_out_of_range(prompt, options):
    with pytest.raises(ValueError, match=r"prompt|temperature"):
        lm.generate(lm.TransformerLM(SMALL), prompt, max_tokens=1, **options)


def test_bfloat16_trains_too():
    run = trainer(30, dtype="bfloat16", max_lr=5e-3)
    losses = [run.step() for _ in range(30)]
    assert losses[-1] < losses[0] - 1
    assert run.model.lm_head.weight.dtype == torch.float32


def test_a_compiled_model_has_the_same_losses(monkeypatch):
    # Traced, but not translated to C++, which takes a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, compiled = trainer(3), trainer(3, compiles=True)
    wanted = [plain.step() for _ in range(3)]
    assert [compiled.step() for _ in range(3)] == pytest.approx(wanted, rel=1e-4)


def test_a_model_that_cannot_be_compiled_says_what_is_missing():
    with (
        without_compiler(),
        pytest.raises(lm.CompileError, match=r"C\+\+ compiler.*train without compiling"),
    ):
        trainer(compiles=True).step()


@needs_gpu
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-3),
        ({"compiles": True}, 1e-3),
        ({"dtype": "bfloat16"}, 3e-2),
        ({"dtype": "bfloat16", "compiles": True}, 3e-2),
    ],
)
def test_a_gpu_has_the_losses_of_the_cpu(options, tolerance):
    cpu, gpu = trainer(), trainer(device="cuda", **options)
    assert [gpu.step() for _ in range(20)] == pytest.approx(
        [cpu.step() for _ in range(20)], rel=tolerance
    )
    # The last batch of an evaluation is smaller than the others.
    rng = np.random.default_rng(1)
    windows = [Text().sample_batch(size, 16, rng) for size in (4, 4, 3)]
    lengths = np.ones(256, np.int64)
    mine, theirs = (run.evaluate(windows, lengths) for run in (gpu, cpu))
    assert (mine.n_bytes, mine.n_tokens) == (theirs.n_bytes, theirs.n_tokens) == (176, 176)
    assert mine.bits_per_byte == pytest.approx(theirs.bits_per_byte, rel=tolerance)


@needs_gpu
@pytest.mark.parametrize(("first", "then"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_continues_on_another_device(tmp_path, first, then):
    whole = trainer(12)
    losses = [whole.step() for _ in range(12)]
    begun = trainer(12, device=first)
    for _ in range(5):
        begun.step()
    begun.save(tmp_path / "checkpoint.pt", tokenizer="a")
    resumed = trainer(12, device=then)
    resumed.resume(tmp_path / "checkpoint.pt", tokenizer="a")
    assert [resumed.step() for _ in range(7)] == pytest.approx(losses[5:], rel=1e-3)
    assert lm.load_model(tmp_path / "checkpoint.pt", tokenizer="a").lm_head.weight.is_cpu


@needs_gpu
def test_a_gpu_writes_the_text_of_the_cpu():
    model = lm.TransformerLM(SMALL)
    texts = []
    for device in ("cpu", "cuda"):
        model.to(device)
        texts.append(list(lm.generate(model, [1, 2, 3], max_tokens=30, temperature=0)))
        drawn = list(lm.generate(model, [1, 2, 3], max_tokens=30, top_p=0.9, seed=4))
        assert drawn == list(lm.generate(model, [1, 2, 3], max_tokens=30, top_p=0.9, seed=4))
    assert texts[0] == texts[1]
