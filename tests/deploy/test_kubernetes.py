"""The Kubernetes manifests: the names they use exist, and a strict cluster admits them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings, describe, unknown_variables

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "kubernetes"
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
OPTIONAL = {"servicemonitor.yaml"}
SETTINGS = {row[0] for row in describe()}


def read(name: str) -> dict[str, Any]:
    [document] = yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    found: dict[str, Any] = document
    return found


KUSTOMIZATION = read("kustomization.yaml")
MANIFESTS = {path.name: read(path.name) for path in FOLDER.glob("*.yaml")}
del MANIFESTS["kustomization.yaml"]
SET = MANIFESTS["statefulset.yaml"]["spec"]
POD = SET["template"]["spec"]
[CONTAINER] = POD["containers"]
LABELS = SET["template"]["metadata"]["labels"]
ENVIRONMENT = {variable["name"]: variable for variable in CONTAINER["env"]}


@pytest.mark.parametrize("version", ["1.27", "1.34"])
def test_the_schemas_of_kubernetes_take_them(version: str) -> None:
    # 108 MB of schemas, which is not among the tools: pip install kubernetes-validate
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not there")
    for name, manifest in MANIFESTS.items():
        if name not in OPTIONAL:  # a kind that the operator defines
            schemas.validate(manifest, version, strict=True)


def test_kustomize_takes_all_that_is_not_optional() -> None:
    assert set(KUSTOMIZATION["resources"]) == set(MANIFESTS) - OPTIONAL
    text = (FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"# - (\S+\.yaml)", text)) == OPTIONAL
    assert [image["name"] for image in KUSTOMIZATION["images"]] == [CONTAINER["image"]]
    assert MANIFESTS["namespace.yaml"]["metadata"]["name"] == KUSTOMIZATION["namespace"]


def test_probes_ask_routes_that_need_no_key() -> None:
    app = create_app(Settings(admin_keys="a", read_keys="b"))
    paths = app.openapi()["paths"]
    probes = {kind: CONTAINER[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    for probe in probes.values():
        assert probe["httpGet"]["port"] == "http"
        assert not paths[probe["httpGet"]["path"]]["get"].get("security")
    assert probes["readiness"]["httpGet"]["path"] == "/readyz"
    # A restart brings no tokenizer: a pod that is not ready must not be ended for it.
    assert probes["liveness"]["httpGet"]["path"] == probes["startup"]["httpGet"]["path"] == "/livez"


def test_ports_agree() -> None:
    [port] = CONTAINER["ports"]
    assert port["name"] == "http"
    assert f"TOKENIZER_PORT={port['containerPort']} " in DOCKERFILE
    [published] = MANIFESTS["service.yaml"]["spec"]["ports"]
    assert (published["targetPort"], published["port"]) == ("http", port["containerPort"])
    [rule] = MANIFESTS["networkpolicy.yaml"]["spec"]["ingress"]
    assert [one["port"] for one in rule["ports"]] == ["http"]
    [endpoint] = MANIFESTS["servicemonitor.yaml"]["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (published["name"], "/metrics")
    assert "/metrics" in create_app(Settings()).openapi()["paths"]


def test_all_mean_the_same_pod() -> None:
    assert SET["selector"]["matchLabels"] == LABELS
    for name, selector in {
        "service.yaml": MANIFESTS["service.yaml"]["spec"]["selector"],
        "networkpolicy.yaml": MANIFESTS["networkpolicy.yaml"]["spec"]["podSelector"]["matchLabels"],
        "poddisruptionbudget.yaml": MANIFESTS["poddisruptionbudget.yaml"]["spec"]["selector"][
            "matchLabels"
        ],
        "servicemonitor.yaml": MANIFESTS["servicemonitor.yaml"]["spec"]["selector"]["matchLabels"],
    }.items():
        assert selector == LABELS, name
    service = MANIFESTS["service.yaml"]["metadata"]
    assert service["labels"] == LABELS
    # The alerts and the dashboard use this name as the job, and the pod's labels have it.
    assert service["name"] == SET["serviceName"] == "tokenizer"


def test_variables_are_settings_with_values_that_are_taken() -> None:
    assert set(ENVIRONMENT) <= SETTINGS
    assert unknown_variables(dict.fromkeys(ENVIRONMENT, "")) == []
    values = {
        name.removeprefix("TOKENIZER_").lower(): variable["value"]
        for name, variable in ENVIRONMENT.items()
        if "value" in variable
    }
    settings = Settings(**values)
    assert settings.train_memory_bytes == 2 << 30
    # The node has many cores and the pod few: the node's number must not decide.
    assert settings.threads == settings.train_threads == 2
    # A Service sets variables of its name in every pod; ours would be read as settings.
    assert "TOKENIZER_PORT" in SETTINGS
    assert POD["enableServiceLinks"] is False


def test_keys_are_in_a_secret_and_nowhere_here() -> None:
    keys = {name for name in ENVIRONMENT if name.endswith("_KEYS")}
    assert keys == {name for name in SETTINGS if name.endswith("_KEYS")}
    for name in keys:
        assert set(ENVIRONMENT[name]) == {"name", "valueFrom"}
        reference = ENVIRONMENT[name]["valueFrom"]["secretKeyRef"]
        assert reference["name"] == "tokenizer-keys"
        assert reference.get("optional", False) is (name == "TOKENIZER_READ_KEYS")
    assert "Secret" not in {manifest["kind"] for manifest in MANIFESTS.values()}


def test_what_is_written_to_is_mounted() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    [claim] = SET["volumeClaimTemplates"]
    assert set(mounts) == {claim["metadata"]["name"]} | {
        volume["name"] for volume in POD["volumes"]
    }
    assert f"TOKENIZER_ARTIFACTS_DIR={mounts['artifacts']} " in DOCKERFILE
    assert f"VOLUME {mounts['artifacts']}\n" in DOCKERFILE
    assert f"HOME={mounts['tmp']} " in DOCKERFILE
    # One owner: a volume that one node mounts, and that stays when the set is removed.
    assert (SET["replicas"], claim["spec"]["accessModes"]) == (1, ["ReadWriteOnce"])
    assert set(SET["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


def test_the_profile_restricted_admits_it() -> None:
    labels = MANIFESTS["namespace.yaml"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    security = POD["securityContext"]
    [(user, group)] = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, flags=re.MULTILINE)
    assert security["runAsNonRoot"] is True
    assert (security["runAsUser"], security["runAsGroup"]) == (int(user), int(group))
    assert security["fsGroup"] == int(group), "else the volume is root's"
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False
    kinds = {kind for volume in POD["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}


def test_accepted_requests_may_finish() -> None:
    program, seconds = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert POD["terminationGracePeriodSeconds"] >= int(seconds) + GRACEFUL_SECONDS + 2


def test_a_drain_is_not_held_up() -> None:
    budget = MANIFESTS["poddisruptionbudget.yaml"]["spec"]
    assert budget.get("maxUnavailable") == SET["replicas"]


def test_a_job_is_ended_before_the_pod() -> None:
    limit = CONTAINER["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    bound = int(ENVIRONMENT["TOKENIZER_TRAIN_MEMORY_BYTES"]["value"])
    assert bound <= int(limit.removesuffix("Gi")) << 29, "half is left for serving"
