"""A judge run as one HTML page, without scripts or requests, in the reader's theme."""

from __future__ import annotations

import statistics
from typing import Final

from tokenizer_core.evaluation.judge_data import JudgedTokenizer, Judgement
from tokenizer_core.evaluation.page import Markup, element, joined, page, section, table
from tokenizer_core.evaluation.plots import dots, lines, swatch
from tokenizer_core.evaluation.tables import (
    ABSENT,
    JUDGE_COLUMNS,
    judge_cells,
    judged_corpus,
    judged_models,
    verdict,
)

_DEFINITIONS: Final = (
    ("bits/byte", "Loss of a model on the validation text in bits, divided by the bytes of the "
     "text; the mean over the seeds. Lower is better; equally likely bytes would cost 8."),
    ("over the seeds", "Smallest and largest value. A difference below this range shows nothing."),
    ("bytes/token", "Bytes of the validation text divided by its tokens: compression. Higher means "
     "fewer tokens, and says nothing of what a model learns from them."),
    ("parameters", "All of them. Layers without token embeddings and output layer are the same for "
     "all tokenizers; a larger vocabulary adds to the rest."),
    ("FLOPs", "Floating-point operations to train one model: matrix products, forward and back. "
     "The output layer needs more of them for a larger vocabulary."),
    ("text seen, tokens seen", "The training text of one model; text read twice counts twice."),
    ("epochs", "Tokens seen divided by those of the training text."),
    ("tokens/s", "Speed of training on this machine, the median of the seeds."),
)  # fmt: skip


def render_judge_page(judgement: Judgement) -> str:
    """The run as an HTML document.

    All text from tokenizers, names and files is escaped.
    """
    names = ", ".join(tokenizer.name for tokenizer in judgement.tokenizers)
    header = element(
        "header",
        element("h1", "Tokenizers judged by bits per byte"),
        element("p", names, class_="names"),
        element("p", judged_corpus(judgement), class_="quiet"),
    )
    rows = [[tokenizer.name, *judge_cells(tokenizer)] for tokenizer in judgement.tokenizers]
    main = element(
        "main",
        section(
            "Bits per byte",
            element("p", verdict(judgement)),
            table(["tokenizer", *JUDGE_COLUMNS], rows),
            element("p", judged_models(judgement), class_="quiet"),
        ),
        section("Each model, and how it learned", _plots(judgement)),
        section("Bits per byte of each seed", _seeds(judgement)),
        section("What the figures are", _definitions(judgement)),
    )
    return page(f"Judged: {names}", header, main)


def _plots(judgement: Judgement) -> Markup:
    models = [
        (judged.name, [model.bits_per_byte for model in judged.models])
        for judged in judgement.tokenizers
    ]
    spread = element(
        "figure",
        element("figcaption", "Validation: a dot for each seed"),
        dots(models, "Bits per byte of each model; the table has the figures", "bits per byte"),
    )
    x_title = "floating-point operations" if judgement.budget == "flops" else "bytes of text"
    series = []
    for judged in judgement.tokenizers:
        curve = _curve(judged, judgement.budget)
        # All models begin near the same loss, and a tenth later the scale fits their differences.
        series.append((judged.name, curve[len(curve) // 10 :]))
    legend = [
        element("li", swatch(index, is_line=True), " ", judged.name)
        for index, judged in enumerate(judgement.tokenizers)
    ]
    curves = element(
        "figure",
        element("figcaption", "Training loss after the first tenth"),
        lines(
            series,
            f"Training loss in bits per byte by {x_title}, on a logarithmic axis",
            x_title,
            "bits per byte",
            y_is_linear=True,
        ),
        element("ul", *legend, class_="legend"),
        element("details", element("summary", "as a table"), _curve_table(judgement)),
    )
    return element("div", spread, curves, class_="pair")


def _curve(judged: JudgedTokenizer, budget: str) -> list[tuple[float, float]]:
    """The mean of the training losses over the seeds, by what was spent."""
    return [
        (
            float(points[0].flops if budget == "flops" else points[0].n_bytes),
            statistics.fmean(point.bits_per_byte for point in points),
        )
        for points in zip(*(model.curve for model in judged.models), strict=True)
    ]


def _curve_table(judgement: Judgement) -> Markup:
    rows: list[list[str] | str] = []
    for judged in judgement.tokenizers:
        rows.append(judged.name)
        means = _curve(judged, "flops")
        for point, (_, bits_per_byte) in zip(judged.models[0].curve, means, strict=True):
            rows.append(
                [f"{point.n_tokens:,}", f"{point.n_bytes:,}", f"{point.flops:.2e}",
                 f"{bits_per_byte:.3f}"]
            )  # fmt: skip
    return table(["tokens", "bytes", "FLOPs", "bits/byte"], rows)


def _seeds(judgement: Judgement) -> Markup:
    seeds = [f"seed {seed}" for seed in judgement.seeds]
    rows = []
    for judged in judgement.tokenizers:
        std = judged.bits_per_byte.std
        rows.append(
            [judged.name, *(f"{model.bits_per_byte:.4f}" for model in judged.models),
             ABSENT if std is None else f"{std:.4f}",
             f"{statistics.fmean(model.loss for model in judged.models):.3f}",
             f"{statistics.fmean(model.seconds for model in judged.models):,.0f}"]
        )  # fmt: skip
    header = ["tokenizer", *seeds, "standard deviation", "nats/token", "seconds"]
    return table(header, rows)


def _definitions(judgement: Judgement) -> Markup:
    items = [
        *_DEFINITIONS,
        ("nats/token", "Loss per token, as training programs print it. It is not comparable "
         "between tokenizers."),
        ("machine", judgement.machine),
    ]  # fmt: skip
    normalized = [judged for judged in judgement.tokenizers if judged.normalizer != "none"]
    if normalized:
        names = ", ".join(judged.name for judged in normalized)
        items.append(
            ("normalizer", f"{names}: the text is normalized first, and its model predicts the "
             "normalized text. The bytes are those of the original text.")
        )  # fmt: skip
    return element("dl", *(joined(element("dt", t), element("dd", d)) for t, d in items))
