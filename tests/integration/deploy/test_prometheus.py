"""A real Prometheus reads the real service: targets are up, rules and queries return results."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.queries import ALERTS, DEPLOY, all_queries
from tests.integration.nginx_process import free_port, replace_once
from tests.integration.server_process import publish_bytes, serve, wait_for_job

PROMETHEUS = shutil.which("prometheus")
START_SECONDS = 60.0
READ_KEY = "key-of-prometheus"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
]

# Queries that may return nothing: no fault exists, or the swap was more than a minute ago.
SILENT = {rule["alert"] for rule in ALERTS} | {"annotation Alerts", "annotation Swaps"}


@contextlib.contextmanager
def prometheus(folder: Path, service_port: int) -> Iterator[httpx.Client]:
    """A Prometheus with the shipped files that reads `service_port`; a client of its API."""
    assert PROMETHEUS is not None
    text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    for old, new in {
        '"tokenizer:8000"': f'"127.0.0.1:{service_port}"',
        "scrape_interval: 15s": "scrape_interval: 1s",
        "evaluation_interval: 15s": "evaluation_interval: 1s",
        "# authorization:": "authorization:",
        "#   credentials_file: /run/secrets/tokenizer_read": f"  credentials_file: {folder}/read",
    }.items():
        text = replace_once(text, old, new)
    (folder / "prometheus.yml").write_text(text)
    (folder / "read_key").write_text(f"{READ_KEY}\n")
    shutil.copy(DEPLOY / "alerts.yml", folder)
    port = free_port()
    command = [
        PROMETHEUS,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=30) as api:
            wait_until(lambda: is_up(api), folder / "prometheus.log")
            yield api
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def wait_until(is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.2)


def is_up(api: httpx.Client) -> bool:
    try:
        targets = api.get("/targets").json()["data"]["activeTargets"]
    except httpx.TransportError:
        return False
    return [target["health"] for target in targets] == ["up"]


def ask(api: httpx.Client, query: str) -> list[dict[str, Any]]:
    answer = api.get("/query", params={"query": query})
    assert answer.status_code == 200, (query, answer.text)
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def test_everything_that_is_asked_has_an_answer(tmp_path: Path) -> None:
    artifacts = tmp_path / "artifacts"
    publish_bytes(artifacts, "starter")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with (
        serve(artifacts, read_keys=READ_KEY) as server,
        server.client() as client,
        prometheus(folder, server.port) as api,
    ):
        training = {"documents": ["aa bb"], "vocab_size": 258, "name": "other"}
        accepted = client.post("/train", json=training).raise_for_status()
        assert wait_for_job(client, accepted.json()["id"])["state"] == "live"  # the swap, too
        log = folder / "prometheus.log"

        def is_seen() -> bool:
            ids = client.post("/encode", json={"text": "one two"}).json()["tokens"]
            client.post("/decode", json={"tokens": ids})
            seen = ask(api, "sum(rate(tokenizer_encode_bytes_total[1m])) > 0")
            return bool(seen and ask(api, 'tokenizer_info{name="other"}'))

        wait_until(is_seen, log)
        wait_until(lambda: rules_were_evaluated(api), log)
        silent = {where for where, query in all_queries().items() if not ask(api, query)}
        assert silent - SILENT == set()
        rules = api.get("/rules").json()["data"]["groups"][0]["rules"]
        assert {rule["name"] for rule in rules} == {rule["alert"] for rule in ALERTS}
        assert {rule["health"] for rule in rules} == {"ok"}
        assert ask_alerts(api, "TokenizerDown") == []
        server.terminate()
        wait_until(lambda: not is_up(api), log)
        wait_until(lambda: ask_alerts(api, "TokenizerDown") != [], log)


def rules_were_evaluated(api: httpx.Client) -> bool:
    groups = api.get("/rules").json()["data"]["groups"]
    return all(rule["health"] == "ok" for group in groups for rule in group["rules"])


def ask_alerts(api: httpx.Client, name: str) -> list[dict[str, Any]]:
    alerts = api.get("/alerts").json()["data"]["alerts"]
    return [alert for alert in alerts if alert["labels"]["alertname"] == name]
