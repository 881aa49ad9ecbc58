"""Small requests served at once: the response is the one that a task of the app gives."""

import asyncio
import itertools
import json
import logging
import random
import re
from collections import Counter
from typing import NamedTuple
from unittest.mock import patch

import pytest
from pydantic import SecretStr
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.tokenizer_service.conftest import settings_for
from tests.tokenizer_service.http.clients import open_protocol
from tokenizer_service.access.limits import INLINE_BODY_BYTES, INLINE_ITEMS
from tokenizer_service.handlers import encode as encode_handler
from tokenizer_service.http.id_formats import OCTETS
from tokenizer_service.main import create_app
from tokenizer_service.observability.logs import REQUEST_ID
from tokenizer_service.observability.tracing import VARIABLES

TEXT = {"text": "the quick brown fox"}
JSON = "Content-Type: application/json"


class Outcome(NamedTuple):
    """The responses (status, headers, content) of a connection, and how many were given at once."""

    responses: list[tuple[str, dict[str, str], bytes]]
    n_at_once: int
    is_closed: bool


class Served:
    """An app behind the protocol, without a server."""

    def __init__(self, settings, **options):
        self.runner = asyncio.Runner()
        self.app = create_app(settings)
        self.lifespan = self.app.router.lifespan_context(self.app)
        self.state = self.runner.run(self.lifespan.__aenter__())
        self.app.middleware_stack = self.app.build_middleware_stack()
        self.n_at_once = 0
        server_of = self.app.server_of

        def watch(scope):
            serve = server_of(scope)

            def watched(body):
                response = serve(body)
                self.n_at_once += response is not None
                return response

            return None if serve is None else watched

        if server_of is not None:
            self.app.server_of = watch
        plain = {"log_config": None, "access_log": False, "proxy_headers": False}
        self.config = Config(self.app, **{**plain, **options})
        self.config.load()
        self.server_state = ServerState()
        self.server_state.default_headers = [(b"date", b"now")]

    def close(self):
        self.runner.run(self.lifespan.__aexit__(None, None, None))
        self.runner.close()

    def converse(self, *pieces, n_responses=1, is_paused=False):
        """Send the pieces over one connection until it has `n_responses`."""

        async def run():
            before, data = self.n_at_once, b""
            # uvicorn logs each request if its logger has a handler, and pytest adds some.
            log, handlers = logging.getLogger("uvicorn.access"), [logging.NullHandler()]
            handlers = handlers if self.config.access_log else []
            with patch.multiple(log, handlers=handlers, propagate=False):
                opened = open_protocol(self.config, dict(self.state), self.server_state)
                protocol, client = await opened
            if is_paused:
                protocol.pause_writing()
            for piece in pieces:
                protocol.data_received(piece)
            if is_paused:
                assert protocol.transport.get_write_buffer_size() == 0
                protocol.resume_writing()
            async with asyncio.timeout(30):
                while len(responses_in(data)) < n_responses:
                    part = await asyncio.get_running_loop().sock_recv(client, 1 << 16)
                    assert part, data
                    data += part
            is_closed = protocol.transport.is_closing()
            client.close()
            protocol.transport.close()
            await asyncio.sleep(0)
            return Outcome(responses_in(data), self.n_at_once - before, is_closed)

        return self.runner.run(run())

    def counted(self):
        """The sum over its labels of each metric of a request."""
        services = self.app.services
        text = services.metrics.render().decode()
        rows = [re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE) for name in COUNTED]
        return [sum(map(float, values)) for values in rows]


def request(path, body, *lines):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = lines if any(line.startswith("Content-Type") for line in lines) else (JSON, *lines)
    head = [f"POST {path} HTTP/1.1", "Host: localhost", *lines, f"Content-Length: {len(content)}"]
    return "\r\n".join([*head, "", ""]).encode() + content


def responses_in(data):
    found = []
    while b"\r\n\r\n" in data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert len(headers) == len(lines)
        size = int(headers["content-length"])
        if len(data) < size:
            break
        found.append((status.split()[1], headers, data[:size]))
        data = data[size:]
    return found


