"""Render chat templates where a template can neither leave nor exhaust anything.

A template is a program by the publisher of the model. Jinja's sandbox keeps it from Python's
internals, not from `'a' * 10**9` or a loop without end, so a rendering runs in a child process with
limits (`render_worker.py`). All templates share the processes, which start on first use and stay.
Templates of a tokenizer run in the calling process where each of their operations has a bound
(`in_process.py`), and in the child process where they have none.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from tokenizer_core.chat.render_worker import (
    EXIT_OUT_OF_MEMORY,
    FRAME_HEADER,
    RESULT_HEADER,
    Status,
)
from tokenizer_core.chat.traced_text import (
    CALLED,
    FIELDS,
    FIRST_MESSAGE,
    GENERATED,
    REASONED,
    SOURCE,
    TRUSTED,
)
from tokenizer_core.errors import (
    ChatInputError,
    ChatLimitError,
    ChatTemplateError,
    WorkerProcessError,
)
from tokenizer_core.stopping import check_stop, current

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.chat.checked_operations import Budget

_BOOTSTRAP: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = sys.argv[2:]; "
    "from tokenizer_core.chat.render_worker import serve; serve()"
)
# Nothing else of the environment reaches a template's process: no keys, no addresses.
_ENVIRONMENT_KEPT: Final = (
    "LANG",
    "LC_ALL",
    "LC_TIME",
    "LD_LIBRARY_PATH",
    "PATH",
    "SYSTEMROOT",
    "TZ",
)
_OWN_VARIABLES: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_GENERATION_TAG: Final = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_BYTES_PER_CHAR: Final = 12  # at most 4 of UTF-8 and 8 of a run
_OTHER_BYTES: Final = 1 << 16
_LOOK_MILLISECONDS: Final = 50
"""How often a call looks whether its result is still wanted."""
_MAX_IDLE: Final = max(2, min(8, os.cpu_count() or 1))

TurnProblem = Literal[
    "end_of_conversation",
    "no_special_token",
    "outside_tags",
    "unanswered",
    "no_prompt",
    "interleaved",
    "no_text",
]
"""Why a turn has no learned end: nothing follows it, or no special token, or the token is outside
the `generation` tags. Why it is not learned: the template refuses the messages in front of it (or
would have to be asked too often), what asks for a turn is not in front of it, text of another
message is inside it, or the template writes no text of it."""


@dataclass(frozen=True)
class RenderLimits:
    """What one rendering, with the compilation of its template, may use."""

    memory_bytes: int = 256 << 20
    """Beyond what the process needs itself (Linux; other systems do not limit it)."""
    seconds: float = 5.0
    chars: int = 16 << 20
    """Length of the rendered text."""


class TurnBorders(NamedTuple):
    """Where a turn of the assistant begins and ends in the text, in characters.

    - `problem`: why it is not learned.
    - `prompt`, `start`: where the text that asks for it begins, and where it ends; -1 if the
      template does not say it.
    - `text_end`: after the last character that is from the message.
    - `own_end`: the end of what the template writes after that in any case, perhaps within a token.
    - `whole_end`: the end of all that it writes there if nothing follows; `text_end` if the text
      has only a part of that.
    - `limit`: the text after it belongs to another message, or asks for one.
    """

    message: int
    problem: TurnProblem | None
    prompt: int
    start: int
    text_end: int
    own_end: int
    whole_end: int
    limit: int
    is_last: bool


@dataclass(frozen=True)
class RenderedChat:
    """The text of a conversation, with the origin of every character.

    `lengths` and `origins` (int32, one entry a run, in order) are the runs of characters with one
    origin; see `traced_text` for the values.
    """

    text: str
    lengths: NDArray[np.int32]
    origins: NDArray[np.int32]
    has_generation_tags: bool = False
    """Whether the template says with tags what the assistant writes."""
    turns: Sequence[TurnBorders] | None = None
    """The turns of the assistant that have text; None if they were not asked for."""
    message_ends: Sequence[str] = ()
    """What the template writes after a last message where it asks for nothing."""
    prompts: Sequence[str] = ()
    """What it writes there to ask for a turn."""
    messages: Sequence[Mapping[str, Any]] = ()
    """What the template was given."""

    @cached_property
    def trusted_runs(self) -> list[tuple[int, int]]:
        """Start and end, in characters, of the text in which special tokens are recognised."""
        return self.runs_with([])

    @property
    def assistant_runs(self) -> list[tuple[int, int]]:
        """As `trusted_runs`, with the text of the assistant's messages."""
        roles = (message.get("role") for message in self.messages)
        return self.runs_with([i for i, role in enumerate(roles) if role == "assistant"])

    def runs_with(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        """Start and end, in characters, of the trusted text and of that of these messages."""
        wanted = {TRUSTED, *(FIRST_MESSAGE + index for index in messages)}
        return self._spans(lambda origin: origin & SOURCE in wanted)

    @property
    def generated_spans(self) -> list[tuple[int, int]]:
        """Start and end, in characters, of the text between the template's `generation` tags."""
        return self._spans(lambda origin: origin & GENERATED != 0)

    def message_spans(self) -> list[tuple[int, int] | None]:
        """For each message: from the first character that came from it to the end of the last, or
        None if the template uses no text of it."""
        spans: list[tuple[int, int] | None] = [None] * len(self.messages)
        numbers = (self.origins & SOURCE) - FIRST_MESSAGE
        end = 0
        for length, number in zip(self.lengths.tolist(), numbers.tolist(), strict=True):
            start, end = end, end + length
            if 0 <= number < len(spans):
                before = spans[number]
                spans[number] = (start if before is None else before[0], end)
        return spans

    def written_fields(self) -> set[tuple[int, str]]:
        """Index and field of all messages of which the template writes text: `tool_calls`,
        `reasoning`, and `content` for all others."""
        names = {0: ["content"], CALLED: ["tool_calls"], REASONED: ["reasoning"]}
        names[FIELDS] = ["content", "tool_calls", "reasoning"]
        return {
            ((origin & SOURCE) - FIRST_MESSAGE, name)
            for origin in set(self.origins.tolist())
            for name in names[origin & FIELDS]
        }

    def _spans(self, is_wanted: Callable[[int], bool]) -> list[tuple[int, int]]:
        """Start and end, in characters, of the neighbouring runs with wanted origins."""
        spans: list[tuple[int, int]] = []
        start, end = -1, 0  # of the span that continues; negative if none does
        for length, origin in zip(self.lengths.tolist(), self.origins.tolist(), strict=True):
            if is_wanted(origin):
                start = end if start < 0 else start
            elif start >= 0:
                spans.append((start, end))
                start = -1
            end += length
        if start >= 0:
            spans.append((start, end))
        return spans


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    variables: Mapping[str, Any],
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = False,
    continue_final_message: bool | str = False,
    with_turn_borders: bool = False,
    may_run_here: bool = False,
    limits: RenderLimits | None = None,
) -> RenderedChat:
    """Render `messages` with a chat template, as `apply_chat_template` of transformers does.

    `variables` are those of the tokenizer (`bos_token`), whose text is trusted; `kwargs` come from
    the request, are not trusted and win over variables. `continue_final_message` ends the text
    after the last message's content, or after the named field of it. `with_turn_borders` also asks
    the template where the turns of the assistant begin and end. With `may_run_here` the template
    runs in this process if it can; the result is the same. A template of a request must not.

    Raises:
        ChildNeededError: within `without_child`, only a child process can render this.
        ChatInputError: the messages are no list of objects, or do not fit the options.
        ChatTemplateError: the template is not valid, or raised an error, as many do for messages
            that they do not allow.
        ChatLimitError: memory, time or output over `limits`.
    """
    check_request(messages, tools, documents)
    if continue_final_message and add_generation_prompt:
        raise ChatInputError(
            "continue_final_message and add_generation_prompt exclude each other: the first ends "
            "the text inside the last message, the second begins a new one"
        )
    taken = _OWN_VARIABLES & set(kwargs or {})
    if taken:
        raise ChatInputError(
            f"{', '.join(sorted(taken))} cannot be given among the variables of the template: each "
            f"is an argument of its own"
        )
    limits = limits or RenderLimits()
    request: dict[str, Any] = {
        "messages": messages,
        "tools": tools,
        "documents": documents,
        "variables": dict(variables),
        "kwargs": dict(kwargs or {}),
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
    }
    if may_run_here and not with_turn_borders:
        chat = _render_here(template, request, limits)
        if chat is not None:
            return chat
    if _calling.without_child:
        raise ChildNeededError
    try:
        digest = hashlib.sha256(template.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise ChatTemplateError(
            "the chat template contains a lone surrogate, which is no character: remove it"
        ) from error
    request |= {
        "template": digest,
        "source": None,
        "with_borders": with_turn_borders,
        "max_chars": limits.chars,
        "time_limit_seconds": limits.seconds,
    }
    with _workers.one(limits.memory_bytes) as worker:
        response = worker.ask(_dump(request), limits)
        if response[:1] == Status.SOURCE_NEEDED:
            response = worker.ask(_dump({**request, "source": template}), limits)
        chat = _read_response(response, limits)
    return replace(chat, has_generation_tags=has_generation_tags(template), messages=messages)


def _render_here(
    template: str, request: dict[str, Any], limits: RenderLimits
) -> RenderedChat | None:
    """The result, if the template can be rendered in this process."""
    # Here: a process without chats does not load Jinja.
    from tokenizer_core.chat.checked_operations import Budget, ElsewhereError
    from tokenizer_core.chat.in_process import admit, units_within

    admitted = admit(template, only_known=_calling.budget is not None)
    if admitted is None:
        return None
    budget = _calling.budget or Budget(units_within(limits.seconds, limits.memory_bytes))
    try:
        text, runs = admitted.render_within(request, budget)
    except ElsewhereError:
        return None
    if len(text) > limits.chars:
        return None  # the child process refuses it
    if _calling.budget is not None:
        _calling.bytes_left -= len(text.encode(errors="replace"))
        if _calling.bytes_left < 0:
            return None
    lengths, origins = (np.array([run[at] for run in runs], np.int32) for at in (0, 1))
    tags = has_generation_tags(template)
    return RenderedChat(text, lengths, origins, tags, messages=request["messages"])


class ChildNeededError(Exception):
    """This conversation needs a child process, which may take its time."""


class _Calling(threading.local):
    without_child = False
    budget: Budget | None = None
    """Of all renderings in a block that must not wait."""
    bytes_left = 0
    """Of the text that they may have."""


_calling = _Calling()


@contextlib.contextmanager
def without_child(units: int | None = None, text_bytes: int = sys.maxsize) -> Iterator[None]:
    """In the block, this thread renders in its own process or raises ChildNeededError.

    With `units`, for a thread that must not wait, all renderings together take at most so many and
    have at most `text_bytes` of text, and no template is compiled.
    """
    from tokenizer_core.chat.checked_operations import Budget

    _calling.without_child = True
    _calling.budget = None if units is None else Budget(units)
    _calling.bytes_left = text_bytes
    try:
        yield
    finally:
        _calling.without_child, _calling.budget = False, None


@lru_cache(maxsize=64)
def has_generation_tags(template: str) -> bool:
    """Whether a template marks what the assistant writes with `{% generation %}`."""
    return _GENERATION_TAG.search(template) is not None


def check_request(messages: object, tools: object, documents: object) -> None:
    """Raise ChatInputError if these are no lists of objects, or there are no messages."""
    for name, value in {"messages": messages, "tools": tools, "documents": documents}.items():
        needs = "an object with role and content" if name == "messages" else "an object"
        if value is None and name != "messages":
            continue
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ChatInputError(f"{name} must be a list; each entry is {needs}")
        for index, entry in enumerate(value):
            if not isinstance(entry, Mapping):
                raise ChatInputError(
                    f"{name}[{index}] is {type(entry).__name__}: it must be {needs}",
                    index if name == "messages" else None,
                )
    if not messages:
        raise ChatInputError("messages is empty: give at least one message")


def _dump(request: dict[str, Any]) -> bytes:
    """What a process reads; see `render_worker`."""
    messages: list[Any] = []
    lengths: list[int | None] = []
    contents: list[str] = []
    for message in request["messages"]:
        content = message.get("content")
        if type(message) is dict and type(content) is str:
            # Beside the JSON, because writing and reading it takes a third of a call.
            contents.append(content)
            messages.append({**message, "content": ""})
            lengths.append(len(content))
        else:
            messages.append(message)
            lengths.append(None)
    request = {**request, "messages": messages, "content_lengths": lengths}
    try:
        described = json.dumps(request, ensure_ascii=False, default=_plain).encode()
        return FRAME_HEADER.pack(len(described)) + described + "".join(contents).encode()
    except UnicodeEncodeError as error:
        raise ChatInputError(
            "the messages contain a lone surrogate, which is no character: remove it"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatInputError(f"the messages must be plain data, as JSON has it: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    remedy = "; decode it first" if isinstance(value, Iterable) else ""
    raise TypeError(f"{type(value).__name__} is no JSON type{remedy}")


def _read_response(response: bytes, limits: RenderLimits) -> RenderedChat:
    status, body = response[:1], memoryview(response)[1:]
    if status == Status.RESULT:
        n_runs, n_described = RESULT_HEADER.unpack_from(body)
        body = body[RESULT_HEADER.size :]
        text = str(body[8 * n_runs :], "utf-8")
        lengths = np.frombuffer(body, np.int32, n_runs)
        if lengths.sum(dtype=np.int64) != len(text) - n_described:
            raise WorkerProcessError(
                "the origins of the rendered text do not fit it, which is an error of this "
                "library: please report the template"
            )
        described = json.loads(text[:n_described] or "{}")
        turns = described.get("turns")
        return RenderedChat(
            text[n_described:],
            lengths,
            np.frombuffer(body, np.int32, n_runs, 4 * n_runs),
            turns=None if turns is None else [TurnBorders(*turn) for turn in turns],
            message_ends=described.get("message_ends", ()),
            prompts=described.get("prompts", ()),
        )
    if status == Status.BAD_INPUT:
        raise ChatInputError(*json.loads(bytes(body)))
    if status == Status.TEMPLATE_FAILED:
        message, index = json.loads(bytes(body))
        raise ChatTemplateError(f"the chat template failed: {message}", index)
    if status == Status.TOO_LARGE:
        raise ChatLimitError(f"the rendered chat has more than {limits.chars:,} characters")
    raise ChatLimitError(
        f"rendering the chat needs more than {limits.memory_bytes >> 20} MiB of memory"
    )


def end_render_processes() -> None:
    """End all processes, at work or not; a later call starts new ones.

    A rendering at work raises WorkerProcessError in its thread.
    """
    _workers.end_idle()
    _workers.kill_busy()


class _Worker:
    """One child process and its pipes."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - '' means this
        environment = {name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-c", _BOOTSTRAP, str(memory_bytes), *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            raise WorkerProcessError(
                f"the process that renders chat templates could not be started: {error}"
            ) from error

    def ask(self, request: bytes, limits: RenderLimits) -> bytes:
        """The response to a request.

        Raises:
            CancelledError: the flag of this thread was cancelled, see `engines.stoppable`.
            ChatLimitError: the process ended because the request took too long.
            WorkerProcessError: it ended for another reason.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - PIPE above
        with contextlib.suppress(BrokenPipeError):
            stdin.write(FRAME_HEADER.pack(len(request)) + request)
            stdin.flush()
        # The process ends itself after its limit of time.
        if current.flag is not None and os.name == "posix":
            response_ready = select.poll()
            response_ready.register(stdout, select.POLLIN)
            while not response_ready.poll(_LOOK_MILLISECONDS):
                check_stop()
        header = stdout.read(FRAME_HEADER.size)
        if len(header) == FRAME_HEADER.size:
            (size,) = FRAME_HEADER.unpack(header)
            if size > _BYTES_PER_CHAR * limits.chars + _OTHER_BYTES:
                self.kill()
                raise WorkerProcessError("the process that renders chat templates sends too much")
            response = stdout.read(size)
            if len(response) == size:
                return response
        code = self._process.wait()
        if code == EXIT_OUT_OF_MEMORY:
            return Status.OUT_OF_MEMORY
        if os.name == "posix" and code == -signal.SIGALRM:
            raise ChatLimitError(f"rendering the chat took longer than {limits.seconds:g} s")
        raise WorkerProcessError(
            f"the process that renders chat templates ended with code {code}; its message is in "
            f"the log"
        )

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended, for example by the kernel for its memory."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process; `ask` of another thread raises WorkerProcessError."""
        self._process.kill()

    def end(self) -> None:
        """End the process and close its pipes."""
        self.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()

    def forget(self) -> None:
        """In a forked child: close the pipes of the parent's process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                os.close(pipe.fileno()) if pipe is not None else None
        self._process.returncode = 0  # not a child of this process


class _Workers:
    """Idle processes, at most `_MAX_IDLE`; a call that finds none starts one."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._lock = threading.Lock()
        atexit.register(self.end_idle)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    @contextlib.contextmanager
    def one(self, memory_bytes: int) -> Iterator[_Worker]:
        """A process for one rendering; it is kept if the rendering ends well."""
        worker = self._take(memory_bytes) or _Worker(memory_bytes)
        self._busy.add(worker)
        try:
            yield worker
        except (ChatInputError, ChatTemplateError):
            self._keep(worker)
            raise
        except BaseException:
            worker.end()
            raise
        finally:
            self._busy.discard(worker)
        self._keep(worker)

    def end_idle(self) -> None:
        """End all idle processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def kill_busy(self) -> None:
        """End the processes at work."""
        for worker in list(self._busy):
            worker.kill()

    def _take(self, memory_bytes: int) -> _Worker | None:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if not self._idle[index].is_alive:
                    self._idle.pop(index).end()
                elif self._idle[index].memory_bytes == memory_bytes:
                    return self._idle.pop(index)
        return None

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE:
                self._idle.append(worker)
                return
        worker.end()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        for worker in [*self._idle, *self._busy]:
            worker.forget()
        self._idle, self._busy = [], set()


_workers = _Workers()
