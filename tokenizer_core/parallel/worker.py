"""The program of a worker process: read a task, call the function, write the result.

A worker must start fast, so this module imports only light parts of the standard library.
Unpickling the function imports what the function needs.

The protocol is frames over two pipes, each a u64 little-endian length and a pickle. The first
request is `(function, state)`; each further one is `(index, task)`. Responses are
`(index, True, result)` or `(index, False, (exception, traceback text))`. The pickles are trusted:
they come from the parent process and go back to it, over pipes that no other process holds.
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
"""The index in the response when the function or the state could not be unpickled."""


def serve() -> None:
    """Process frames from standard input until it ends. Does not return."""
    # Ctrl-C reaches the whole process group; the parent decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, responses = _claim_pipes()
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # A separate thread reads, for two reasons. The parent can always write a task, even while this
    # process writes a large response, so two full pipes cannot deadlock. And the thread notices the
    # end of the input, which means that the parent died, in the middle of a task.
    threading.Thread(target=_read_frames, args=(requests, frames), daemon=True).start()
    try:
        _process_frames(frames, responses)
    except BrokenPipeError:
        _exit_now()


def _claim_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The two pipes, moved away from descriptors 0 and 1.

    Otherwise a `print` in the function, or in C code that it calls, would write between the frames.
    Such output goes to standard error instead. Children of this process do not inherit the copies.
    """
    requests, responses = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # the parent has no standard error
        os.dup2(nowhere, 1)
    os.close(nowhere)
    # The process ends without the interpreter's clean-up, so buffers must stay empty.
    cast("Any", sys.stdout).reconfigure(line_buffering=True)
    return requests, responses


def _read_frames(requests: IO[bytes], frames: queue.SimpleQueue[bytes]) -> None:
    while True:
        header = requests.read(FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            _exit_now()
        (size,) = FRAME_HEADER.unpack(header)
        frames.put(requests.read(size))


def _exit_now() -> None:
    """End the process at once, from any thread."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _process_frames(frames: queue.SimpleQueue[bytes], responses: IO[bytes]) -> None:
    index = SETUP_INDEX
    try:
        function, state = pickle.loads(frames.get())  # noqa: S301 - written by our own parent
    except BaseException as error:
        write_frame(responses, render_failure(index, error))
        return
    while True:
        frame = frames.get()
        try:
            index = SETUP_INDEX
            index, task = pickle.loads(frame)  # noqa: S301 - written by our own parent
            del frame
            response = pickle.dumps((index, True, function(state, task)), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            response = render_failure(index, error)
        write_frame(responses, response)
        del response


def write_frame(pipe: IO[bytes], payload: bytes) -> None:
    """Write a frame to an unbuffered pipe."""
    for part in (FRAME_HEADER.pack(len(payload)), payload):
        unsent = memoryview(part)
        while unsent:
            unsent = unsent[pipe.write(unsent) :]


def render_failure(index: int, error: BaseException) -> bytes:
    """The frame for an exception, or only for its description if it cannot be pickled."""
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        payload = pickle.dumps((index, False, (error, text)), pickle.HIGHEST_PROTOCOL)
        pickle.loads(payload)  # noqa: S301 - just made; some exceptions fail only when loaded
    except Exception:
        payload = pickle.dumps((index, False, (None, text)), pickle.HIGHEST_PROTOCOL)
    return payload
