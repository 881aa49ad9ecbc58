"""The 21 functions that the public tests of CS336's first assignment call, over this project.

`run.py` puts this file in the place of the suite's `tests/adapters.py`. Each function only passes
its arguments on; names and signatures are the suite's.
"""

from __future__ import annotations

import model as lm  # of examples/language_model, which `run.py` puts on the path
import numpy as np
import torch
import train

from tokenizer_core import Tokenizer, train_bpe
from tokenizer_core.corpus import TokenDataset


def _loaded(module, weights):
    module.load_state_dict(weights)
    return module


def run_linear(d_in, d_out, weights, in_features):
    return _loaded(lm.Linear(d_in, d_out), {"weight": weights})(in_features)


def run_embedding(vocab_size, d_model, weights, token_ids):
    return _loaded(lm.Embedding(vocab_size, d_model), {"weight": weights})(token_ids)


def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    weights = {"w1.weight": w1_weight, "w2.weight": w2_weight, "w3.weight": w3_weight}
    return _loaded(lm.SwiGLU(d_model, d_ff), weights)(in_features)


def run_scaled_dot_product_attention(Q, K, V, mask=None):  # noqa: N803 - the suite's names
    return lm.attention(Q, K, V, mask)


def _attention_weights(q_proj, k_proj, v_proj, output_proj):
    return {
        "q_proj.weight": q_proj,
        "k_proj.weight": k_proj,
        "v_proj.weight": v_proj,
        "output_proj.weight": output_proj,
    }


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    weights = _attention_weights(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return _loaded(lm.CausalAttention(d_model, num_heads), weights)(in_features)


def run_multihead_self_attention_with_rope(
    d_model,
    num_heads,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    token_positions=None,
):
    weights = _attention_weights(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    rope = lm.RotaryEmbedding(theta, d_model // num_heads, max_seq_len)
    attention = _loaded(lm.CausalAttention(d_model, num_heads, rope), weights)
    return attention(in_features, token_positions)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return lm.RotaryEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_transformer_block(d_model, num_heads, d_ff, max_seq_len, theta, weights, in_features):
    rope = lm.RotaryEmbedding(theta, d_model // num_heads, max_seq_len)
    return _loaded(lm.TransformerBlock(d_model, num_heads, d_ff, rope), weights)(in_features)


def run_transformer_lm(
    vocab_size,
    context_length,
    d_model,
    num_layers,
    num_heads,
    d_ff,
    rope_theta,
    weights,
    in_indices,
):
    config = lm.ModelConfig(
        vocab_size,
        context_length=context_length,
        width=d_model,
        n_layers=num_layers,
        n_heads=num_heads,
        d_ff=d_ff,
        rope_theta=rope_theta,
    )
    return _loaded(lm.TransformerLM(config), weights)(in_indices)


def run_rmsnorm(d_model, eps, weights, in_features):
    return _loaded(lm.RMSNorm(d_model, eps), {"weight": weights})(in_features)


def run_silu(in_features):
    return lm.silu(in_features)


class _OneArray:
    """An array of ids in the shape of token files with one split and no mask."""

    has_mask = False

    def __init__(self, ids):
        self._ids = ids

    def n_tokens(self, split):
        return len(self._ids)

    def copy_tokens(self, start, out, split):
        out[:] = self._ids[start : start + len(out)]


_rng = np.random.default_rng(0)  # the suite draws many batches from one dataset


def run_get_batch(dataset, batch_size, context_length, device):
    batch = TokenDataset(_OneArray(dataset)).sample_batch(batch_size, context_length, _rng)
    inputs, targets = (torch.from_numpy(part).to(device) for part in batch)
    return inputs, targets


def run_softmax(in_features, dim):
    return lm.softmax(in_features, dim)


def run_cross_entropy(inputs, targets):
    return lm.token_losses(inputs, targets).mean()


def run_gradient_clipping(parameters, max_l2_norm):
    lm.clip_gradients(parameters, max_l2_norm)


def get_adamw_cls():
    return lm.AdamW


def run_get_lr_cosine_schedule(
    it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters
):
    return lm.cosine_schedule(
        it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters
    )


def run_save_checkpoint(model, optimizer, iteration, out):
    train.save_checkpoint(out, model, optimizer, iteration)


def run_load_checkpoint(src, model, optimizer):
    state = train.load_checkpoint(src)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def get_tokenizer(vocab, merges, special_tokens=None):
    return Tokenizer(vocab, merges, special_tokens)


def run_train_bpe(input_path, vocab_size, special_tokens, **kwargs):
    return train_bpe(input_path, vocab_size, special_tokens, **kwargs)
