"""What runs inside a worker process: read a task, call the function, write the answer.

Stands apart from `worker_processes` so that a worker imports next to nothing before it is useful:
only the standard library here, and light parts of it. Must not import anything of tokenizer_core;
what the function needs is imported when the function is unpickled.

The protocol is frames over two pipes, each a u64 little-endian length and a pickle. The first
frame in is `(function, state)`; each further one `(index, task)`. Frames out are
`(index, True, result)` or `(index, False, (exception, traceback text))`. The pickles come from the
process that started this one and go back to it, over pipes nobody else holds: nothing untrusted.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import sys
import threading
from typing import IO, Any, Final, cast

FRAME_HEADER: Final = struct.Struct("<Q")
SETUP_INDEX: Final = -1
"""The index in the answer when the function or the state could not be unpickled."""


def serve() -> None:
    """Answer frames from standard input until it ends. Does not return."""
    # Ctrl-C reaches the whole process group; ending the workers is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = _claim_pipes()
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # A thread of its own reads, for two reasons: the parent can always write a task, even while
    # this process is stuck writing a large answer (no deadlock on two full pipes); and the end of
    # the input, which is how the death of the parent shows, is noticed in the middle of a task.
    threading.Thread(target=_read_frames, args=(requests, frames), daemon=True).start()
    try:
        _answer_frames(frames, answers)
    except BrokenPipeError:
        _exit_now()


def _claim_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The two pipes, moved away from descriptors 0 and 1.

    A `print` in the function, or in C code under it, would otherwise land between the frames; it
    goes to standard error instead. The copies are not inherited by children of this process.
    """
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # the parent has no standard error
        os.dup2(nowhere, 1)
    os.close(nowhere)
    # The process ends without the interpreter's own clean-up, so nothing may wait in a buffer.
    cast("Any", sys.stdout).reconfigure(line_buffering=True)
    return requests, answers


def _read_frames(requests: IO[bytes], frames: queue.SimpleQueue[bytes]) -> None:
    while True:
        header = requests.read(FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            _exit_now()
        (size,) = FRAME_HEADER.unpack(header)
        frames.put(requests.read(size))


def _exit_now() -> None:
    """End the process from any thread, whatever the others are doing."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _answer_frames(frames: queue.SimpleQueue[bytes], answers: IO[bytes]) -> None:
    index = SETUP_INDEX
    try:
        function, state = pickle.loads(frames.get())  # noqa: S301 - written by our own parent
    except BaseException as error:
        _write_frame(answers, render_failure(index, error))
        return
    while True:
        frame = frames.get()
        try:
            index = SETUP_INDEX
            index, task = pickle.loads(frame)  # noqa: S301 - written by our own parent
            del frame
            answer = pickle.dumps((index, True, function(state, task)), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            answer = render_failure(index, error)
        _write_frame(answers, answer)
        del answer


def _write_frame(answers: IO[bytes], payload: bytes) -> None:
    for part in (FRAME_HEADER.pack(len(payload)), payload):
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[answers.write(unsent) :]


def render_failure(index: int, error: BaseException) -> bytes:
    """The frame that carries an exception, or only its description if it cannot be pickled."""
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        payload = pickle.dumps((index, False, (error, text)), pickle.HIGHEST_PROTOCOL)
        pickle.loads(payload)  # noqa: S301 - just made; some exceptions only fail on the way back
    except Exception:
        payload = pickle.dumps((index, False, (None, text)), pickle.HIGHEST_PROTOCOL)
    return payload
