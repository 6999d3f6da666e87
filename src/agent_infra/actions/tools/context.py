"""What a running tool may know about its call, and say while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class CallContext:
    """Brought to a tool by a parameter annotated `CallContext`; it stays out of the tool's schema.

    idempotency_key  the same for every attempt of one call: hand it to the service that the tool writes to
    """

    __slots__ = ("_ends", "_report", "idempotency_key")

    def __init__(
        self,
        idempotency_key: str,
        *,
        seconds: float | None = None,
        report: Callable[[str | float], Any] | None = None,
    ) -> None:
        self.idempotency_key = idempotency_key
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._report = report

    @property
    def deadline(self) -> float | None:
        """Seconds left until the call's total limit, never below 0; None where there is no limit."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def progress(self, update: str | float) -> None:
        """Say how far the tool is: a message, or a fraction from 0 to 1. Renews the call's idle limit; from any thread.

        Raises ValueError for a number outside 0 to 1.
        """
        if not isinstance(update, str):
            update = float(update)
            if not 0.0 <= update <= 1.0:
                raise ValueError(f"progress is a message or a fraction from 0 to 1, not {update}")
        if self._report is not None:
            self._report(update)
