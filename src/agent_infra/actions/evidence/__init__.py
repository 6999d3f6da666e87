"""Evidence: the bundle that each execution leaves, stored as a DAG-CBOR block under the CID of its own bytes.

In: what the orchestrator knows of an execution (`Told`). Out: a bundle's CID; bundles, checks, CAR files, and an answer to
"why did that not work?".

    bundle       what is in a bundle
    store        EvidenceStore: bundles in and out, the face
    environment  where calls run, once a process
    cost         tokens and money: what tools report, and a dated table of prices
    chain        which bundles a new one follows; following them back
    car          CAR files            ipfs   bundles pushed to an IPFS node
    why          what happened to an action, on one page; why_words: its words by language
"""

from __future__ import annotations

from agent_infra.actions.evidence.bundle import Kept, Told
from agent_infra.actions.evidence.car import CarFile
from agent_infra.actions.evidence.chain import Chain, EvidenceCheck, Tip
from agent_infra.actions.evidence.cost import PriceTable, Usage, read_prices
from agent_infra.actions.evidence.ipfs import Outbox, PushState
from agent_infra.actions.evidence.store import LARGE, EvidenceStore
from agent_infra.actions.evidence.why import Why, explain

__all__ = [
    "LARGE",
    "CarFile",
    "Chain",
    "EvidenceCheck",
    "EvidenceStore",
    "Kept",
    "Outbox",
    "PriceTable",
    "PushState",
    "Tip",
    "Told",
    "Usage",
    "Why",
    "explain",
    "read_prices",
]
