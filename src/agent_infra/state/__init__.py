"""Layer 1, the state graph: the only source of truth.

Data comes in by `graph.step()` (checked by the schema broker, written as one atomic batch with its new head) and
leaves by `graph.at()`, `graph.nodes()` and the other reads, each as of a version and a moment.

    model      Node, Edge, Version: the records
    graph      StateGraph: the face; step: what is on its way into a version
    backend    what a graph is a face over; local: that of this process
    engine     sessions, heads, branches; the one writer
    batch      a step as rows
    view       every read; query: nodes by index
    keys, records   rows' keys and values
    causality  what led to what; diff: what differs
    retention  pins, lines, what is readable; needs: which nodes that takes (spans: of steps)
    collect    what is removed, and when; removal: how; janitor: in the background
    watch      each move of a head, once and in order
    schemas/   the broker: versions, compatibility, migrations; standard: types every home knows
    locks      who may write when; leases: who leads; permissions: who may see and change what
    everywhere questions over all sessions
    blobs      content by hash
    activation what conditions see
    home       a folder and its owner; format: its number, and upgrades
    transfer/  a session as a file, and back
    stores/    where rows live
"""

from agent_infra.state.activation import Reading, activation
from agent_infra.state.backend import Acting, Backend, Reader, Terms, Writer
from agent_infra.state.blobs import BlobStore
from agent_infra.state.collect import Collected
from agent_infra.state.diff import Diff
from agent_infra.state.engine import StateEngine
from agent_infra.state.everywhere import caused_by as caused_by_everywhere
from agent_infra.state.format import Upgrade
from agent_infra.state.graph import StateGraph
from agent_infra.state.home import Home, open_home, open_memory, upgrade_home
from agent_infra.state.janitor import Janitor, collect_all
from agent_infra.state.leases import Lease
from agent_infra.state.local import LocalBackend
from agent_infra.state.model import (
    LEDGER,
    Edge,
    Lifecycle,
    Node,
    NodeDraft,
    StepDraft,
    Verification,
    Version,
    VersionId,
    check_session_id,
    session_of,
)
from agent_infra.state.query import Explanation, Page, Query
from agent_infra.state.retention import Retention
from agent_infra.state.schemas import Migration, Schema, SchemaBroker, SchemaDiff
from agent_infra.state.step import Step
from agent_infra.state.transfer import Exported, Imported, export_session, import_session
from agent_infra.state.view import View
from agent_infra.state.watch import Change

__all__ = [
    "LEDGER",
    "Acting",
    "Backend",
    "BlobStore",
    "Change",
    "Collected",
    "Diff",
    "Edge",
    "Explanation",
    "Exported",
    "Home",
    "Imported",
    "Janitor",
    "Lease",
    "Lifecycle",
    "LocalBackend",
    "Migration",
    "Node",
    "NodeDraft",
    "Page",
    "Query",
    "Reader",
    "Reading",
    "Retention",
    "Schema",
    "SchemaBroker",
    "SchemaDiff",
    "StateEngine",
    "StateGraph",
    "Step",
    "StepDraft",
    "Terms",
    "Upgrade",
    "Verification",
    "Version",
    "VersionId",
    "View",
    "Writer",
    "activation",
    "caused_by_everywhere",
    "check_session_id",
    "collect_all",
    "export_session",
    "import_session",
    "open_home",
    "open_memory",
    "session_of",
    "upgrade_home",
]