def plain(outcome):
    """The responses without what differs from one request to the next."""
    found = []
    for status, headers, content in outcome.responses:
        id_ = headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", id_)
        same = {name: value for name, value in headers.items() if name != "x-request-id"}
        found.append((status, same, content.decode("latin-1").replace(id_, "id")))
    return found


@pytest.fixture(scope="module")
def served(shared_store):
    """For tests that need no settings of their own."""
    served = Served(settings_for(shared_store))
    yield served
    served.close()


@pytest.fixture
def serve(settings):
    running = []

    def start(options=None, **changes):
        running.append(Served(settings.model_copy(update=changes), **(options or {})))
        return running[-1]

    yield start
    for one in running:
        one.close()


COUNTED = (
    "http_requests_total",
    "tokenizer_encode_bytes_total",
    "tokenizer_encode_tokens_total",
    "tokenizer_decode_tokens_total",
    "http_request_duration_seconds_count",
    "tokenizer_rejected_total",
)


def status_either_way(served, sent, *, is_at_once=True):
    """Compare the response at once with that to a body in two pieces; return its status."""
    counts = [served.counted()]
    whole = served.converse(sent)
    counts.append(served.counted())
    cut = served.converse(sent[:-1], sent[-1:])
    counts.append(served.counted())
    assert (whole.n_at_once, cut.n_at_once) == (is_at_once, 0)
    assert plain(whole) == plain(cut)
    assert whole.is_closed == cut.is_closed == (b"Connection: close" in sent)
    assert whole.responses[0][1]["x-request-id"] != cut.responses[0][1]["x-request-id"]
    first, second = (
        [b - a for a, b in zip(before, after, strict=True)]
        for before, after in itertools.pairwise(counts)
    )
    assert first == second
    assert first[0] == 1
    assert served.app.services.budget.used == 0
    return int(whole.responses[0][0])


AT_ONCE = [
    ("/encode", {"text": 'naïve 中文\n"\\ \u2028 😀 <|a|>'}, []),
    ("/encode", {"allowed_special": "none", **TEXT, "max_tokens": 1000}, []),
    ("/encode", {**TEXT, "return": ["ids", "offsets"]}, []),
    ("/encode", {**TEXT, "tokenizer": "active"}, []),
    ("/encode", TEXT, ["Accept: application/octet-stream; dtype=u16"]),
    ("/encode", TEXT, ["Connection: close"]),
    ("/encode", b' { "text" : "\\u0061\\ud83d\\ude00" } ', []),
    ("/tokenize", {"content": "a b", "with_pieces": True}, []),
    ("/tokenize", {"prompt": "a b", "model": "starter", "ignored": 1}, []),
    ("/decode?skip_special_tokens=true", b"\1\0\2\0", [f"Content-Type: {OCTETS}; dtype=u16"]),
    ("/decode", {"tokens": [72, 105]}, ["Accept: application/octet-stream"]),
    ("/detokenize", {"tokens": [72, 105]}, []),
    ("/v1/count", TEXT, []),
    ("/v1/truncate", {**TEXT, "max_tokens": 2, "side": "left"}, []),
    ("/verify", TEXT, []),
]
BY_THE_APP = [
    ("/encode?tokenizer=other", TEXT, [], 422),
    ("/encode", b"", [], 400),
    ("/encode", b'{"text": "a"', [], 400),
    ("/encode", b'{"text": "a", "te\\u0078t": "b"}', [], 400),
    ("/encode", b'{"text": "\\ud800"}', [], 422),
    ("/encode", {**TEXT, "max_tokens": 1}, [], 413),
    ("/encode", {**TEXT, "tokenizer": "missing"}, [], 404),
    ("/encode", TEXT, ['If-Match: "another"'], 412),
    ("/encode", TEXT, ["If-Match:"], 412),
    ("/encode", TEXT, ["Content-Type: text/plain"], 415),
    ("/encode", TEXT, ["Accept: text/html"], 406),
    ("/decode", {"tokens": [1 << 19]}, [], 422),
    ("/encode", {"text": ["a"] * (INLINE_ITEMS + 1)}, [], 200),
    ("/encode", {"text": "a" * INLINE_BODY_BYTES}, [], 200),
    ("/chunk", {**TEXT, "max_tokens": 2}, [], 200),
    ("/nowhere", TEXT, [], 404),
]


