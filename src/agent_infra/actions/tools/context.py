"""What a running tool may know about its call, and say while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


class CallContext:
    """Brought to a tool by a parameter annotated `CallContext`; it stays out of the tool's schema.

    idempotency_key  the same for every attempt of one call: hand it to the service that the tool writes to
    settings         the tool's own, with the values of the secrets that they name
    """

    __slots__ = ("_ends", "_report", "idempotency_key", "settings")

    def __init__(
        self,
        idempotency_key: str,
        *,
        seconds: float | None = None,
        report: Callable[[Any], Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.idempotency_key = idempotency_key
        self.settings: dict[str, Any] = dict(settings or {})
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

    def used(
        self,
        *,
        model: str | None = None,
        tokens_in: int | None = None,
        tokens_out: int | None = None,
        money: float | None = None,
        currency: str = "USD",
    ) -> None:
        """Say what the tool used of a paid service, once for each request to it; evidence adds it up. From any thread.

        `money` is what the provider says that it costs; without it the price table is asked for `model`. What isn't
        known is left out. Raises ValueError for amounts below 0.
        """
        amounts = {"tokens_in": tokens_in, "tokens_out": tokens_out, "money": money}
        for name, amount in amounts.items():
            if amount is not None and not 0 <= amount < float("inf"):
                raise ValueError(f"{name} is a number of 0 or more, not {amount!r}")
        if self._report is not None:
            self._report({"usage": {"model": model, "currency": currency} | amounts})
