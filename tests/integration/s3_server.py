"""A real S3 server for tests: moto's, on 127.0.0.1, in this process; each test has its own bucket.

It can lose responses, ignore conditions and stop responding, as servers do. moto checks a condition
and writes in two steps, so that two writers can both succeed; here writes run one at a time, as S3
promises.
"""

import os
import threading
import time
import uuid

import httpx
import pytest

from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.blobs.bucket import ObjectStorage

AWAY_SECONDS = 60.0


class S3Server:
    """`start` and `stop` keep the stored objects and the port."""

    def __init__(self):
        self._server = None
        self._port = 0
        self._writing = threading.Lock()
        self.ignored_headers = ()
        """Conditions that it ignores, such as `HTTP_IF_MATCH`."""
        self.lost_answers = 0
        """This many of the next writes succeed and respond with an error."""
        self.broken_bodies = 0
        """The bodies of this many of the next reads end one byte early."""
        self.is_silent = threading.Event()
        """While set, it responds to no request."""
        self.requests = []
        """Method and path of each."""

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *_):
                pass

        app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", self._port, self._guard(app), threaded=True, request_handler=Quiet
        )
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def _guard(self, app):
        def guarded(environ, start_response):
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            until = time.monotonic() + AWAY_SECONDS
            while self.is_silent.is_set() and time.monotonic() < until:
                time.sleep(0.02)
            if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
                body = app(environ, start_response)
                if self.broken_bodies:
                    self.broken_bodies -= 1
                    body = [b"".join(body)[:-1]]
                return body
            for header in self.ignored_headers:
                environ.pop(header, None)
            with self._writing:
                if not self.lost_answers:
                    return app(environ, start_response)
                self.lost_answers -= 1
                list(app(environ, lambda *_: None))
            start_response("503 Service Unavailable", [("Content-Length", "0")])
            return []

        return guarded


@pytest.fixture(scope="session")
def s3_server():
    """The server of this process; skips where moto is not installed."""
    pytest.importorskip("moto", reason="the extra dev is not installed")
    pytest.importorskip("s3transfer", reason="the extra s3 is not installed")
    server = S3Server()
    server.start()
    yield server
    server.stop()


def aws_environment(server):
    """The environment variables of S3 clients for this server."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/nowhere/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere/credentials",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def s3_bucket(s3_server, monkeypatch):
    """`s3://bucket`, new for each test; the environment points clients to it."""
    for name, value in aws_environment(s3_server).items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    httpx.put(f"{s3_server.endpoint}/{bucket}", timeout=30).raise_for_status()
    s3_server.requests.clear()
    return f"s3://{bucket}"


_CLIENTS = {}


def open_with_shared_client(address):
    """Like `open_storage`, without the probe, and with one shared client: creating one is slow."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if endpoint not in _CLIENTS:
        _CLIENTS[endpoint] = open_storage(f"s3://{bucket}")
    return ObjectStorage(_CLIENTS[endpoint]._client, bucket, prefix)
