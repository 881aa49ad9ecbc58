"""Metrics of a real server in the queries, and the files in promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import httpx
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.queries import ALERTS, DASHBOARD, DEPLOY, all_queries, read_query
from tests.deploy.test_monitoring import ALERT_TESTS, MANUAL
from tests.integration.server_process import ADMIN, publish_bytes, serve

PROMTOOL = shutil.which("promtool")
# Metrics that Prometheus makes itself, and the labels it adds to every metric.
OF_PROMETHEUS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
ADDED = {"job", "instance"}

Values = dict[str, dict[str, set[str]]]

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """The text of a real server's /metrics after a few requests."""
    artifacts = tmp_path_factory.mktemp("monitoring") / "artifacts"
    publish_bytes(artifacts, "starter")
    with serve(artifacts) as server:
        for _ in range(2):
            httpx.post(f"{server.url}/encode", json={"text": "a"}, headers=ADMIN)
        text = httpx.get(f"{server.url}/metrics").raise_for_status().text
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, defaultdict(set))
            for label, value in sample.labels.items():
                labels[label].add(value)
    return found


@pytest.mark.parametrize(("where", "query"), all_queries().items(), ids=all_queries())
def test_what_a_query_asks_for_is_there(served: Values, where: str, query: str) -> None:
    metrics, grouped_by = read_query(query)
    labels_there = set(ADDED)
    for metric, matchers in metrics.items():
        assert metric in served or metric in OF_PROMETHEUS, metric
        labels = set(served[metric]) if metric in served else OF_PROMETHEUS[metric]
        assert set(matchers) <= labels | ADDED, (metric, matchers)
        labels_there |= labels
        for label, value in matchers.items():
            # A test cannot produce every status, nor use both engines; the other label values exist
            # from the start.
            if label not in ADDED | {"engine"} and (label, metric) != (
                "status",
                "http_requests_total",
            ):
                for word in value.split("|") if metric in served else ():
                    there = served[metric][label]
                    assert any(re.fullmatch(word, one) for one in there), (metric, label, word)
    assert grouped_by <= labels_there


def test_each_metric_and_each_alert_is_in_the_manual(served: Values) -> None:
    rows = set(re.findall(r"^\| `(\w+)", MANUAL, flags=re.MULTILINE))
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in served}
    assert families - rows == set()
    alerts = {rule["alert"] for rule in ALERTS}
    assert {row for row in rows if row.startswith("Tokenizer")} == alerts
    metrics = {row for row in rows if re.match("(http|tokenizer)_", row)}
    assert metrics - families == set()


def promtool(*arguments: str | Path) -> None:
    """Run the command; fail with its output if its exit status is not 0."""
    assert PROMTOOL is not None
    command = [PROMTOOL, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_promtool
def test_prometheus_takes_its_files() -> None:
    promtool("check", "config", DEPLOY / "prometheus.yml")
    promtool("check", "rules", "--lint-fatal", DEPLOY / "alerts.yml")


@needs_promtool
def test_each_alert_is_raised_when_it_should_be(tmp_path: Path) -> None:
    bare = [{k: v for k, v in rule.items() if k != "annotations"} for rule in ALERTS]
    rules = {"groups": [{"name": "tokenizer", "rules": bare}]}
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules))
    shutil.copy(ALERT_TESTS, tmp_path)
    promtool("test", "rules", tmp_path / ALERT_TESTS.name)


def test_the_variables_list_labels_that_are_there(served: Values) -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert match is not None
        [metric] = read_query(match[1])[0]
        assert match[2] in ADDED or match[2] in served[metric]
        assert promql.parse(f'{metric}{{{match[2]}=~"{variable["allValue"]}"}}')


def test_what_is_in_comments_can_be_taken_in(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    taken_in = re.sub(r"^( *)# ((?: *)(?:- )?\w+:.*)$", r"\1\2", text, flags=re.MULTILINE)
    configuration = yaml.safe_load(taken_in)
    assert configuration["alerting"]["alertmanagers"][0]["static_configs"]
    assert configuration["scrape_configs"][0]["authorization"]["credentials_file"]
    if PROMTOOL is not None:
        (tmp_path / "key").write_text("key")
        (tmp_path / "alerts.yml").write_bytes((DEPLOY / "alerts.yml").read_bytes())
        file = tmp_path / "prometheus.yml"
        file.write_text(taken_in.replace("/run/secrets/tokenizer_read_key", f"{tmp_path}/key"))
        promtool("check", "config", file)
