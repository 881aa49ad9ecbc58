"""The files for Prometheus, Grafana, Docker Compose and Kubernetes name only what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.conftest import REPOSITORY
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings, describe, unknown_variables

DEPLOY = REPOSITORY / "deploy"
FILES = [path for path in DEPLOY.rglob("*") if path.suffix in (".json", ".yaml", ".yml")]
MANUAL = (REPOSITORY / "docs" / "operate.md").read_text(encoding="utf-8")
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
OF_PROMETHEUS = {"up", "ALERTS"}


def read(name: str) -> Any:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith("json") else yaml.safe_load(text)


def alerts() -> list[dict[str, Any]]:
    return [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]


def metrics_of(query: str) -> set[str]:
    """The metrics that a PromQL query names; raises ValueError if it is not PromQL."""
    for variable, value in {"$__rate_interval": "1m", "$instance": ".*", "$handler": ".*"}.items():
        query = query.replace(variable, value)
    found = set()

    def note(node: promql.Expr) -> None:
        selector = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
        if isinstance(selector, promql.VectorSelector):
            found.add(selector.name)

    promql.walk(promql.parse(query), note)
    return found


def container() -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of the stateful set, and its container."""
    pod = read("kubernetes/statefulset.yaml")["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each metric of the service and its samples, and the metric's family."""
    settings = Settings(artifacts_dir=tmp_path_factory.mktemp("artifacts"))
    with TestClient(create_app(settings)) as client:
        text = client.get("/metrics").text
    families = text_string_to_metric_families(text)
    suffix = re.compile("_(bucket|count|sum)$")
    return {
        name: suffix.sub("", name)
        for family in families
        for name in [family.name, *(sample.name for sample in family.samples)]
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_parses(path):
    assert read(str(path.relative_to(DEPLOY)))


def test_queries_name_metrics_of_the_service(metrics):
    dashboard = read("grafana/dashboards/tokenizer.json")
    queries = [rule["expr"] for rule in alerts()]
    queries += [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]
    queries += [annotation["expr"] for annotation in dashboard["annotations"]["list"][1:]]
    named = set().union(*map(metrics_of, queries))
    assert named - OF_PROMETHEUS - set(metrics) == set()


def test_manual_lists_every_metric_and_alert(metrics):
    rows = set(re.findall(r"^\| `(\w+)", MANUAL, flags=re.MULTILINE))
    assert {row for row in rows if row.startswith("Tokenizer")} == {r["alert"] for r in alerts()}

    def ours(names: Iterable[str]) -> set[str]:
        own = (name for name in names if re.match("(http|tokenizer)_", name))
        return {re.sub("_(total|created)$", "", name) for name in own}

    assert ours(rows) == ours(metrics.values())


def test_settings_named_in_files_and_manual_exist():
    _, only = container()
    named = {*re.findall(r"\bTOKENIZER_[A-Z_]+\b", MANUAL), *(v["name"] for v in only["env"])}
    named |= set(read("compose.yaml")["services"]["tokenizer"]["environment"])
    assert unknown_variables(dict.fromkeys(named, "")) == []
    values = {v["name"]: v["value"] for v in only["env"] if "value" in v}
    lower = {name.removeprefix("TOKENIZER_").lower(): value for name, value in values.items()}
    assert Settings(**lower).threads == int(values["TOKENIZER_THREADS"])


def test_problem_codes_in_the_manual_exist():
    row = r"^\| (?:.*\b\d{3},? |a job fails with )`([a-z_]+)`"
    codes = re.findall(row, MANUAL, flags=re.MULTILINE)
    package = REPOSITORY / "app" / "tokenizer_service"
    source = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    assert codes
    assert [code for code in codes if f'"{code}"' not in source] == []


def test_probes_need_no_key():
    paths = create_app(Settings(admin_keys="a", read_keys="b")).openapi()["paths"]
    _, only = container()
    asked = {kind: only[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
    assert [p for p in asked.values() if paths[p["path"]]["get"].get("security")] == []
    assert (asked["readiness"]["path"], asked["liveness"]["path"]) == ("/readyz", "/livez")


def test_keys_come_from_a_secret():
    _, only = container()
    variables = {variable["name"]: variable for variable in only["env"]}
    keys = {row[0] for row in describe() if row[0].endswith("_KEYS")}
    assert keys <= set(variables)
    for name in keys:
        assert variables[name]["valueFrom"]["secretKeyRef"]["name"] == "tokenizer-keys"
    compose = read("compose.yaml")["services"]["tokenizer"]["environment"]
    assert [v for name, v in compose.items() if name in keys and not v.startswith("${")] == []


def test_restricted_profile_admits_the_pod():
    labels = read("kubernetes/namespace.yaml")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod, only = container()
    ((user, group),) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, flags=re.MULTILINE)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["fsGroup"] == int(group)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
