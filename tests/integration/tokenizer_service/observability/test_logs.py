"""JSON logs of a real server with several processes."""

import json
from pathlib import Path

from tests.integration.server_process import publish_bytes, serve


def test_with_json_every_line_of_the_log_is_json(tmp_path: Path) -> None:
    """Lines of uvicorn, its supervisor and the service alike; only the remedy is for people."""
    publish_bytes(tmp_path, "starter")
    with serve(tmp_path, workers=2, log_format="json") as server:
        assert server.encode_on_new_connection("a").status_code == 200
        server.terminate()
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    loggers = {line["logger"].partition(".")[0] for line in lines}
    assert loggers == {"tokenizer_service", "uvicorn"}
    others = [line for line in server.lines if not line.startswith("{")]
    shown = others[: 1 + max(index for index, line in enumerate(others) if "curl" in line)]
    assert shown[0].startswith("tokenizer service on")
    assert [line for line in others[len(shown) :] if line] == []
