"""compose.yaml: its limits and mounts, and that it fits the image and the service."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.settings import Settings

from tests.conftest import REPOSITORY
from tests.deploy.test_monitoring import COMPOSE, DEPLOY

SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SERVICES)
def test_nobody_may_more_than_needed(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= set(service)
    for port in service["ports"]:
        assert port.startswith("127.0.0.1:"), "this machine only"
    # Our own image sets it itself.
    user = service.get("user") or re.findall(r"^USER (.+)$", DOCKERFILE, flags=re.MULTILINE)[0]
    assert int(user.partition(":")[0]) > 0


def test_only_the_service_starts_unasked() -> None:
    unasked = [name for name, service in SERVICES.items() if not service.get("profiles")]
    assert unasked == ["tokenizer"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        if volume.startswith("./"):
            outside, _, mode = volume.split(":")
            assert (DEPLOY / outside).exists()
            assert mode == "ro"
        elif not volume.startswith("$"):
            assert volume.partition(":")[0] in COMPOSE["volumes"]


def test_images_of_others_have_a_version() -> None:
    for name in ("prometheus", "grafana"):
        assert re.fullmatch(
            r"\$\{\w+:-docker\.io/[\w./-]+:v?\d+\.\d+\.\d+\}", SERVICES[name]["image"]
        )


def test_it_fits_the_image() -> None:
    service = SERVICES["tokenizer"]
    mounted = {
        volume.rsplit(":", 2)[-2 if volume.endswith(":ro") else -1] for volume in service["volumes"]
    }
    assert {f"TOKENIZER_ARTIFACTS_DIR={path}" in DOCKERFILE for path in mounted} == {True, False}
    assert mounted == {"/data/artifacts", "/data/corpora"}
    assert "TOKENIZER_CORPUS_ROOTS=/data/corpora" in DOCKERFILE
    assert "VOLUME /data/artifacts" in DOCKERFILE
    [port] = service["ports"]
    assert f"TOKENIZER_PORT={port.rpartition(':')[2]} " in DOCKERFILE


def test_it_waits_until_the_service_has_ended() -> None:
    assert int(SERVICES["tokenizer"]["stop_grace_period"].removesuffix("s")) > GRACEFUL_SECONDS + 2


def test_a_job_is_ended_before_the_whole() -> None:
    def default(value: str) -> str:
        return re.findall(r":-(.*)\}", value)[0]

    limit = default(SERVICES["tokenizer"]["mem_limit"])
    assert limit.endswith("g")
    bound = int(default(SERVICES["tokenizer"]["environment"]["TOKENIZER_TRAIN_MEMORY_BYTES"]))
    assert bound <= int(limit.removesuffix("g")) << 29, "half is left for serving"
    assert Settings(train_memory_bytes=bound).train_memory_bytes == bound


def test_the_check_of_health_is_that_of_the_image() -> None:
    [in_image] = re.findall(r'^  CMD \["(.+)"\]$', DOCKERFILE, flags=re.MULTILINE)
    assert SERVICES["tokenizer"]["healthcheck"]["test"] == ["CMD", in_image]
    assert f"deploy/healthcheck.py /usr/local/bin/{in_image}\n" in DOCKERFILE
