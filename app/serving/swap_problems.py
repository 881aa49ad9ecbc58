"""Problems of what is served: nothing is, or a swap did not come through."""

from __future__ import annotations

from app.http.problem import Problem


class SwapTimeoutError(Problem):
    """Some process did not swap in time; all are back on what was served before."""

    def __init__(self, seconds: float, waiting: int) -> None:
        super().__init__(
            503,
            "swap_timeout",
            f"{waiting} server processes did not load it within {seconds:g} seconds; all are back "
            f"on what they served before. See the log, then promote again.",
            headers={"Retry-After": "30"},
        )


class SwapFailedError(Problem):
    """A process could not load the new version; all are back on what was served before."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            503, "swap_failed", f"A server process could not load it ({reason}); nothing changed."
        )


class NoTokenizerError(Problem):
    """Nothing is served."""

    def __init__(self, reason: str) -> None:
        super().__init__(503, "no_tokenizer", reason, headers={"Retry-After": "5"})
