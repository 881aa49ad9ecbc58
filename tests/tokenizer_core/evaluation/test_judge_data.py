"""A judge run as data, table and page, from figures made by hand: no test here needs torch."""

import json
import re
import statistics
import subprocess
import sys

import pytest

from tests.tokenizer_core.evaluation.judge_runs import judged, run_of
from tests.tokenizer_core.evaluation.small_tokenizers import merging
from tests.tokenizer_core.evaluation.test_report_page import FETCHING, Page
from tokenizer_core.errors import FormatError, JudgeError
from tokenizer_core.evaluation.judge import SIZES, JudgeOptions, TokenStream, judge
from tokenizer_core.evaluation.judge_data import ModelSize, Spread, load_judgement
from tokenizer_core.evaluation.judge_page import render_judge_page
from tokenizer_core.evaluation.tables import render_judgement, verdict


def test_the_spread_of_one_and_of_several_seeds():
    assert Spread.over([2.0]) == Spread(2.0, 2.0, 2.0, None)
    values = [1.5, 1.25, 2.5]
    spread = Spread.over(values)
    assert (spread.min, spread.max) == (1.25, 2.5)
    assert spread.std == pytest.approx((sum((v - 1.75) ** 2 for v in values) / 2) ** 0.5)


def test_json_comes_back_the_same_and_may_have_more_fields(tmp_path):
    run = run_of(judged("a", [2.0, 2.5]), judged("b", [2.125, 2.25]))
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(run.to_dict() | {"later": 1}))
    assert load_judgement(path) == run
    one_seed = run_of(judged("a", [2]))
    path.write_text(json.dumps(one_seed.to_dict()))
    assert load_judgement(path) == one_seed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run | {"schema": "tokenizer-judge/2"}, "not a judge run of this release"),
        (lambda run: [run], "not a judge run"),
        (lambda run: run | {"tokenizers": []}, "no tokenizers"),
        (lambda run: run | {"amount": "much"}, "amount is missing or wrong"),
        (lambda run: run | {"amount": True}, "amount is missing or wrong"),
        (lambda run: run | {"corpus": {"name": "x"}}, "n_documents is missing or wrong"),
        (lambda run: {k: v for k, v in run.items() if k != "size"}, "size is missing or wrong"),
        (
            lambda run: run | {"tokenizers": [run["tokenizers"][0] | {"bits_per_byte": 2.0}]},
            "bits_per_byte is missing or wrong",
        ),
    ],
)
def test_another_file_or_a_damaged_one_is_refused(tmp_path, change, message):
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(change(run_of(judged("a", [2.0])).to_dict())))
    with pytest.raises(FormatError, match=message):
        load_judgement(path)
    path.write_text("{")
    with pytest.raises(FormatError, match=r"judge\.json"):
        load_judgement(path)


def test_the_table_has_every_figure():
    run = run_of(judged("a", [2.0, 2.5]), judged("long-name", [2.75, 3.0], vocab_size=32_000))
    text = render_judgement(run)
    assert re.search(
        r"\na +2\.250 +2\.000 to 2\.500 +2\.500 +1,000 +123\.5k +3\.00e\+09 +7\.5 kB +1\.23M +0\.25"
        r" +4,321\n",
        text,
    )
    assert re.search(r"\nlong-name +2\.875 +2\.750 to 3\.000 +2\.500 +32,000 ", text)
    assert "40.0 kB to train on, 10.0 kB in 7 of 500 documents to validate" in text
    assert "3.00e+09 floating-point operations; seeds 0, 1." in text
    assert "2,048 tokens a step" in text
    by_bytes = run_of(judged("a", [2.0]), budget="bytes", amount=7_500_000)
    assert "7.5 MB of text" in render_judgement(by_bytes)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([[2.0, 2.1], [2.1, 2.4]], "overlaps with b: no difference is shown"),
        ([[2.0, 2.1], [2.2, 2.4]], "overlaps with no other"),
        ([[2.0], [2.2]], "One seed shows no spread"),
        ([[2.0]], "Fewest bits per byte: a, 2.000."),
    ],
)
def test_the_verdict_looks_at_the_seeds(losses, expected):
    run = run_of(*(judged(name, found) for name, found in zip("ab", losses, strict=False)))
    assert expected in verdict(run)
    assert verdict(run).startswith("Fewest bits per byte: a")


