"""A Transformer language model from scratch: layers, loss, optimizer, training, checkpoints, text.

`examples/language_model/` trains and samples with it, and `judge` compares tokenizers by it. The
file is long because it is read from top to bottom, like a chapter: layers, model, loss and
optimizer, training, checkpoints, sampling.

The architecture is Llama's: pre-norm blocks of causal attention with rotary positions (Su et al.
2021, *RoFormer*) and SwiGLU (Shazeer 2020, *GLU Variants Improve Transformer*), with RMSNorm (Zhang
and Sennrich 2019) and without biases. Of torch it uses tensors, automatic differentiation and the
base classes of modules and optimizers. Names of parameters are those of CS336.

In the shapes, B is a batch, T positions, H heads, D a width and V a vocabulary.

Only this module and its callers import torch (extra `judge`).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tokenizer_core.blobs.atomic_files import replacing, sync_folder
from tokenizer_core.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Batch = tuple[NDArray[np.int64], NDArray[np.int64]]

CHECKPOINT_FORMAT: Final = "tokenizer-language-model/1"


# ---- Layers


class Linear(nn.Module):
    """`y = x Wᵀ`, without a bias: (..., D_in) -> (..., D_out).

    The weights are drawn from a normal distribution of variance 2 / (D_in + D_out), truncated at
    three standard deviations.
    """

    def __init__(self, d_in: int, d_out: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        weight = torch.empty(d_out, d_in)
        nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std, generator=generator)
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply each row by the weights."""
        return x @ self.weight.T


