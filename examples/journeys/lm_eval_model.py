"""Evaluate a model with lm-eval, its text encoded by this library's engine.

    python examples/journeys/lm_eval_model.py HuggingFaceTB/SmolLM2-135M lambada_openai

Ids are those of the model's `tokenizer.json`, so the results are those of lm-eval alone; a file
that cannot be read exactly is refused.
"""

import sys
from typing import Any

import lm_eval
from lm_eval.models.huggingface import HFLM

from tokenizer_core.compat.transformers import PreTrainedTokenizerFast


def evaluate(model: Any, folder: str, tasks: list[Any]) -> dict[str, Any]:
    """The figures of each task, a name or a configuration. `model` is a name or a model of
    transformers; `folder` is the name or folder of its tokenizer."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    found = lm_eval.simple_evaluate(HFLM(pretrained=model, tokenizer=tokenizer), tasks=tasks)
    return found["results"]


def main() -> None:
    """Print the results of the tasks."""
    model, *tasks = sys.argv[1:]
    for task, figures in evaluate(model, model, tasks).items():
        print(task, figures)


if __name__ == "__main__":
    main()