@pytest.mark.parametrize("budget", ["flops", "bytes"])
def test_the_page_is_whole_escaped_and_shows_every_model(budget):
    run = run_of(
        judged("<b>a", [2.0, 2.5]), judged("b", [2.75, 3.0], normalizer="nfc"), budget=budget
    )
    rendered = render_judge_page(run)
    page = Page(rendered)
    assert not FETCHING & set(page.tags)
    assert "b" not in page.tags
    shown = "".join(page.text)
    assert "<b>a" in shown
    assert page.tags.count("circle") == 4
    assert page.tags.count("polyline") == 2
    for figure in ("2.250", "2.0000", f"{statistics.stdev([2.0, 2.5]):.4f}", "3.825", "1.333"):
        assert figure in shown
    assert "b: the text is normalized first" in shown
    assert ("bytes of text" in shown) == (budget == "bytes")


def test_the_curve_is_the_mean_of_the_seeds():
    lower, higher = judged("a", [2.0]), judged("a", [2.5])
    points = [point.__class__(point.n_tokens, point.n_bytes, point.flops, 8.0)
              for point in higher.models[0].curve]  # fmt: skip
    models = [*lower.models, higher.models[0].__class__(1, 2.5, 4.0, 9.0, points)]
    run = run_of(judged("a", [2.0, 2.5], models=models))
    details = render_judge_page(run).partition("<details>")[2].partition("</details>")[0]
    means = re.findall(r'<td class="n">([\d.]+)</td></tr>', details)
    assert means == [f"{(4 / n + 8) / 2:.3f}" for n in (1, 2, 3)]


@pytest.mark.parametrize("n_ids", [1, 2, 7, 8, 9, 12, 13, 31])
@pytest.mark.parametrize("context", [1, 2, 7, 8])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_id_after_the_first_is_a_target_once_after_half_a_context(n_ids, context, batch_size):
    import numpy as np

    stream = TokenStream(np.arange(100, 100 + n_ids, dtype=np.uint16), 1, 0)
    seen = []
    for inputs, targets in stream.windows(batch_size, context):
        assert inputs.shape == targets.shape
        assert inputs.shape[1] == context
        assert 1 <= len(inputs) <= batch_size
        for row, wanted in zip(inputs, targets, strict=True):
            for at in np.flatnonzero(wanted >= 0):
                assert row[: at + 1].tolist() == list(range(wanted[at] - at - 1, wanted[at]))
                assert at >= context - max(context // 2, 1) or wanted[at] == 101 + at
                seen.append(int(wanted[at]))
    assert seen == list(range(101, 100 + n_ids))


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": "time"},
        {"amount": 0},
        {"n_seeds": 0},
        {"seed": -1},
        {"device": "tpu"},
        {"validation_bytes": 0},
        {"size": ModelSize("x", 10, 1, 4, 8, 8, 1e-3), "amount": 1},
        {"size": ModelSize("x", 16, 0, 4, 8, 8, 1e-3), "amount": 1},
        {"size": ModelSize("of my own", 16, 1, 4, 8, 8, 1e-3)},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(JudgeError):
        JudgeOptions(**wrong)


def test_each_size_has_a_default_for_each_budget():
    for size in SIZES.values():
        assert JudgeOptions(size=size).spent >= 10**12
        assert JudgeOptions(size=size, budget="bytes").spent >= size.n_tokens_per_step * 100


def test_without_torch_one_line_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(JudgeError, match=r"the extra judge; pip install 'tokenizer-service\[judge"):
        judge({"bytes": merging([])}, tmp_path / "corpus.txt")


def test_torch_is_not_imported_before_a_run():
    modules = ["tokenizer_core.evaluation", "tokenizer_core.evaluation.judge_page",
               *(f"tokenizer_service.commands.{n}" for n in ("judging", "training", "artifacts")),
               "tokenizer_core.evaluation.training_page"]  # fmt: skip
    code = "import sys; sys.modules['torch'] = None\n" + "".join(f"import {m}\n" for m in modules)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
