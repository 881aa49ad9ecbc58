"""Prometheus and Grafana: what they ask for is in the real /metrics, and the files fit together."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.settings import unknown_variables
from tests.conftest import REPOSITORY
from tests.deploy.queries import ALERTS, DASHBOARD, DEPLOY, all_queries, read_query
from tests.end_to_end.server_process import ADMIN, publish_bytes, serve

PROMTOOL = shutil.which("promtool")
ALERT_TESTS = Path(__file__).with_name("alerts_test.yml")
MANUAL = (REPOSITORY / "docs" / "operate.md").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
# What Prometheus makes by itself, and the labels it puts on everything that it reads.
OF_PROMETHEUS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
ADDED = {"job", "instance"}

Values = dict[str, dict[str, set[str]]]
"""Metric -> label -> its values."""

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """What /metrics of a real server says after a few requests."""
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
            # An answer of each status cannot be had, nor both engines; the other words are there
            # from the start.
            if label not in ADDED | {"engine"} and (label, metric) != (
                "status",
                "http_requests_total",
            ):
                for word in value.split("|") if metric in served else ():
                    there = served[metric][label]
                    assert any(re.fullmatch(word, one) for one in there), (metric, label, word)
    assert grouped_by <= labels_there


def test_a_query_that_is_none_is_found() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        read_query("sum(rate(http_requests_total[5m])")
    assert read_query('sum by (a) (rate(b{c="d"}[5m]))') == ({"b": {"c": "d"}}, {"a"})


def test_each_metric_and_each_alert_is_in_the_manual(served: Values) -> None:
    rows = set(re.findall(r"^\| `(\w+)", MANUAL, flags=re.MULTILINE))
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in served}
    assert families - rows == set()
    alerts = {rule["alert"] for rule in ALERTS}
    assert {row for row in rows if row.startswith("Tokenizer")} == alerts
    metrics = {row for row in rows if re.match("(http|tokenizer)_", row)}
    assert metrics - families == set()


def test_settings_and_codes_in_the_manual_are_there() -> None:
    named = set(re.findall(r"\bTOKENIZER_[A-Z_]+\b", MANUAL))
    assert unknown_variables(dict.fromkeys(named, "")) == []
    rows = r"^\| (?:.*\b\d{3},? |a job fails with )`([a-z_]+)`"
    codes = re.findall(rows, MANUAL, flags=re.MULTILINE)
    assert len(codes) >= 5
    source = "".join(path.read_text("utf-8") for path in (REPOSITORY / "app").rglob("*.py"))
    assert [code for code in codes if f'"{code}"' not in source] == []


def test_an_alert_says_what_is_wrong_and_what_to_look_at() -> None:
    for rule in ALERTS:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))


def promtool(*arguments: str | Path) -> None:
    """Run it; fails with what it says when it is not content."""
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


def test_promtool_is_given_each_alert_raised_and_not_raised() -> None:
    tests = yaml.safe_load(ALERT_TESTS.read_text("utf-8"))
    raised, quiet = set(), set()
    for case in itertools.chain.from_iterable(one["alert_rule_test"] for one in tests["tests"]):
        (raised if case["exp_alerts"] else quiet).add(case["alertname"])
    assert raised == quiet == {rule["alert"] for rule in ALERTS}


# The dashboard


def test_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_everything_asks_the_data_source_that_is_chosen() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    variables = DASHBOARD["templating"]["list"]
    assert (variables[0]["name"], variables[0]["type"]) == ("datasource", "datasource")
    askers: list[dict[str, Any]] = [*variables[1:], *DASHBOARD["annotations"]["list"][1:]]
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "row":
            askers += [panel, *panel["targets"]]
            assert panel["description"], panel["title"]
    assert [asker for asker in askers if asker["datasource"] != chosen] == []


def test_the_variables_list_labels_that_are_there(served: Values) -> None:
    for variable in DASHBOARD["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert match is not None
        [metric] = read_query(match[1])[0]
        assert match[2] in ADDED or match[2] in served[metric]
        assert promql.parse(f'{metric}{{{match[2]}=~"{variable["allValue"]}"}}')


# Together, in compose.yaml


def mounts(service: str) -> dict[str, str]:
    """Path in the container -> what is mounted there."""
    pairs = [volume.split(":")[:2] for volume in COMPOSE["services"][service]["volumes"]]
    return {inside: outside for outside, inside in pairs}


def test_prometheus_asks_the_service_by_its_name_and_port() -> None:
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    [scrape] = configuration["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["tokenizer:8000"]}]
    assert scrape["job_name"] == "tokenizer"
    assert COMPOSE["services"]["tokenizer"]["ports"][0].endswith(":8000")
    command = COMPOSE["services"]["prometheus"]["command"]
    inside = mounts("prometheus")
    [config_path] = [o.removeprefix("--config.file=") for o in command if "config.file" in o]
    assert (DEPLOY / inside[config_path]).resolve() == DEPLOY / "prometheus.yml"
    for name in configuration["rule_files"]:
        beside = f"{config_path.rpartition('/')[0]}/{name}"
        assert (DEPLOY / inside[beside]).resolve() == DEPLOY / name
    assert "--storage.tsdb.path=/prometheus" in command
    assert inside["/prometheus"] in COMPOSE["volumes"]


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


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    inside = mounts("grafana")

    def provisioned(kind: str) -> dict[str, Any]:
        [file] = (DEPLOY / inside[f"/etc/grafana/provisioning/{kind}"]).iterdir()
        found: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
        return found

    [source] = provisioned("datasources")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert COMPOSE["services"]["prometheus"]["ports"][0].endswith(":9090")
    assert source["uid"] == DASHBOARD["templating"]["list"][0]["current"]["value"]
    [provider] = provisioned("dashboards")["providers"]
    folder = provider["options"]["path"]
    assert inside[folder] == "./grafana/dashboards"
    environment = COMPOSE["services"]["grafana"]["environment"]
    home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/tokenizer.json"
