"""A Transformer language model from scratch: layers, model, loss, optimizer and learning rate.

It is read from top to bottom, like a chapter. The architecture is Llama's: pre-norm blocks of
causal attention with rotary positions (Su et al. 2021, *RoFormer*) and SwiGLU (Shazeer 2020, *GLU
Variants Improve Transformer*), with RMSNorm (Zhang and Sennrich 2019) and without biases. Of torch
it uses tensors, automatic differentiation and the base classes of modules and optimizers. Names of
parameters are those of CS336.

In the shapes, B is a batch, T positions, H heads, D a width and V a vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

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
