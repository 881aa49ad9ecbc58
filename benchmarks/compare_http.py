"""Compare this service with ten lines of FastAPI over tiktoken, on the same texts.

    .venv/bin/python benchmarks/compare_http.py --vocab r50k_base en_reuters_news

`--vocab` is GPT-2's vocabulary as a tiktoken file. Both services run one process with uvloop and
httptools on one processor; another process on another processor sends the requests. Each round
starts fresh servers, which take turns of a second, so that a slow minute of the machine hits both;
the table shows the medians of the rounds. The texts are distinct, but repeat after all were sent:
the small ones a few times, the large ones many times, so our service finds most of the large ones
in its cache. The exit status is 1 if a service returns other ids or an error.

*first*: each text of 1 MB once, five in a turn, to a service that has seen none; MB of text per
second of the service's processor time in its turns. *first binary*: the same with binary ids.
*socket*: the median in microseconds of a small request over one connection, which is kept, at a
Unix socket.

*small*: texts of 130 bytes over 32 connections, requests per second. *large*: texts of 1 MB over 4
connections, MB of text per second, JSON responses. *binary*: the same with binary ids; the ten
lines have no binary form, so the table repeats their JSON figure. *p99*: the 99th percentile in
milliseconds of small requests at 30% of the rate of `small`. *training*: the same while a job
with this niceness trains on the text.
"""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from corpora import text_path, vocab_path
from figures import Table, make_parser, report

HERE = Path(__file__).resolve().parent
ADMIN_KEY = "of-the-benchmark"
SMALL_BYTES, LARGE_BYTES = 130, 1_000_000
N_SMALL, N_LARGE = 40_000, 38
CORPUS_BYTES = 2_000_000_000
FIRST_SECONDS = 300.0
FIRST_AT_ONCE = 5
TURN_SECONDS = 1.0
LOAD_SHARE = 0.3
JSON = "application/json"
BINARY = "application/octet-stream; dtype=u32"
PROCESSES = {}


