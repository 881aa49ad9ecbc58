"""Prometheus and Grafana: their queries name metrics that exist, and the files are consistent."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizer_service.settings import unknown_variables

from tests.conftest import REPOSITORY
from tests.deploy.queries import ALERTS, DASHBOARD, DEPLOY, read_query

ALERT_TESTS = Path(__file__).with_name("alerts_test.yml")
MANUAL = (REPOSITORY / "docs" / "operate.md").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
"""Metric -> label -> its values."""


def test_a_query_that_is_none_is_found() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        read_query("sum(rate(http_requests_total[5m])")
    assert read_query('sum by (a) (rate(b{c="d"}[5m]))') == ({"b": {"c": "d"}}, {"a"})


def test_settings_and_codes_in_the_manual_are_there() -> None:
    named = set(re.findall(r"\bTOKENIZER_[A-Z_]+\b", MANUAL))
    assert unknown_variables(dict.fromkeys(named, "")) == []
    rows = r"^\| (?:.*\b\d{3},? |a job fails with )`([a-z_]+)`"
    codes = re.findall(rows, MANUAL, flags=re.MULTILINE)
    assert len(codes) >= 5
    source = "".join(
        path.read_text("utf-8") for path in (REPOSITORY / "app" / "tokenizer_service").rglob("*.py")
    )
    assert [code for code in codes if f'"{code}"' not in source] == []


def test_an_alert_says_what_is_wrong_and_what_to_look_at() -> None:
    for rule in ALERTS:
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))


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


# Together, in compose.yaml


def mounts(service: str) -> dict[str, str]:
    """Path in the container -> the file that is mounted there."""
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