def test_which_requests_are_served_at_once(served):
    for path, body, lines in AT_ONCE:
        assert status_either_way(served, request(path, body, *lines)) == 200
    for path, body, lines, status in BY_THE_APP:
        sent = request(path, body, *lines)
        assert status_either_way(served, sent, is_at_once=False) == status


def texts_and_options():
    """Bodies that are almost plain: texts of any escapes and bytes, and members around them."""
    draw = random.Random(5)
    texts = [
        "", "a b", "<|a|>", "x" * 300, "\u00e9\u6771\U0001f600", "\\u0061\\ud83d\\ude00", "\\ud800",
        '\\n\\"\\\\\\/\\u0000', "\\x", "\t", "\udcff",
    ]  # fmt: skip
    members = [
        '"text":"b"', '"te\\u0078t":"b"', '"allowed_special":"none"', '"allowed_special":["<|a|>"]',
        '"allowed_special":["no"]', '"disallowed_special":"all"', '"added_tokens":"none"',
        '"added_tokens":"x"', '"max_tokens":1', '"max_tokens":123456789012345678901234567890',
        '"max_tokens":1.0', '"return":["ids"]', '"return":["ids","pieces"]', '"tokenizer":"active"',
        '"tokenizer":null', '"add_special_tokens":true', '"add_special_tokens":0', '"unknown":{}',
        '"segments":[["a",true]]', '"offset_unit":"char"', "x", "",
    ]  # fmt: skip
    spaces = ["", "", "", " ", "\n\t ", "\x0b"]
    for _ in range(120):
        parts = [f'"text"{draw.choice(spaces)}:{draw.choice(spaces)}"{draw.choice(texts)}"']
        parts += draw.sample(members, draw.choice((0, 1, 1, 2, 3)))
        inner = f"{draw.choice(spaces)},{draw.choice(spaces)}".join(parts)
        end = draw.choice(["}", "}", "}", "} ", "}}", "", "},"])
        yield f"{draw.choice(spaces)}{{{inner}{end}".encode("utf-8", "surrogateescape")


def test_a_text_is_encoded_where_it_lies_as_if_the_body_was_parsed(served, serve):
    python, statuses = serve(engine="python"), Counter()
    for body in texts_and_options():
        for accept in ("application/json", OCTETS):
            sent = request("/encode", body, f"Accept: {accept}")
            whole, cut = served.converse(sent), served.converse(sent[:-1], sent[-1:])
            other = python.converse(sent)
            assert plain(whole) == plain(cut) == plain(other), body
            assert whole.n_at_once == other.n_at_once
            statuses[whole.responses[0][0]] += 1
            padded = body.replace(b'"text":"', b'"text":"' + b"a\\n" * INLINE_BODY_BYTES)
            if accept == OCTETS and padded != body:
                sent = request("/encode", padded, f"Accept: {accept}")
                assert plain(served.converse(sent)) == plain(python.converse(sent)), body
    assert min(statuses[status] for status in ("200", "400", "422")) > 5


def test_a_repeated_head_is_not_read_again(served, monkeypatch):
    texts = ["one", "two", "three" * 200, "", "four"]
    sent = [request("/encode", {"text": text}, "X-Request-Id: r-7") for text in texts]
    alone = [served.converse(one).responses[0] for one in sent]
    n_read = 0
    find = served.app.server_of

    def count(scope):
        nonlocal n_read
        n_read += 1
        return find(scope)

    monkeypatch.setattr(served.app, "server_of", count)
    before = served.counted()
    outcome = served.converse(*sent, n_responses=len(sent))
    assert (n_read, outcome.n_at_once) == (1, len(sent))
    assert outcome.responses == alone
    assert {(of["x-request-id"], of["date"]) for _, of, _ in alone} == {("r-7", "now")}
    assert REQUEST_ID.get() == ""
    assert served.counted()[0] - before[0] == len(sent)
    render = request("/completions/render", {"prompt": "one"})
    for _, headers, content in served.converse(render, render, n_responses=2).responses:
        assert headers["x-request-id"] in content.decode()
    others = [
        request("/v1/encode", {"text": "one"}),
        request("/encode", {"text": "one"}, "Host: localhost"),  # 400, and closes
    ]
    outcome = served.converse(sent[0], *others, n_responses=3)
    assert [status for status, _, _ in outcome.responses] == ["200", "200", "400"]


