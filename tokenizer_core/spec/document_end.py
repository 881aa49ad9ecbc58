"""Which token ends a document of a corpus, and which one ends what the model writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

END_OF_TEXT: Final = "<|endoftext|>"
"""Ends a document of plain text by default, and is the default special token of a training."""

DOCUMENT_ENDS: Final = (
    END_OF_TEXT,
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "<EOS_TOKEN>",
)
"""The tokens that end a document in the corpora of public models: those of GPT-2, NeoX and Qwen; of
Llama 3; of Llama 2, Mistral and RoBERTa; of Gemma; of DeepSeek; of Kimi; of Command R."""


def find_eos_token(spec: TokenizerSpec) -> str | None:
    """The token that ends what the model writes: the `eos_token` of the model folder. Without a
    folder that names tokens, what the post-processor puts after a text, or else the only known
    document end. None if none of them says."""
    if spec.chat.variables:
        return spec.chat.variables.get("eos_token")
    if spec.suffix_ids:
        last = spec.suffix_ids[-1]
        return next((token.content for token in spec.added_tokens if token.id == last), None)
    known = _known_ends(spec)
    return known[0] if len(known) == 1 else None


def find_document_end(spec: TokenizerSpec) -> tuple[str, str]:
    """The token that ends a document of a corpus, and why it is that one.

    It is the only one of DOCUMENT_ENDS in the vocabulary, or the one of several that is the eos
    token. Another eos must be known to end turns: a chat template writes it, or
    `generation_config.json` lists the document end as well. Raises LookupError: nothing says which
    token it is; names those that come into question.

    Example:
        >>> from tokenizer_core.spec import TokenizerSpec
        >>> vocab = {i: bytes([i]) for i in range(256)}
        >>> find_document_end(TokenizerSpec.from_merges(vocab, [], ["<s>", "</s>"]))
        ('</s>', 'the only known document end of the vocabulary')
    """
    known, eos = _known_ends(spec), find_eos_token(spec)
    if len(known) == 1:
        why = "the only known document end of the vocabulary"
        if eos is None or eos == known[0]:
            return known[0], why
        templates = "".join(spec.chat.sources.values())
        if known[0] in spec.chat.stop_tokens or eos in templates or "eos_token" in templates:
            return known[0], f"{why}; its eos {eos!r:.60} ends turns"
    elif eos in known:
        return eos, "the eos of the tokenizer, and a known document end"
    listed = " and ".join(map(repr, known)) or "none"
    raise LookupError(
        f"nothing says which token ends a document: of the known ones the vocabulary has "
        f"{listed}, and its eos is {'not declared' if eos is None else repr(eos)[:60]}"
    )


def choose_document_end(
    spec: TokenizerSpec, named: str | None, *, has_loss_mask: bool
) -> tuple[str | None, str]:
    """The token that ends each document of token files, None for none, and why: the one that the
    options name (empty for none), or else `find_document_end`, which raises LookupError."""
    if named is not None:
        return named or None, "as the options say"
    if has_loss_mask:
        return None, "with a loss mask it has its own end"
    return find_document_end(spec)


def _known_ends(spec: TokenizerSpec) -> list[str]:
    special = spec.special_tokens
    return [content for content in DOCUMENT_ENDS if content in special]
