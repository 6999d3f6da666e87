"""A source that reads what a call measured: a figure in its receipt."""

from __future__ import annotations

from agent_infra.clock import to_datetime
from agent_infra.errors import SourceFailed
from agent_infra.rewards.signals import Event, Signal
from agent_infra.rewards.sources.pursuit import AT_ONCE, FIRST_DELAY, LONGEST_DELAY, PursuingSource, in_thread
from agent_infra.state import Node


class MetricSource(PursuingSource):
    """Gives a figure of each watched call's receipt ("seconds", "usage.tokens"), once the call has ended.

    A call that runs has no receipt, and an event that is no call never gets one: not yet. A receipt without that figure
    is an error, told in `health`. The receipt's id is the signal's idempotency key, its time the event time.
    """

    def __init__(
        self,
        name: str,
        metric: str,
        *,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
        at_once: int = AT_ONCE,
    ) -> None:
        super().__init__(name, first_delay=first_delay, longest_delay=longest_delay, at_once=at_once)
        self._metric = metric

    async def observe(self, event: Event) -> Signal | None:
        """Read once."""
        receipt = await in_thread(self.sink.receipt, event)
        return None if receipt is None else self._read(event, receipt)

    def _read(self, event: Event, receipt: Node) -> Signal:
        value: object = receipt.data
        for name in self._metric.split("."):
            value = value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SourceFailed(
                f"the receipt of call {event.id} has no figure {self._metric!r}",
                why=f"the call was {receipt.data.get('status')}, and measured {_figures(receipt) or 'nothing'}",
                facts={"receipt": receipt.id, "metric": self._metric},
            )
        return Signal(
            self.name,
            value,
            event_id=event.id,
            session_id=event.session_id,
            at=to_datetime(receipt.created),
            evidence={"receipt": receipt.id, self._metric: value},
            key=receipt.id,
        )


def _figures(receipt: Node) -> str:
    """The names of the figures that a receipt holds."""
    figures = {name: value for name, value in receipt.data.items() if isinstance(value, int | float)}
    return ", ".join(name for name, value in figures.items() if not isinstance(value, bool))