@dataclass
class Plan:
    """The parameters of one measurement."""

    vocab: Path
    text: Path
    folder: Path
    seconds: float
    small: Path = field(init=False)
    large: Path = field(init=False)
    corpus: Path = field(init=False)

    def write_bodies(self):
        text = self.text.read_bytes()
        self.small, self.large = self.folder / "small", self.folder / "large"
        for path, n_bytes, most in (
            (self.small, SMALL_BYTES, N_SMALL),
            (self.large, LARGE_BYTES, N_LARGE),
        ):
            whole = range(0, len(text) - n_bytes + 1, n_bytes)
            if not whole:
                raise SystemExit(f"{self.text} is shorter than {n_bytes} bytes")
            pieces = (text[at : at + n_bytes].decode(errors="ignore") for at in whole[:most])
            lines = [json.dumps(body(piece), ensure_ascii=False) for piece in pieces]
            path.write_text("\n".join(lines) + "\n")
        self.corpus = self.folder / "corpus.txt"
        with self.corpus.open("wb") as corpus:
            for _ in range(CORPUS_BYTES // len(text) + 1):
                corpus.write(text)


def body(text):
    """The request; the ten lines ignore the fields they do not know."""
    return {"text": text, "allowed_special": "none"}


def ask(address, text):
    host = f"127.0.0.1:{address}" if isinstance(address, int) else "localhost"
    transport = httpx.HTTPTransport(uds=address) if isinstance(address, str) else None
    with httpx.Client(transport=transport, timeout=60) as client:
        answer = client.post(f"http://{host}/encode", json=body(text))
    return answer.raise_for_status().json()["tokens"]


@contextlib.contextmanager
def ours(plan, path="", niceness=10):
    """Start this service with the vocabulary as its default; return its port, or `path`."""
    artifacts = plan.folder / "artifacts"
    environment = {
        **os.environ,
        "TOKENIZER_ARTIFACTS_DIR": str(artifacts),
        "TOKENIZER_DEFAULT": "compared",
        "TOKENIZER_ADMIN_KEYS": ADMIN_KEY,
        "TOKENIZER_CORPUS_ROOTS": str(plan.folder),
        "TOKENIZER_JOB_NICE": str(niceness),
    }
    command = [sys.executable, "-m", "tokenizer_service.cli"]
    if not artifacts.exists():
        subprocess.run(
            [*command, "import", str(plan.vocab), "--name", "compared", "--pattern", "gpt2",
             "--special", "<|endoftext|>=50256"],
            env=environment, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parent,
        )  # fmt: skip
    address = path or free_port()
    there = ["--host", f"unix:{path}"] if path else ["--port", str(address)]
    with serving([*command, "serve", *there], address, environment):
        yield address


@contextlib.contextmanager
def ten_lines(plan, path=""):
    """Start the other service; return its port, or `path`."""
    address = path or free_port()
    command = [sys.executable, "-m", "uvicorn", "ten_line_service:app", "--app-dir", str(HERE)]
    command += ["--uds", path] if path else ["--port", str(address)]
    command += ["--loop", "uvloop", "--http", "httptools"]
    command += ["--no-access-log", "--log-level", "warning"]
    with serving(command, address, {**os.environ, "TIKTOKEN_FILE": str(plan.vocab)}):
        yield address


@contextlib.contextmanager
def serving(command, address, environment, text="x", ask=ask):
    """Run `command` on the first processor; yield once it responds to `text`."""
    first = min(os.sched_getaffinity(0))
    with tempfile.TemporaryFile() as log, subprocess.Popen(
        command, env=environment, stdout=log, stderr=log, cwd=HERE.parent,
        preexec_fn=lambda: os.sched_setaffinity(0, {first}),
    ) as process:  # fmt: skip
        try:
            PROCESSES[address] = process.pid
            deadline = time.monotonic() + 300  # vLLM takes a minute
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    ask(address, text)
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{command} does not serve:\n{log.read().decode()}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def put_load(address, bodies, seconds, **options):
    """Run `http_load` on the last processor and return its report."""
    result = load_report(address, bodies, seconds, **options)
    if result["n_wrong"] or not result["n_requests"]:
        raise SystemExit(f"{result['n_wrong']} errors, {result['n_requests']} answers")
    return result


def load_report(address, bodies, seconds, **options):
    """As `put_load`, for requests that may be refused."""
    last = max(os.sched_getaffinity(0))
    there = {"port": address} if isinstance(address, int) else {"port": 0, "socket": address}
    job = {**there, "bodies": str(bodies), "seconds": seconds, "processor": last, **options}
    done = subprocess.run(
        [sys.executable, str(HERE / "http_load.py")],
        input=json.dumps(job), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def compare_ids(plan, our_port, their_port):
    for line in plan.small.read_bytes().splitlines()[:500] + plan.large.read_bytes().splitlines():
        text = json.loads(line)["text"]
        if ask(our_port, text) != ask(their_port, text):
            raise SystemExit("the services answer with different ids")


def measure_round(plan):
    """The figures of fresh servers: requests per second, MB per second, milliseconds."""
    found = {"ours": {}, "ten lines": {}}
    with ours(plan) as json_port, ours(plan) as binary_port, ten_lines(plan) as their_port:
        servers = [(json_port, JSON), (binary_port, BINARY), (their_port, JSON)]
        found["ours"]["first"], found["ours"]["first binary"], theirs = measure_first(plan, servers)
    found["ten lines"] |= {"first": theirs, "first binary": theirs}
    with ours(plan) as our_port, ten_lines(plan) as their_port:
        ports = {"ours": our_port, "ten lines": their_port}
        for name, turns in take_turns(plan, ports, plan.small).items():
            found[name]["small"] = rate_of(turns, "n_requests")
        for name, turns in take_turns(plan, ports, plan.small, has_ids=True).items():
            found[name]["other heads"] = rate_of(turns, "n_requests")
        for what, accept in ("large", JSON), ("binary", BINARY):
            large = take_turns(plan, ports, plan.large, n_connections=4, accept=accept)
            for name, turns in large.items():
                found[name][what] = rate_of(turns, "n_body_bytes") / 1e6
        rate = found["ours"]["small"]
        found["ours"]["p99"] = p99_milliseconds(plan, our_port, rate)
    for niceness in (10, 19):
        with ours(plan, niceness=niceness) as our_port, training(plan, our_port):
            found["ours"][f"training {niceness}"] = p99_milliseconds(plan, our_port, rate)
    with (
        ours(plan, f"{plan.folder}/ours.sock") as our_path,
        ten_lines(plan, f"{plan.folder}/ten.sock") as their_path,
    ):
        paths = {"ours": our_path, "ten lines": their_path}
        for name, turns in take_turns(plan, paths, plan.small, n_connections=1).items():
            medians = [turn["p50_milliseconds"] for turn in turns]
            found[name]["socket"] = 1e3 * statistics.median(medians)
    return found


def rate_of(turns, what):
    n_seconds = sum(turn["seconds"] for turn in turns)
    return float(sum(turn[what] for turn in turns) / n_seconds)


def take_turns(plan, addresses, bodies, **options):
    """The reports of all turns of each server."""
    found = {name: [] for name in addresses}
    for turn in range(max(2, round(plan.seconds / TURN_SECONDS))):
        in_order = list(addresses.items())[:: -1 if turn % 2 else 1]
        for name, address in in_order:
            job = {**options, "warm_up_seconds": 1.0 if turn == 0 else 0.1}
            found[name].append(put_load(address, bodies, TURN_SECONDS, **job))
    return found


def measure_first(plan, servers):
    """Send each large body once to each of these fresh servers, a few in a turn. Returns MB of
    bodies per second of the processor time that each used in its turns."""
    bodies = plan.large.read_bytes().splitlines()
    part = plan.folder / "part"
    n_bytes, seconds = 0, [0.0] * len(servers)
    for at in range(0, len(bodies), FIRST_AT_ONCE):
        few = bodies[at : at + FIRST_AT_ONCE]
        part.write_bytes(b"\n".join(few) + b"\n")
        n_bytes += sum(map(len, few))
        for n, (address, accept) in enumerate(servers):
            job = {"is_once": True, "n_connections": 1, "accept": accept}
            start = processor_seconds(address)
            first = put_load(address, part, FIRST_SECONDS, **job)
            seconds[n] += processor_seconds(address) - start
            if first["n_requests"] != len(few):
                raise SystemExit(f"only {first['n_requests']} requests in {FIRST_SECONDS} seconds")
    return [n_bytes / one / 1e6 for one in seconds]


def processor_seconds(address):
    """The processor time of all threads of a server."""
    return time.clock_gettime((~PROCESSES[address] << 3) | 2)  # the clock of clock_getcpuclockid(3)


def p99_milliseconds(plan, port, rate):
    result = put_load(port, plan.small, plan.seconds, requests_per_second=rate * LOAD_SHARE)
    return float(result["p99_milliseconds"])


@contextlib.contextmanager
def training(plan, port):
    """Keep a training job at work."""
    url, headers = f"http://127.0.0.1:{port}/train", {"X-API-Key": ADMIN_KEY}
    job = {"input_paths": [plan.corpus.name], "vocab_size": 50_000, "promote": "manual"}
    started = httpx.post(url, json={**job, "name": "trained"}, headers=headers).raise_for_status()
    url = f"{url}/{started.json()['id']}"
    while httpx.get(url, headers=headers).json()["phase"] in ("queued", "start"):
        time.sleep(0.05)
    yield
    state = httpx.get(url, headers=headers).json()["state"]
    if state != "running":
        print(
            f"the training was {state} before the load ended: take a longer text", file=sys.stderr
        )
    httpx.delete(url, headers=headers)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--vocab", type=vocab_path, required=True, help="r50k_base.tiktoken")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("text", type=text_path)
    options = parser.parse_args()
    found = {"ours": {}, "ten lines": {}}
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(options.vocab, options.text, Path(folder), options.seconds)
        plan.write_bodies()
        with ours(plan) as our_port, ten_lines(plan) as their_port:
            compare_ids(plan, our_port, their_port)
        for _ in range(options.rounds):
            for name, values in measure_round(plan).items():
                for what, value in values.items():
                    found[name].setdefault(what, []).append(value)
    note = f"Medians of {options.rounds} rounds, one processor"
    report([table(found)], options.json, note)


def table(found):
    names = {
        "small": "texts of 130 bytes, 32 connections, requests/s",
        "other heads": "the same, each request with another X-Request-Id",
        "large": "texts of 1 MB, JSON response, MB/s",
        "binary": "the same, binary response (ten lines: JSON), MB/s",
        "first": "unseen texts of 1 MB, JSON response, MB/s of processor time",
        "first binary": "the same, binary response (ten lines: JSON)",
        "socket": "Unix socket, one connection, 130 bytes, median in us",
        "p99": f"99th percentile at {LOAD_SHARE:.0%} of that load, 130 bytes, ms",
        "training 10": "the same while a job trains on the same processor, ms",
        "training 19": "the same, the job with niceness 19",
    }
    rows = []
    for what, name in names.items():
        mine, theirs = (
            statistics.median(values[what]) if what in values else None for values in found.values()
        )
        ratio = mine / theirs if mine and theirs else None
        if what == "socket" and ratio:
            ratio = 1 / ratio  # of times, not of rates
        rows.append([name, mine, theirs, ratio])
    return Table(["", "this service", "ten lines", "ratio"], rows)


if __name__ == "__main__":
    main()
