"""The files for Prometheus, Grafana, Docker Compose, Kubernetes and the container name only what
exists, and the container's entry point works."""

import json
import re
import subprocess
import sys
import tomllib

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.conftest import REPOSITORY
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings, describe, unknown_variables

DEPLOY = REPOSITORY / "deploy"
MANUAL = (REPOSITORY / "docs" / "operate.md").read_text(encoding="utf-8")
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
ENTRYPOINT = (DEPLOY / "entrypoint.sh").read_text(encoding="utf-8")
SEED = "/usr/local/share/tokenizer/tokenizers"
OF_PROMETHEUS = {"up", "ALERTS"}


def read(name):
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith("json") else yaml.safe_load(text)


def alerts():
    return [rule for group in read("alerts.yml")["groups"] for rule in group["rules"]]


def metrics_of(query):
    """The metrics that a PromQL query names; raises ValueError if it is not PromQL."""
    for variable, value in {"$__rate_interval": "1m", "$instance": ".*", "$handler": ".*"}.items():
        query = query.replace(variable, value)
    found = set()

    def note(node):
        selector = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
        if isinstance(selector, promql.VectorSelector):
            found.add(selector.name)

    promql.walk(promql.parse(query), note)
    return found


def container():
    """The pod of the stateful set, and its container."""
    pod = read("kubernetes/statefulset.yaml")["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
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

    def ours(names):
        own = (name for name in names if re.match("(http|tokenizer)_", name))
        return {re.sub("_(total|created)$", "", name) for name in own}

    assert ours(rows) == ours(metrics.values())


def test_settings_named_in_files_and_manual_exist():
    _, only = container()
    named = {*re.findall(r"\bTOKENIZER_[A-Z_]+\b", MANUAL), *(v["name"] for v in only["env"])}
    named |= set(read("compose.yaml")["services"]["tokenizer"]["environment"])
    named |= set(re.findall(r"\bTOKENIZER_[A-Z_]+", DOCKERFILE + ENTRYPOINT))
    assert unknown_variables(dict.fromkeys(named - {"TOKENIZER_REQUIRE_NATIVE"}, "")) == []
    assert {"TOKENIZER_REQUIRE_ADMIN_KEY", "TOKENIZER_ARTIFACTS_DIR"} <= named
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


def test_the_container_is_not_root_and_cannot_write():
    labels = read("kubernetes/namespace.yaml")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod, only = container()
    assert re.findall(r"^USER (.+)$", DOCKERFILE, flags=re.MULTILINE) == ["10001:10001"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    service = read("compose.yaml")["services"]["tokenizer"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


@pytest.fixture
def enter(tmp_path):
    """Run the entry point with a seed and the test's own artifacts folder."""
    seed = tmp_path / "seed"
    (seed / "starter" / "1").mkdir(parents=True)
    (seed / "starter" / "1" / "vocab.pkl").write_bytes(b"seed")
    assert f"seed={SEED}\n" in ENTRYPOINT
    script = tmp_path / "entrypoint.sh"
    script.write_text(ENTRYPOINT.replace(SEED, str(seed)))

    def run(folder):
        return subprocess.run(
            ["/bin/sh", script, "echo", "started", "it"],
            env={"PATH": "/usr/bin:/bin", "TOKENIZER_ARTIFACTS_DIR": str(folder)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("inside", [[], ["tokenizers"], [".seeding/half"], ["lost+found"]])
def test_an_empty_folder_gets_the_starter(enter, tmp_path, inside):
    folder = tmp_path / "artifacts"
    for name in ["", *inside]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    ended = enter(folder)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "started it\n", "")
    assert (folder / "tokenizers" / "starter" / "1" / "vocab.pkl").read_bytes() == b"seed"
    assert not (folder / ".seeding").exists()
    assert not (folder / "tokenizers" / "half").exists()


def test_another_folder_is_left_as_it_is_or_ends_the_container(enter, tmp_path):
    (tmp_path / "tokenizers" / "mine").mkdir(parents=True)
    assert enter(tmp_path).stdout == "started it\n"
    assert [path.name for path in (tmp_path / "tokenizers").iterdir()] == ["mine"]
    (tmp_path / "a file").write_text("")
    ended = enter(tmp_path / "a file" / "artifacts")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "chown" in ended.stderr


def test_files_that_the_image_copies_reach_the_builder_and_exist():
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, flags=re.MULTILINE)
    copied = {name for line in lines for name in line.split()[:-1]}
    assert "deploy/entrypoint.sh" in copied
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} - set(ignored) == set()
    assert [name for name in sorted(copied) if not (REPOSITORY / name).exists()] == []
    assert f" {SEED}/starter\n" in DOCKERFILE
    # The last pattern that matches decides: these follow the one that includes the package.
    for left_out in ("**/_native*.so", "tokenizer_core/native/target"):
        assert ignored.index(left_out) > ignored.index("!tokenizer_core")
    assert re.search(r"^RUN TOKENIZER_REQUIRE_NATIVE=1 .* pip wheel", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("extras", ["", "s3 postgres"])
def test_the_image_has_the_extras_it_is_built_with(extras):
    script = re.search(r"python -c '(import os, tomllib.*?)' > requirements.txt", DOCKERFILE)
    assert script
    command = [sys.executable, "-c", script[1]]
    printed = subprocess.check_output(command, cwd=REPOSITORY, env={"EXTRAS": extras}, text=True)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for name in ["service", *extras.split()]:
        wanted += project["optional-dependencies"][name]
    assert printed.splitlines() == wanted
