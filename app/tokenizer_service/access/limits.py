"""Limits on memory for requests and on time. The schemas define the limits of shape.

The byte budget limits what all requests of a process hold in memory together: bodies, the values
parsed from them, responses, and the text that streams hold back. A request that exceeds it is
refused and may be sent again.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from typing import Final

from tokenizer_service.access.errors import OverloadedError

INLINE_BODY_BYTES: Final = 1920
"""Bodies up to this size are processed on the event loop: a thread costs more than the work. Each
byte gives at most one id of seven digits and a comma, so the response has at most 15 KiB and a few
hundred bytes. Where a byte gives more, and in conversations, the text has less: see
`Plan.inline_bytes`."""

INLINE_ITEMS: Final = 8
INLINE_DETAILED_BYTES: Final = 128
INLINE_DECODED_BYTES: Final = 896
"""A thread processes a small body too if it has more texts, if it is larger and its response has
pieces or offsets, or if its ids are more text: each text costs 30 us, each token 3 us and 128
bytes, and each byte of text up to six bytes under each of three keys."""

INLINE_TEMPLATE_UNITS: Final = 1 << 17
"""What chat templates may take on the event loop, at most 4 ms. Eight messages take less than a
third of it with public templates."""

INLINE_CONVERSATIONS: Final = 4
"""How many conversations a turn of the event loop renders. Each takes about 0.4 ms: with 100
clients a turn would take 40 ms, and a new connection needs several turns."""

UNCHARGED_RESPONSE_BYTES: Final = 1 << 16
"""Responses up to this size that were made on the event loop hold no share of the memory budget."""

MAX_DETAILED_TOKENS: Final = 1_000_000
"""Most tokens of a response with pieces or offsets, which cost a hundred bytes per token."""

_REPEATED_BYTES: Final = 1 << 20
_REPEATED_BYTES_PER_BYTE: Final = 16

MIN_BODY_BYTES_PER_SECOND: Final = 1024
"""After TOKENIZER_HEADER_SECONDS a body must arrive at this rate; a slower one is refused."""

MIN_STREAM_BYTES: Final = 1024
"""Bytes that the client of a stream must send within TOKENIZER_STREAM_IDLE_SECONDS, so that single
bytes do not keep it open."""

MIN_READ_BYTES_PER_SECOND: Final = 16 * 1024
"""The least mean rate at which a client must read a large response, which holds memory. Kernels
report reads in bursts of about a megabyte, so a client near this rate may be too slow."""


def repeat_limit(n_bytes: int, max_bytes: int) -> int:
    """How many bytes a response may repeat of the `n_bytes` that a request sends, and at most
    `max_bytes`: a small body must not cost as much as a large one.

    Example:
        >>> repeat_limit(4000, 1 << 25), repeat_limit(100_000, 1 << 25), repeat_limit(4000, 100)
        (1048576, 1600000, 100)
    """
    return min(max_bytes, max(_REPEATED_BYTES, _REPEATED_BYTES_PER_BYTE * n_bytes))


class ByteBudget:
    """Counts the bytes that the requests of this process hold; safe to use from threads."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        self.most = 0
        """The most that was used since `give_back_memory`."""
        self.lock = threading.Lock()

    def lease(self) -> Lease:
        """The share of one request, which must release it at its end."""
        return Lease(self)


class TurnLimit:
    """What may happen `most` times in a turn of the event loop."""

    def __init__(self, most: int) -> None:
        self._most, self._n_taken = most, 0

    def take(self) -> bool:
        """Whether it may happen once more in this turn."""
        if not self._n_taken:
            asyncio.get_running_loop().call_soon(self._begin)
        self._n_taken += 1
        return self._n_taken <= self._most

    def _begin(self) -> None:
        self._n_taken = 0


def give_back_memory(budget: ByteBudget) -> None:
    """Return to the system what the C library keeps of the memory of large requests.

    glibc keeps up to 64 MB at the end of each arena, and free pages between blocks in use.
    """
    budget.most = 0
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # of glibc only
        trim(0)


class Lease:
    """The bytes that one request has reserved."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = self._expected = 0

    def expect(self, n_bytes: int) -> None:
        """Reserve `n_bytes` more, of which the next `reserve` calls take theirs. Raises as
        `hold`."""
        self.hold(self._held + n_bytes)
        self._expected += n_bytes

    def reserve(self, n_bytes: int) -> None:
        """Reserve `n_bytes` more than is expected. Raises as `hold`."""
        n_expected = min(self._expected, n_bytes)
        self.hold(self._held + n_bytes - n_expected)
        self._expected -= n_expected

    def hold(self, n_bytes: int) -> None:
        """Reserve `n_bytes` in place of what is reserved; an OverloadedError changes nothing."""
        budget = self._budget
        with budget.lock:
            used = budget.used - self._held
            # Always admit a single request, however much it needs: it could never be served else.
            if n_bytes > self._held and used and used + n_bytes > budget.maximum:
                raise OverloadedError("use all the memory reserved for requests")
            budget.used = used + n_bytes
            budget.most = max(budget.most, budget.used)
            self._held = n_bytes

    def release(self) -> None:
        """Return all bytes to the budget; a second call does nothing."""
        self.hold(0)
