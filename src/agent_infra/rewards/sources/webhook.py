"""A source that is called: signed callbacks by Standard Webhooks (https://www.standardwebhooks.com), plain JSON or
CloudEvents 1.0 (https://github.com/cloudevents/spec), each one signal.

What arrives at `receive` is answered only once the signal is durable. The webhook's id is the signal's idempotency key, so
a resend does nothing, and a replay with another body is refused. A forged callback is counted and forgotten; one that is
genuine but can't become a signal is a dead letter.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NoReturn, cast

import msgspec

from agent_infra.content import JsonValue
from agent_infra.errors import DuplicateConflict, SignalRefused, SourceFailed, SourceInvalid
from agent_infra.rewards.signals import Event, Receipt, Signal
from agent_infra.rewards.sources.base import Sink, SourceHealth
from agent_infra.rewards.sources.payload import number_at, path_of, text_at

LIMIT: Final = 256 * 1024
"""The most bytes that a callback may have."""
_CLOUD_EVENT: Final = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the fields of a signal stand in a payload, as "data.score".

    value    the number
    event    the event's id; refs: business keys by their kind; one of the two
    at, confidence, priority   the signal's, where the payload says them
    """

    value: str
    event: str | None = None
    refs: Mapping[str, str] | None = None
    at: str | None = None
    confidence: str | None = None
    priority: str | None = None


class WebhookSource:
    """Signed callbacks as signals. Needs the package standardwebhooks (extra `[server]`).

    secrets  one or several, as `whsec_…`; several while one is being changed
    places   where a signal's fields stand
    limit    the most bytes of a body

    Raises SourceInvalid for secrets or places that can't be used, or without that package.
    """

    def __init__(self, name: str, secrets: Sequence[str], places: Places, *, limit: int = LIMIT) -> None:
        self.limit = limit
        self._name = name
        self._places = places
        self._keys = [_webhook(name, secret) for secret in secrets]
        if not self._keys:
            raise SourceInvalid(f"source {name!r} has no secret, so anybody could send it signals")
        if places.event is None and not places.refs:
            raise SourceInvalid(
                f"source {name!r} doesn't say which event a callback is about", mend="Name `event`, or `join`."
            )
        self._paths = {
            each: path_of(name, text)
            for each in ("value", "event", "at", "confidence", "priority")
            if isinstance(text := getattr(places, each), str)
        }
        self._refs = {kind: path_of(name, text) for kind, text in (places.refs or {}).items()}
        self._sink: Sink | None = None
        self._health = SourceHealth()
        self._lock = threading.Lock()

    # -- the protocol --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The source's name, as the rule file declares it."""
        return self._name

    def start(self, sink: Sink) -> None:
        """Begin to deliver into a sink."""
        self._sink = sink

    async def stop(self) -> None:
        """Refuse what comes from now on."""
        self._sink = None

    @property
    def cursor(self) -> JsonValue:
        """None: the sender knows what it has delivered."""
        return None

    def replay(self, cursor: JsonValue) -> None:
        """Nothing to do: the sender sends again what was not answered."""

    def watch(self, event: Event) -> None:
        """Ignored: it is told of everything anyway."""

    @property
    def health(self) -> SourceHealth:
        """How it is doing; forged callbacks count as refused."""
        with self._lock:
            return replace(self._health, running=self._sink is not None)

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def receive(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Take one callback: its headers by their names in lower case, and its body. Blocks until the signal is durable.

        Raises SignalRefused, whose `facts["reason"]` is forged_signature, callback_too_large, not_running, no_json,
        no_value, bad_time, or one of the door's words; and DuplicateConflict for an id that came with another body.
        """
        sink = self._sink
        if sink is None:
            self._refuse("not_running", "it was not started")
        if len(body) > self.limit:
            self._refuse("callback_too_large", f"its body has {len(body)} bytes, and {self.limit} are the most")
        self._check_signature(headers, body)
        try:
            receipt = sink.ingest(self._signal(headers, body))
        except _Unusable as error:
            sink.dead(self._name, error.reason, body)
            self._refuse(error.reason, error.why)
        except (SignalRefused, DuplicateConflict) as error:
            self._note(refused=self._health.refused + 1, last_error=str(error))
            raise
        self._note(delivered=self._health.delivered + 1, last_error=None, last_delivery_at=sink.clock.micros())
        return receipt

    def _check_signature(self, headers: Mapping[str, str], body: bytes) -> None:
        why = ""
        for key in self._keys:
            try:
                key.verify(body, dict(headers), json_parse=False)
            except Exception as error:  # noqa: BLE001  (whatever keeps it from being verified: it is not verified)
                why = str(error) or type(error).__name__
            else:
                return
        self._refuse("forged_signature", f"its signature doesn't fit: {why}")

    def _signal(self, headers: Mapping[str, str], body: bytes) -> Signal:
        try:
            payload: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _Unusable("no_json", str(error)) from None
        said: Any = payload
        if headers.get("content-type", "").startswith(_CLOUD_EVENT) and isinstance(payload, dict):
            said = {"data": None} | cast("dict[str, Any]", payload)
        elif "ce-id" in headers:
            said = {"data": payload, "time": headers.get("ce-time"), "id": headers["ce-id"]}
        try:
            value = number_at(said, self._paths["value"], "the callback")
        except SourceFailed as error:
            raise _Unusable("no_value", error.what) from None
        if value is None:
            raise _Unusable("no_value", f"there is nothing at {self._places.value}")
        refs = {kind: text for kind, path in self._refs.items() if (text := text_at(said, path)) is not None}
        return Signal(
            self._name,
            value,
            event_id=text_at(said, self._paths["event"]) if "event" in self._paths else None,
            at=self._time(said),
            confidence=self._confidence(said),
            priority=text_at(said, self._paths["priority"]) if "priority" in self._paths else None,
            evidence=cast("JsonValue", payload),
            key=headers["webhook-id"],
            refs=refs or None,
        )

    def _time(self, said: Any) -> datetime | None:
        text = text_at(said, self._paths["at"]) if "at" in self._paths else None
        try:
            return datetime.fromisoformat(text) if text is not None else None
        except ValueError:
            raise _Unusable("bad_time", f"{text!r} is no time") from None

    def _confidence(self, said: Any) -> float:
        found = number_at(said, self._paths["confidence"], "the callback") if "confidence" in self._paths else None
        return 1.0 if found is None else found

    def _refuse(self, reason: str, why: str) -> NoReturn:
        self._note(refused=self._health.refused + 1, last_error=f"{reason}: {why}")
        facts = {"reason": reason, "source": self._name}
        raise SignalRefused(f"a callback for source {self._name!r} was refused", why=why, facts=facts)

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._health = replace(self._health, **changes)  # pyright: ignore[reportArgumentType]


class _Unusable(Exception):
    """A genuine callback that can't become a signal."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def _webhook(name: str, secret: str) -> Any:
    try:
        from standardwebhooks.webhooks import Webhook
    except ImportError:
        raise SourceInvalid(
            f"source {name!r} needs the package standardwebhooks", mend="Install agent-infra-rl[server]."
        ) from None
    try:
        return Webhook(secret)
    except Exception as error:  # noqa: BLE001  (the package's own errors of a secret that is no base64)
        raise SourceInvalid(f"the secret of source {name!r} can't be used", why=str(error)) from None
