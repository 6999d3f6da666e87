"""What a demo without an account needs: a small server on loopback, started at first use.

    /data/2.5/forecast     recorded weather in the provider's wire format, its dates moved to today
    /satisfaction?event=…  a user who answers a little later: 404 until then, as a questionnaire would

Its address is in WEATHER_SERVICE_URL from then on, where agent_infra.toml reads it.
"""

import json
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ANSWERS_AFTER = float(os.environ.get("SATISFACTION_DELAY", "1.0"))  # seconds after the question is first asked
RECORDED = json.loads(Path(__file__).with_name("recorded_forecast.json").read_text(encoding="utf-8"))


@cache
def url() -> str:
    """The server's address; the first call starts it and says so."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, name="weather-service", daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    os.environ["WEATHER_SERVICE_URL"] = address
    served = "satisfaction" if os.environ.get("OPENWEATHERMAP_API_KEY") else "weather and satisfaction"
    print(f"(this example serves {served} itself, at {address})")
    return address


class Handler(BaseHTTPRequestHandler):
    asked: dict[str, float] = {}  # noqa: RUF012 - one server a process, shared by its handlers on purpose

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/data/2.5/forecast":
            self.answer(*forecast(query.get("q", "")))
        elif parts.path == "/satisfaction" and "event" in query:
            since = time.monotonic() - self.asked.setdefault(query["event"], time.monotonic())
            score = {"answer": {"score": 0.8, "text": "很满意，正是我想知道的"}}
            self.answer(*((200, score) if since >= ANSWERS_AFTER else (404, {"message": "not answered yet"})))
        else:
            self.answer(404, {"message": "not found"})

    def answer(self, status: int, body: object) -> None:
        raw = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the demo's output to the demo."""


def forecast(city: str) -> tuple[int, dict]:
    """Two days in steps of three hours, as the provider sends them."""
    temps = RECORDED["cities"].get(city)
    if temps is None:
        return 404, {"cod": "404", "message": "city not found"}
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    entries = []
    for index, (temp, description) in enumerate(temps):
        moment = start + timedelta(hours=3 * index)
        entries.append(
            {
                "dt": int(moment.timestamp()),
                "dt_txt": moment.strftime("%Y-%m-%d %H:%M:%S"),
                "main": {"temp": temp, "pressure": 1016, "humidity": 41},
                "weather": [{"id": 800, "main": description.split()[-1].title(), "description": description}],
                "wind": {"speed": 2.6, "deg": 180},
            }
        )
    city_facts = {"name": city, "country": "CN", "timezone": 28800}
    return 200, {"cod": "200", "message": 0, "cnt": len(entries), "list": entries, "city": city_facts}
