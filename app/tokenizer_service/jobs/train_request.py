"""CheckedTrainRequest: a training request that the library can carry out.

`TrainRequest` checks shapes and literal limits. The checks here need the library: the named split
patterns, whether each seed token can be one token, and whether the vocabulary has room.
"""

from __future__ import annotations

from pydantic import ValidationInfo, field_validator, model_validator

from tokenizer_client.schemas.jobs import TrainRequest
from tokenizer_client.schemas.tokens import invalid
from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import ALIASES, PATTERNS
from tokenizer_core.training.extension import check_may_extend
from tokenizer_core.training.vocabulary_plan import (
    make_seed_merges,
    plan_extension,
    plan_vocabulary,
)
from tokenizer_service.jobs.worker.context import vocabulary_options


class CheckedTrainRequest(TrainRequest):
    """A TrainRequest whose vocabulary is possible. No message repeats the request."""

    @field_validator("pattern")
    @classmethod
    def _resolve_pattern(cls, pattern: str) -> str:
        # Accept only names: an expression from the network could take exponential time.
        name = ALIASES.get(pattern, pattern)
        if name not in PATTERNS:
            raise invalid(
                f"only named split patterns are taken here ({', '.join(PATTERNS)}); "
                f"an expression of your own works on the command line: tokenizer train --pattern"
            )
        return name

    @field_validator("seed_tokens")
    @classmethod
    def _check_seed_merges(cls, seeds: list[str], known: ValidationInfo) -> list[str]:
        if not {"pattern", "special_tokens"} <= known.data.keys():
            return seeds  # those fields have their own errors
        for index, seed in enumerate(seeds):
            try:
                make_seed_merges(
                    [seed],
                    pattern=PATTERNS[known.data["pattern"]],
                    special_tokens=known.data["special_tokens"],
                    max_token_length=known.data.get("max_token_length"),
                )
            except InvalidSpecError:
                raise invalid(
                    f"number {index} (from 0) cannot be one token: it is a single byte, has more "
                    f"bytes than max_token_length, holds a special token, or the pattern divides "
                    f"it; leave it out"
                ) from None
        return seeds

    @model_validator(mode="after")
    def _check_vocabulary(self) -> CheckedTrainRequest:
        if self.extend is not None:
            return self  # `check_extension` does, with that tokenizer
        options = vocabulary_options(self.model_dump())
        try:
            plan = plan_vocabulary(self.special_tokens, PATTERNS[self.pattern], options)
            plan.n_merges(self.vocab_size)
        except VocabSizeError as error:  # its message has only numbers
            raise invalid(str(error)) from None
        except InvalidSpecError:
            # Each option is valid by itself, so the names collide.
            raise invalid(
                "a special token has the name of a reserved one; call it otherwise, or leave "
                "reserved and pad_to_multiple out"
            ) from None
        return self


def check_extension(request: CheckedTrainRequest, base: TokenizerSpec) -> None:
    """Raise VocabSizeError or InvalidSpecError if `base` cannot be extended as asked."""
    check_may_extend(base)
    plan = plan_extension(base, vocabulary_options(request.model_dump()))
    plan.n_merges(request.vocab_size)
