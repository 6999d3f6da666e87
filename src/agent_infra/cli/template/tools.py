"""The tools: typed functions. Their schemas come from the hints, their descriptions from the docstrings."""

from typing import TypedDict

from agent_infra import tool

PARCELS = {"P-1001": ("in transit", "Lyon"), "P-1002": ("delivered", "Turin")}
DAYS = {"Lyon": "tomorrow", "Turin": "today"}


class Status(TypedDict):
    status: str
    hub: str


class Arrival(TypedDict):
    day: str


class Answer(TypedDict):
    text: str


@tool(effects="none")
def parcel_status(number: str) -> Status:
    """Where a parcel is.

    Args:
        number: the parcel's number, as P-1001
    """
    status, hub = PARCELS[number]
    return {"status": status, "hub": hub}


@tool(effects="none")
def arrival_estimate(hub: str) -> Arrival:
    """When a parcel that is at a hub arrives."""
    return {"day": DAYS[hub]}


@tool(effects="none")
def compose_answer(status: str, arrives: str) -> Answer:
    """The sentence for the customer."""
    return {"text": f"Your parcel is {status} and arrives {arrives}."}
