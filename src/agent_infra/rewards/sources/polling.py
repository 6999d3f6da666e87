"""A source that is asked over HTTP: one GET an attempt, until the answer holds a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from agent_infra.content import JsonValue
from agent_infra.errors import ExpressionError, SourceFailed, SourceInvalid
from agent_infra.expressions import compile_template
from agent_infra.rewards.signals import EVIDENCE_LIMIT, Event, Signal
from agent_infra.rewards.sources.payload import number_at, path_of
from agent_infra.rewards.sources.pursuit import AT_ONCE, FIRST_DELAY, LONGEST_DELAY, PursuingSource

_NOT_YET: Final = (204, 404)
_BODY_LIMIT: Final = EVIDENCE_LIMIT // 2
_LOCAL: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")


class PollingSource(PursuingSource):
    """Asks `url` about each watched event.

    url          may hold `${event.id}`, `${event.session_id}` (percent-encoded) and `${env.NAME}`; what stands in the
                 environment is shown neither in evidence nor in errors
    value        where the value stands in the JSON answer, as "answer.score" or "items.0.score"
    timeout      seconds for one attempt
    environment  what `env` reads; the process's own unless given

    204, 404 and an answer without that path (or with null there) mean: not yet. Every other status, a broken answer and
    a value that is no number are errors: told in `health`, asked again later, never a value. The answer's body is the
    evidence. Raises SourceInvalid for a url or path that can't be used.
    """

    def __init__(
        self,
        name: str,
        url: str,
        value: str,
        *,
        timeout: float = 10.0,
        environment: Mapping[str, str] | None = None,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
        at_once: int = AT_ONCE,
    ) -> None:
        super().__init__(name, first_delay=first_delay, longest_delay=longest_delay, at_once=at_once)
        try:
            self._url = compile_template(url, ["event", "env"])
        except ExpressionError as error:
            raise SourceInvalid(f"source {name!r} can't poll {url!r}", why=str(error)) from None
        self._path = path_of(name, value)
        self._environment = os.environ if environment is None else environment
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def observe(self, event: Event) -> Signal | None:
        """Ask once."""
        url, shown = self._address(event)
        try:
            status, content_type, body = await self._get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceFailed(
                f"{shown} could not be asked", why=self._without_secrets(f"{type(error).__name__} {error}")
            ) from None
        if status in _NOT_YET:
            return None
        if status != 200:
            raise SourceFailed(f"{shown} answered with status {status}")
        value = self._value(body, shown)
        if value is None:
            return None
        evidence: JsonValue = {
            "url": shown,
            "status": status,
            "content_type": content_type,
            "body": body.decode(errors="replace"),
        }
        return Signal(self.name, value, event_id=event.id, session_id=event.session_id, evidence=evidence)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _address(self, event: Event) -> tuple[str, str]:
        """The address to ask, and the same for eyes: environment variables by name in place of their values."""
        about = {"id": quote(event.id, safe=""), "session_id": quote(event.session_id, safe="")}
        found = self._url.resolve({"event": about, "env": self._secrets()})
        if not found.ok:
            raise SourceFailed(f"the address of source {self.name!r} has no value", why=found.error)
        hidden = {name: f"${{env.{name}}}" for name in self._secrets()}
        return str(found.value), str(self._url.resolve({"event": about, "env": hidden}).value)

    def _secrets(self) -> dict[str, str]:
        """The variables that the address reads, as far as they are set."""
        names = [path[1] for path in self._url.reads if path[0] == "env" and len(path) > 1]
        return {name: self._environment[name] for name in names if name in self._environment}

    def _without_secrets(self, text: str) -> str:
        for name, value in self._secrets().items():
            text = text.replace(value, f"${{env.{name}}}") if value else text
        return text

    async def _get(self, url: str) -> tuple[int, str, bytes]:
        """(status, content type, body) of one GET."""
        if self._client is None:
            direct: dict[str, httpx.AsyncBaseTransport | None] = dict.fromkeys(_LOCAL)
            self._client = httpx.AsyncClient(timeout=self._timeout, mounts=direct)
        async with self._client.stream("GET", url, headers={"accept": "application/json"}) as response:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    raise SourceFailed(f"the answer is over {_BODY_LIMIT} bytes")
            return response.status_code, response.headers.get("content-type", ""), body

    def _value(self, body: bytes, shown: str) -> float | None:
        """The number at the path; None where the answer has none yet."""
        try:
            answer: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceFailed(f"the answer of {shown} is no JSON", why=str(error)) from None
        return number_at(answer, self._path, shown)