class Embedding(nn.Module):
    """A vector for each id: (...) of int64 -> (..., D)."""

    def __init__(self, n_ids: int, width: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        weight = torch.empty(n_ids, width)
        nn.init.trunc_normal_(weight, std=1, a=-3, b=3, generator=generator)
        self.weight = nn.Parameter(weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Look the ids up."""
        # The gradient of `weight[ids]` sums in an order that differs between runs on the CPU.
        return self.weight.index_select(0, ids.flatten()).unflatten(0, ids.shape)


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension and scale by learned gains.

    The square would overflow in 16 bits, so the norm is computed in float32.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., D)."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)


def silu(x: Tensor) -> Tensor:
    """`x · sigmoid(x)`."""
    return x * torch.sigmoid(x)


class SwiGLU(nn.Module):
    """The feed-forward network `W2 (silu(W1 x) · W3 x)`: (..., D) -> (..., D)."""

    def __init__(self, width: int, d_ff: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.w1 = Linear(width, d_ff, generator)
        self.w2 = Linear(d_ff, width, generator)
        self.w3 = Linear(width, d_ff, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to each position."""
        return self.w2(silu(self.w1(x)) * self.w3(x))


class RotaryEmbedding(nn.Module):
    """Rotate neighbouring pairs of dimensions by angles that grow with the position.

    Pair i (dimensions 2i and 2i + 1) at position p turns by p / theta^(2i / D), so that the dot
    product of a query and a key depends on the distance of their positions only.
    """

    def __init__(self, theta: float, d_head: int, context_length: int) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions need an even width of a head, not {d_head}")
        frequencies = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        angles = torch.outer(torch.arange(context_length, dtype=torch.float64), frequencies)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate (..., T, D) by `positions`, int64 of shape (..., T)."""
        cos, sin = self.cos[positions], self.sin[positions]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Probabilities along `dim`; the largest value is subtracted first, so that none overflows."""
    powers = torch.exp(x - x.amax(dim=dim, keepdim=True))
    return powers / powers.sum(dim=dim, keepdim=True)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention: (..., Q, D), (..., K, D), (..., K, E) -> (..., Q, E).

    A query attends to the keys where `mask`, of shape (..., Q, K), is True.
    """
    scores = (queries @ keys.transpose(-2, -1)).float() / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores).to(values.dtype) @ values


class KeyValueCache:
    """The keys and values of a layer for the positions seen, so that each is computed once."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append those of the next positions, each (B, H, T, D); return all."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat((self.keys, keys), dim=-2)
            values = torch.cat((self.values, values), dim=-2)
        self.keys, self.values = keys, values
        return keys, values

    def __len__(self) -> int:
        """The number of positions."""
        return 0 if self.keys is None else int(self.keys.shape[-2])


class CausalAttention(nn.Module):
    """Multi-head attention in which no position sees a later one: (B, T, D) -> (B, T, D)."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        rope: RotaryEmbedding | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if width % n_heads:
            raise ValueError(f"a width of {width} cannot be divided among {n_heads} heads")
        self.n_heads = n_heads
        self.rope = rope
        self.q_proj = Linear(width, width, generator)
        self.k_proj = Linear(width, width, generator)
        self.v_proj = Linear(width, width, generator)
        self.output_proj = Linear(width, width, generator)

    def forward(
        self, x: Tensor, positions: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Attend over `x` and over what `cache` holds of earlier positions.

        `positions`, int64 of shape (T) or (B, T), are those of `x`; by default they continue the
        cache.
        """
        n_new, n_seen = x.shape[-2], len(cache) if cache is not None else 0
        index = torch.arange(n_seen, n_seen + n_new, device=x.device)
        queries, keys, values = (
            projection(x).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.rope is not None:
            at = index if positions is None else positions
            at = at.unsqueeze(-2) if at.dim() > 1 else at  # the same for every head
            queries, keys = self.rope(queries, at), self.rope(keys, at)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        mask = index[:, None] >= torch.arange(n_seen + n_new, device=x.device)
        mixed = attention(queries, keys, values, mask)
        return self.output_proj(mixed.transpose(-3, -2).flatten(-2))


class TransformerBlock(nn.Module):
    """Attention and feed-forward network, each after a norm and added to its input."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        d_ff: int,
        rope: RotaryEmbedding | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.ln1 = RMSNorm(width)
        self.attn = CausalAttention(width, n_heads, rope, generator)
        self.ln2 = RMSNorm(width)
        self.ffn = SwiGLU(width, d_ff, generator)

    def forward(self, x: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + self.attn(self.ln1(x), cache=cache)
        return x + self.ffn(self.ln2(x))


# ---- The model


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a model; the defaults are the course's for TinyStories.

    `d_ff` is the inner width of the feed-forward network. By default it is 8/3 of the width,
    rounded up to a multiple of 64.
    """

    vocab_size: int
    context_length: int = 256
    width: int = 512
    n_layers: int = 4
    n_heads: int = 16
    d_ff: int | None = None
    rope_theta: float = 10_000.0

    @property
    def ff_width(self) -> int:
        """`d_ff`, or its default."""
        return self.d_ff or -(-self.width * 8 // 3 // 64) * 64


class TransformerLM(nn.Module):
    """A causal language model: ids (B, T) -> logits of the next id (B, T, V).

    The same `seed` gives the same weights.

    Raises:
        ValueError: the width is no multiple of the heads, or that of a head is odd.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.config = config
        width, n_heads = config.width, config.n_heads
        rope = RotaryEmbedding(config.rope_theta, width // n_heads, config.context_length)
        self.token_embeddings = Embedding(config.vocab_size, width, generator)
        self.layers = nn.ModuleList(
            TransformerBlock(width, n_heads, config.ff_width, rope, generator)
            for _ in range(config.n_layers)
        )
        self.ln_final = RMSNorm(width)
        self.lm_head = Linear(width, config.vocab_size, generator)

    def forward(self, ids: Tensor, caches: Sequence[KeyValueCache] | None = None) -> Tensor:
        """Logits for each position; with `caches`, one per layer, `ids` continue what they hold."""
        x = self.token_embeddings(ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, caches[index] if caches is not None else None)
        return self.lm_head(self.ln_final(x))

    @property
    def n_parameters(self) -> int:
        """The number of trained values."""
        return sum(int(parameter.numel()) for parameter in self.parameters())

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations to train on one token: three times those of the forward pass.

        Counts the matrix products, as in Kaplan et al. 2020, appendix B: two operations for each
        weight, and `4 · context · width` for the attention of a layer.
        """
        config = self.config
        matrices = sum(int(p.numel()) for p in self.parameters() if p.dim() > 1)
        matrices -= int(self.token_embeddings.weight.numel())  # looked up, not multiplied
        attended = 4 * config.context_length * config.width * config.n_layers
        return 3 * (2 * matrices + attended)


# ---- Loss and optimizer


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of each target in nats: logits (..., V) and targets (...) -> (...), float32."""
    shifted = logits.float()
    shifted = shifted - shifted.amax(dim=-1, keepdim=True)
    of_target = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return shifted.exp().sum(dim=-1).log() - of_target


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), computed as torch does."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{name} must not be negative, but is {value}")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be from 0 to below 1, but are {betas}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def step(self, closure: Any = None) -> Any:
        """Update the parameters; return the closure's loss, if there is a closure."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, group)
        return loss

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Both averages start at zero; the corrections divide that bias out.
        correction1 = 1 - beta1 ** state["step"]
        correction2 = 1 - beta2 ** state["step"]
        root = square.sqrt().div_(math.sqrt(correction2)).add_(group["eps"])
        parameter.addcdiv_(mean, root, value=-group["lr"] / correction1)


def cosine_schedule(
    step: int, max_lr: float, min_lr: float, n_warmup_steps: int, n_cosine_steps: int
) -> float:
    """The learning rate at `step`: a linear rise, half a cosine down to `min_lr`, then `min_lr`.

    The rise ends at step `n_warmup_steps`, the cosine at step `n_cosine_steps`.

    Example:
        >>> [round(cosine_schedule(step, 1.0, 0.0, 2, 6), 2) for step in (0, 1, 2, 4, 6, 7)]
        [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if step < n_warmup_steps:
        return max_lr * step / n_warmup_steps
    if step >= n_cosine_steps:
        return min_lr
    done = (step - n_warmup_steps) / (n_cosine_steps - n_warmup_steps)
    return min_lr + 0.5 * (1 + math.cos(math.pi * done)) * (max_lr - min_lr)


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients down together, so that their l2 norm is at most `max_norm`.

    Returns:
        The norm before, of shape (). It stays on the device: a GPU need not wait for it.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.linalg.vector_norm(torch.stack([_l2_norm(gradient) for gradient in gradients]))
    scale = (max_norm / (norm + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def _l2_norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))


# ---- Training


class Batches(Protocol):
    """Where batches are drawn from; a `TokenDataset` is one."""

    def sample_batch(self, batch_size: int, context_length: int, rng: np.random.Generator) -> Batch:
        """Inputs and targets, each (batch_size, context_length) of int64, drawn with `rng`."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How a model is trained; the learning rate follows `cosine_schedule` over `n_steps`.

    `seed` draws the weights and the batches. `dtype` is the type of the matrix products, `float32`
    or `bfloat16`; parameters and optimizer stay in float32. `compiles` runs `torch.compile`.
    """

    n_steps: int
    batch_size: int = 32
    max_lr: float = 1e-3
    min_lr: float = 1e-4
    n_warmup_steps: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_gradient_norm: float = 1.0
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    compiles: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be float32 or bfloat16, not {self.dtype!r}")
        if self.n_steps < 1 or self.batch_size < 1:
            raise ValueError("n_steps and batch_size must be at least 1")


_SAME_IN_A_RUN: Final = (
    *("seed", "batch_size", "max_lr", "min_lr", "n_warmup_steps"),
    *("weight_decay", "betas", "max_gradient_norm"),
)
"""What a resumed run may not change. The number of steps, the device and the type may change, with
other losses."""


class CompileError(RuntimeError):
    """torch cannot compile the model, for example because there is no C++ compiler."""


class Trainer:
    """A model in training: call `step` until `is_done`; `save` and `resume` in between.

    A resumed run draws the same batches as an uninterrupted one and, on the CPU in float32, has the
    same losses.
    """

    def __init__(self, model: ModelConfig, config: TrainingConfig, batches: Batches) -> None:
        self.config, self.batches = config, batches
        self.model = TransformerLM(model, config.seed).to(config.device)
        self.optimizer = AdamW(
            self.model.parameters(),
            lr=config.max_lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
        )
        self.n_done = 0
        self._rng = np.random.default_rng(config.seed)
        self._compiled = torch.compile(self._token_losses) if config.compiles else None

    @property
    def is_done(self) -> bool:
        """Whether all steps are done."""
        return self.n_done >= self.config.n_steps

    @property
    def tokens_per_step(self) -> int:
        """Targets of one batch."""
        return int(self.config.batch_size * self.model.config.context_length)

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        config = self.config
        # Step 0 of the schedule has the rate 0 and would learn nothing.
        return cosine_schedule(
            self.n_done + 1, config.max_lr, config.min_lr, config.n_warmup_steps, config.n_steps
        )

    def step(self) -> float:
        """Train on one batch; return its loss in nats per token.

        Raises:
            ArithmeticError: the loss is not finite; the weights are as before the step.
            CompileError: the model is to be compiled and cannot be.
        """
        config = self.config
        context_length = self.model.config.context_length
        inputs, targets = self.batches.sample_batch(config.batch_size, context_length, self._rng)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        loss = self._losses(self._on_device(inputs), self._on_device(targets)).mean()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ArithmeticError(
                f"the loss of step {self.n_done + 1} is {value}; lower the learning rate"
            )
        self.optimizer.zero_grad()
        loss.backward()
        clip_gradients(self.model.parameters(), config.max_gradient_norm)
        self.optimizer.step()
        self.n_done += 1
        return value

    def evaluate(self, windows: Iterable[Batch], n_bytes_of_ids: NDArray[Any]) -> Evaluation:
        """The loss over `windows`, pairs of inputs and targets (B, T).

        `n_bytes_of_ids` has the number of bytes of each id, 0 for special tokens, as
        `token_byte_lengths` gives it. Targets without bytes do not count for bits per byte. Targets
        below 0 are padding and count for nothing.
        """
        nats = counted_nats = 0.0
        n_tokens = n_bytes = 0
        lengths = torch.from_numpy(n_bytes_of_ids.astype(np.int64)).to(self.config.device)
        begin = time.perf_counter()
        for inputs, targets in windows:
            wanted = self._on_device(targets)
            is_target = wanted >= 0
            wanted = wanted.clamp(min=0)
            with torch.no_grad():
                losses = self._losses(self._on_device(inputs), wanted) * is_target
            n_of_target = lengths[wanted] * is_target
            # A sum of float32 over millions of tokens would lose digits.
            nats += float(losses.double().sum())
            counted_nats += float((losses.double() * (n_of_target > 0)).sum())
            n_tokens += int(is_target.sum())
            n_bytes += int(n_of_target.sum())
        return Evaluation(nats, counted_nats, n_tokens, n_bytes, time.perf_counter() - begin)

    def _losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self._compiled is None:
            return self._token_losses(inputs, targets)
        try:
            with warnings.catch_warnings():
                # The remedy that torch names would round the products of a float32 model.
                warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
                losses: Tensor = self._compiled(inputs, targets)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).partition("\n")[0]
            raise CompileError(
                f"torch cannot compile the model: {reason:.200}; install a C++ compiler, or train "
                f"without compiling"
            ) from error
        return losses

    def _token_losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        # Compiled together, model and loss do not write the logits in float32: on an H200 a step
        # with 10,000 entries takes a third less time, and with 32,000 half.
        with self._autocast():
            logits = self.model(inputs)
        return token_losses(logits, targets)

    def _autocast(self) -> contextlib.AbstractContextManager[None]:
        """The context in which matrix products run in `config.dtype`."""
        if self.config.dtype == "float32":
            return contextlib.nullcontext()
        device_type = torch.device(self.config.device).type
        context: contextlib.AbstractContextManager[None]
        context = torch.autocast(device_type, dtype=torch.bfloat16)
        return context

    def save(self, path: str | os.PathLike[str], *, tokenizer: str) -> None:
        """Write a checkpoint whole or not at all; `tokenizer` is the fingerprint of the tokenizer.

        Raises:
            OSError: the folder is missing or not writable, or the disk is full.
        """
        save_checkpoint(
            path,
            self.model,
            self.optimizer,
            self.n_done,
            format=CHECKPOINT_FORMAT,
            model_config=asdict(self.model.config),
            training_config=asdict(self.config),
            rng=self._rng.bit_generator.state,
            tokenizer=tokenizer,
        )

    def resume(self, path: str | os.PathLike[str], *, tokenizer: str) -> None:
        """Continue from a checkpoint of the same model, settings and tokenizer, on the same data.

        Raises:
            FormatError: not a checkpoint, or one of another tokenizer, model or other settings.
            OSError: it cannot be read.
        """
        state = read_checkpoint(path, tokenizer=tokenizer)
        if state["model_config"] != asdict(self.model.config):
            raise FormatError(
                f"{path} has a model of other sizes: {state['model_config']}; train with those, or "
                f"write to another folder"
            )
        before, now = state["training_config"], asdict(self.config)
        changed = [name for name in _SAME_IN_A_RUN if before[name] != now[name]]
        if changed:
            raise FormatError(
                f"{path} was trained with {changed[0]} {before[changed[0]]}, not "
                f"{now[changed[0]]}; continue with that, or write to another folder"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.n_done = state["step"]
        self._rng.bit_generator.state = state["rng"]

    def _on_device(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(ids).to(self.config.device)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Losses in nats over a text: of all targets (`nats`), and of those with bytes."""

    nats: float
    nats_of_bytes: float
    n_tokens: int
    n_bytes: int
    seconds: float

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(self.n_tokens, 1)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text: comparable between tokenizers, unlike the loss per token."""
        return self.nats_of_bytes / math.log(2) / max(self.n_bytes, 1)


# ---- Checkpoints


def save_checkpoint(
    out: str | os.PathLike[str] | IO[bytes],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: int,
    **more: Any,
) -> None:
    """Write the model, the optimizer, the steps done and `more` to a file; a path is replaced whole
    or not at all, and survives a power cut.

    Raises:
        OSError: it cannot be written.
    """
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, **more}
    if not isinstance(out, (str, os.PathLike)):
        torch.save(state, out)
        return
    path = Path(out)
    with replacing(path) as staged, staged.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def load_checkpoint(source: str | os.PathLike[str] | IO[bytes]) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU. Only tensors and plain values are unpickled.

    Raises:
        FormatError: not a checkpoint.
        OSError: it cannot be read.
    """
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged or foreign file
        reason = str(error).partition("\n")[0]
        raise FormatError(f"{source} is no checkpoint, or is damaged: {reason:.200}") from None
    if not isinstance(state, dict) or not {"model", "optimizer", "step"} <= state.keys():
        raise FormatError(f"{source} is no checkpoint of a language model")
    return state


def read_checkpoint(path: str | os.PathLike[str], *, tokenizer: str) -> dict[str, Any]:
    """The content of a checkpoint that `Trainer.save` wrote for the tokenizer of this fingerprint.

    Raises:
        FormatError: not such a checkpoint, or one of another tokenizer.
        OSError: it cannot be read.
    """
    state = load_checkpoint(path)
    if state.get("format") != CHECKPOINT_FORMAT:
        raise FormatError(
            f"{path} has the format {state.get('format')!r}; this release reads {CHECKPOINT_FORMAT}"
        )
    if state["tokenizer"] != tokenizer:
        raise FormatError(
            f"{path} was trained on ids of another tokenizer ({state['tokenizer'][:16]}, not "
            f"{tokenizer[:16]}); its model would read other words. Give the tokenizer of the "
            f"checkpoint"
        )
    return state


def load_model(path: str | os.PathLike[str], *, tokenizer: str) -> TransformerLM:
    """The model of a checkpoint for the tokenizer of this fingerprint, on the CPU, to sample from.

    Raises:
        FormatError, OSError: as `read_checkpoint`.
    """
    state = read_checkpoint(path, tokenizer=tokenizer)
    model = TransformerLM(ModelConfig(**state["model_config"]))
    model.load_state_dict(state["model"])
    model.eval()
    return model


# ---- Sampling


def sample_id(
    logits: Tensor, *, temperature: float, top_p: float, generator: torch.Generator | None = None
) -> int:
    """An id drawn from logits (V); a temperature of 0 selects the likeliest.

    `top_p` keeps the fewest ids whose probabilities sum to at least `top_p` (Holtzman et al. 2020,
    nucleus sampling).
    """
    if temperature == 0:
        return int(logits.argmax())
    probabilities = softmax(logits.float() / temperature)
    if top_p < 1:
        ordered, order = probabilities.sort(descending=True)
        # An id stays if the ids before it do not reach top_p; the first always stays.
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
        chosen = torch.multinomial(ordered, 1, generator=generator)
        return int(order[chosen])
    return int(torch.multinomial(probabilities, 1, generator=generator))


def generate(
    model: TransformerLM,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    stop_id: int | None = None,
    seed: int | None = None,
) -> Iterator[int]:
    """Continue `prompt` by up to `max_tokens` ids; `stop_id` ends the text and is not returned.

    Keys and values of earlier positions are cached. When the context is full, the model reads the
    later half of it again and continues.

    Raises:
        ValueError: the prompt is empty, or an option is out of its range.
    """
    if not prompt:
        raise ValueError("the prompt has no ids; start with <|endoftext|> or with some text")
    if temperature < 0 or not 0 < top_p <= 1:
        raise ValueError("temperature must be at least 0, and top_p above 0 and at most 1")
    return _generate(model, list(prompt), max_tokens, temperature, top_p, stop_id, seed)


def _generate(
    model: TransformerLM,
    ids: list[int],
    max_tokens: int,
    temperature: float,
    top_p: float,
    stop_id: int | None,
    seed: int | None,
) -> Iterator[int]:
    context_length = model.config.context_length
    device = model.lm_head.weight.device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    caches: list[KeyValueCache] = []
    unread = ids[-context_length:]
    for _ in range(max_tokens):
        if caches and len(caches[0]) == context_length:
            caches, unread = [], ids[-max(context_length // 2, 1) :]
        caches = caches or [KeyValueCache() for _ in model.layers]
        with torch.no_grad():
            logits = model(torch.tensor([unread], device=device), caches)[0, -1]
        chosen = sample_id(logits, temperature=temperature, top_p=top_p, generator=generator)
        if chosen == stop_id:
            return
        yield chosen
        ids.append(chosen)
        unread = [chosen]
