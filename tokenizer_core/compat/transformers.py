"""A tokenizer class of Hugging Face's `transformers` that encodes with this library's engine.

    from tokenizer_core.compat.transformers import PreTrainedTokenizerFast

It is `transformers.PreTrainedTokenizerFast` in everything but the computation of ids: loading,
saving, chat templates, decoding and added tokens are inherited. Needs transformers 5.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.model_folder import named_special_tokens, settings_to_write
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.formats.tokenizer_json.post_processor import has_type_ids
from tokenizer_core.tokenizer import Tokenizer

try:
    import tokenizers
    from transformers import PreTrainedTokenizerFast as _Inherited
except ImportError as error:
    raise ImportError(
        "tokenizer_core.compat.transformers needs transformers 5: pip install 'transformers>=5'"
    ) from error

_BY_TOKENIZERS: Final = (
    "is_split_into_words",
    "return_overflowing_tokens",
    "return_special_tokens_mask",
    "return_offsets_mapping",
    "return_length",
    "sanitize_control_tokens",
)
"""Options that need more than ids: Hugging Face's `tokenizers` encodes, with the same ids."""

_LONG_CHARS: Final = 1 << 16
"""Threads, and rendering `tokenizer.json` to see a change of it, pay from here on."""


class PreTrainedTokenizerFast(_Inherited):
    """`transformers.PreTrainedTokenizerFast` with the ids of `Tokenizer`.

    - `PreTrainedTokenizerFast.from_pretrained(folder)` reads a model folder, as usual.
    - `PreTrainedTokenizerFast.from_tokenizer(tokenizer)` wraps a `Tokenizer`.
    - `exact` is the `Tokenizer` that encodes. It follows `add_tokens`, and every change of
      `backend_tokenizer`: once that was handed out, `tokenizers` encodes shorter texts, and before
      a longer one its state is compared.

    The results of a plain call have no `tokens()` and `char_to_token()`; pass
    `return_offsets_mapping=True` for these. Raises FormatError: `tokenizer.json` cannot be read
    exactly; names the setting.
    """

    _exact: Tokenizer | None = None
    _exact_sha256 = b""
    _is_handed_out = False

    # No `__init__`: transformers rebuilds the tokenizer of a class that has its own.

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
        """The class for a `Tokenizer`; `options` are those of the constructor (`pad_token` ...).
        The named tokens (`bos_token` ...), the chat templates and the settings of a model folder
        are set where the tokenizer has them. Raises FormatError: no `tokenizer.json` can hold the
        tokenizer."""
        backend = tokenizers.Tokenizer.from_buffer(render_tokenizer_json(tokenizer.spec))
        known = named_special_tokens(tokenizer.spec) | settings_to_write(tokenizer.spec)
        made = cls(tokenizer_object=backend, **known | options)
        _ = made.exact
        return made

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> PreTrainedTokenizerFast:
        """As in transformers, but what cannot be read exactly is refused at once."""
        made: PreTrainedTokenizerFast = super().from_pretrained(*arguments, **options)
        _ = made.exact
        return made

    @property
    def exact(self) -> Tokenizer:
        """The tokenizer that encodes."""
        if self._exact is None or self._is_handed_out:
            state = self._tokenizer.to_str().encode()
            sha256 = hashlib.sha256(state).digest()
            if self._exact is None or sha256 != self._exact_sha256:
                self._exact = Tokenizer.from_spec(parse_tokenizer_json(state))
                self._exact_sha256 = sha256
        return self._exact

    @property
    def backend_tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`. Its holder may change it at any time."""
        self._is_handed_out = True
        return self._tokenizer

    def _add_tokens(self, *args: Any, **kwargs: Any) -> int:
        self._exact = None
        added: int = super()._add_tokens(*args, **kwargs)
        return added

    def update_post_processor(self) -> None:
        """Apply `add_bos_token` and `add_eos_token`."""
        self._exact = None
        super().update_post_processor()

    def tokenize(
        self, text: Any, pair: Any = None, add_special_tokens: bool = False, **options: Any
    ) -> list[str]:
        """The tokens of a text in the spelling of `tokenizer.json`."""
        options["return_offsets_mapping"] = True  # the result must know its tokens
        tokens: list[str] = super().tokenize(text, pair, add_special_tokens, **options)
        return tokens

    def apply_chat_template(self, conversation: Any, *arguments: Any, **options: Any) -> Any:
        """As in transformers."""
        given = options.get("tokenizer_kwargs") or {}
        if not options.get("return_assistant_tokens_mask") or given.get("return_offsets_mapping"):
            return super().apply_chat_template(conversation, *arguments, **options)
        # The mask needs the characters of each token.
        options["tokenizer_kwargs"] = {**given, "return_offsets_mapping": True}
        made = super().apply_chat_template(conversation, *arguments, **options)
        made.pop("offset_mapping", None)
        return made

    def _encode_plus(self, text: Any, text_pair: Any = None, **options: Any) -> Any:
        """Encode a text or a list of texts; `super` encodes everything else."""
        is_batched = isinstance(text, list | tuple)
        texts = list(text) if is_batched else [text]
        listed = self._encode_texts(texts, options) if text_pair is None else None
        if listed is None or not (is_batched or listed[0]):
            # `pad` takes one text without ids for no text at all.
            return super()._encode_plus(text, text_pair=text_pair, **options)
        for ids in listed:
            self._eventual_warn_about_too_long_sequence(
                ids, options.get("max_length"), options.get("verbose", True)
            )
        batch = {"input_ids": listed}
        wants_types = options.get("return_token_type_ids")
        if wants_types or (wants_types is None and "token_type_ids" in self.model_input_names):
            batch["token_type_ids"] = [[0] * len(ids) for ids in listed]
        # `pad` would warn that a call is faster than encoding first; it is part of the call here.
        self.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        keeps_batch = is_batched or options.get("return_tensors") is not None
        return self.pad(
            batch if keeps_batch else {name: rows[0] for name, rows in batch.items()},
            padding=options.get("padding_strategy", False),
            **{
                name: options[name]
                for name in (
                    "max_length",
                    "pad_to_multiple_of",
                    "padding_side",
                    "return_attention_mask",
                    "return_tensors",
                    "verbose",
                )
                if name in options
            },
        )

    def _encode_texts(self, texts: list[Any], options: dict[str, Any]) -> list[list[int]] | None:
        """The truncated ids of each text, or None if the inherited code must encode."""
        is_plain = texts and all(isinstance(text, str) for text in texts)
        if not is_plain or any(options.get(name) for name in _BY_TOKENIZERS):
            return None
        is_long = sum(map(len, texts)) >= _LONG_CHARS
        if self._is_handed_out:
            try:
                exact = self.exact if is_long else None
            except FormatError:
                exact = None
            if exact is None:
                return None
        else:
            exact = self.exact
        spec = exact.spec
        if has_type_ids(spec):
            return None
        adds = options.get("add_special_tokens", True)
        prefix, suffix = (spec.prefix_ids, spec.suffix_ids) if adds else ((), ())
        room = None
        strategy = getattr(options.get("truncation_strategy"), "value", "do_not_truncate")
        if strategy != "do_not_truncate" and options.get("max_length") is not None:
            room = options["max_length"] - len(prefix) - len(suffix)
            if room < 0 or strategy == "only_second" or options.get("stride"):
                return None
        split_special = options.get("split_special_tokens")
        if split_special is None:
            split_special = self.split_special_tokens
        listed = exact.encode_batch(
            texts,
            num_threads=os.cpu_count() if is_long and exact.engine.has_threads else 1,
            allowed_special="none" if split_special else "all",
        )
        if room is not None:
            from_left = self.truncation_side == "left"
            listed = [ids[max(0, len(ids) - room) :] if from_left else ids[:room] for ids in listed]
        return [[*prefix, *ids, *suffix] for ids in listed]