def test_a_repeated_head_needs_its_whole_body(served):
    good = request("/encode", TEXT)
    head, _, body = good.partition(b"\r\n\r\n")
    pieces = [good, good[:-3], good[-3:], good + good, head + b"\r\n\r\n", body]
    outcome = served.converse(*pieces, n_responses=5)
    assert [status for status, _, _ in outcome.responses] == ["200"] * 5
    assert len({content for _, _, content in outcome.responses}) == 1
    wrong = request("/encode", b'{"text": 1}        ')
    assert len(wrong) == len(good) - len(body) + 19
    outcome = served.converse(good, wrong, good, n_responses=3)
    assert [status for status, _, _ in outcome.responses] == ["200", "422", "200"]
    # The end of a head is no head, though it is all that a piece of data has.
    start, end = good[:12], good[12:]
    outcome = served.converse(start, end, end, n_responses=2)
    assert [status for status, _, _ in outcome.responses] == ["200", "400"]


def test_keys_and_the_limit_of_a_body_hold(serve):
    served = serve(read_keys=(SecretStr("a-key-that-reads"),), max_body_bytes=40)
    for lines, status, is_at_once in (
        ([], 401, False),
        (["X-API-Key: another-key"], 401, False),
        (["X-API-Key: a-key-that-reads"], 200, True),
        (["Authorization: Bearer a-key-that-reads"], 200, True),
    ):
        sent = request("/encode", TEXT, *lines)
        assert status_either_way(served, sent, is_at_once=is_at_once) == status
    outcome = served.converse(request("/encode", {"text": "a" * 40}, *lines))
    assert (outcome.n_at_once, outcome.responses[0][0]) == (0, "413")


def test_pipelined_requests_are_served_in_order(served):
    texts = ["one", "two", "three" * 2000, "four", "five"]
    sent = [request("/count", {"text": text}) for text in texts]
    together = served.converse(b"".join(sent), n_responses=len(texts))
    alone = [served.converse(one).responses[0][2] for one in sent]
    assert [content for _, _, content in together.responses] == alone
    assert len(set(alone)) > 2
    wrong, good = request("/encode", b'{"text": 1}'), request("/encode", TEXT)
    outcome = served.converse(good + wrong + good, n_responses=3)
    assert [status for status, _, _ in outcome.responses] == ["200", "422", "200"]
    assert served.converse(good + b"\0garbage").responses[0][0] == "200"
    outcome = served.converse(good, is_paused=True)
    assert (outcome.n_at_once, outcome.responses[0][0]) == (0, "200")


def test_a_defect_is_reported_by_the_app(served, monkeypatch, caplog):
    def fail(*arguments):
        raise RuntimeError("a defect")

    monkeypatch.setattr(encode_handler, "Rendered", fail)
    outcome = served.converse(request("/encode", TEXT))
    assert (outcome.n_at_once, outcome.responses[0][0]) == (0, "500")
    assert caplog.text.count("POST /encode failed") == 1


@pytest.mark.parametrize(
    "options", [{"proxy_headers": True}, {"root_path": "/behind"}, {"access_log": True}, {}]
)
def test_what_the_server_adds_is_left_to_the_app(serve, options, monkeypatch):
    if not options:
        monkeypatch.setenv(VARIABLES[0], "http://127.0.0.1:1/v1/traces")
    assert serve(options).converse(request("/encode", TEXT)).n_at_once == 0


def test_a_version_on_the_disk_is_loaded_by_the_app(serve, store, other_spec):
    served = serve()
    other = store.publish(other_spec, name="other")
    sent = request("/encode", {"text": "a", "tokenizer": str(other)})
    first, again = served.converse(sent), served.converse(sent)
    assert (first.n_at_once, again.n_at_once) == (0, 1)
    assert plain(first) == plain(again)
