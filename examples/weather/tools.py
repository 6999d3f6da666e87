"""The tool: a real HTTP call, to the provider when an API key is set, else to this example's own server on loopback."""

import os
from typing import TypedDict

import httpx
import local_service

from agent_infra import tool

PROVIDER = "https://api.openweathermap.org"


class Forecast(TypedDict):
    city: str
    date: str
    temp: float
    condition: str
    served_by: str


@tool(effects="none")
def openweathermap_api(city: str, units: str = "metric") -> Forecast:
    """The weather forecast for tomorrow noon.

    Args:
        city: the city's English name
        units: metric or imperial
    """
    key = os.environ.get("OPENWEATHERMAP_API_KEY")
    local = local_service.url()  # also where the user's satisfaction is asked for
    query = {"q": city, "units": units, "appid": key or "none"}
    answer = httpx.get(f"{PROVIDER if key else local}/data/2.5/forecast", params=query, timeout=20.0)
    answer.raise_for_status()
    body = answer.json()
    tomorrow = sorted({entry["dt_txt"][:10] for entry in body["list"]})[1]
    noon = next(entry for entry in body["list"] if entry["dt_txt"] == f"{tomorrow} 12:00:00")
    return {
        "city": body["city"]["name"],
        "date": tomorrow,
        "temp": noon["main"]["temp"],
        "condition": noon["weather"][0]["description"],
        "served_by": "OpenWeatherMap" if key else "the example's own weather server on loopback (recorded data)",
    }
