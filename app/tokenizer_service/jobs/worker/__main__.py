"""The child process of a job: `python -m tokenizer_service.jobs.worker JOB_FOLDER`; see `child`.

It gives way to serving before it imports what a job needs. The imports take half a second. While
they had the priority of the server, the 99th percentile of requests was 22 ms in place of 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Final

NICENESS: Final = 19
"""The lowest priority: the child gets the processor time that serving leaves."""


def give_way() -> None:
    """Give serving processes priority over this one."""
    os.nice(NICENESS)
    # With autogroups, Linux divides the processors among sessions, and a nice value has effect only
    # within its session. Without this, the child took half of the server's processor time.
    for _ in range(10):
        with contextlib.suppress(OSError):
            try:
                Path("/proc/self/autogroup").write_text(str(NICENESS))
            except BlockingIOError:  # the system allows one change per 0.1 s
                time.sleep(0.1)
                continue
        return


if __name__ == "__main__":
    give_way()

    from tokenizer_service.jobs.worker.child import main

    sys.exit(main(sys.argv[1:]))
