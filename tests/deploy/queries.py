"""The PromQL queries of the alerts and the dashboard, and their parts."""

from __future__ import annotations

import json
from typing import Any

import promql_parser as promql
import yaml

from tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads(
    (DEPLOY / "grafana" / "dashboards" / "tokenizer.json").read_text(encoding="utf-8")
)


def dashboard_queries() -> dict[str, str]:
    """Location -> query, with the values that Grafana substitutes for its variables."""
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }
    found |= {f"annotation {a['name']}": a["expr"] for a in DASHBOARD["annotations"]["list"][1:]}
    filled = {"$__rate_interval": "1m", '"$instance"': '".*"', '"$handler"': '".*"'}
    for where, query in found.items():
        for variable, value in filled.items():
            query = query.replace(variable, value)
        assert "$" not in query, where
        found[where] = query
    return found


def all_queries() -> dict[str, str]:
    """The queries of the dashboard, and those of the alerts by their names."""
    return dashboard_queries() | {rule["alert"]: rule["expr"] for rule in ALERTS}


def read_query(query: str) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Metric -> its matchers as label -> value, and the labels that are grouped by.

    Raises ValueError if the query is not PromQL.
    """
    metrics: dict[str, dict[str, str]] = {}
    grouped_by: set[str] = set()

    def note(node: promql.Expr) -> None:
        if isinstance(node, promql.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql.VectorSelector):
            assert node.name, "a metric is asked for by its name"
            matchers = {matcher.name: matcher.value for matcher in node.matchers.matchers}
            metrics.setdefault(node.name, {}).update(matchers)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            grouped_by.update(node.modifier.labels)

    promql.walk(promql.parse(query), note)
    assert metrics, query
    return metrics, grouped_by
