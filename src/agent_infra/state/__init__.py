"""Layer 1, the state graph: the only source of truth.

Data comes in by `graph.step()` (checked by the schema broker, written as one atomic batch with its new head) and
leaves by `graph.at()`, `graph.nodes()` and the other reads, each as of a version and a moment.

    graph      StateGraph: the face; step: what is on its way into a version; model: the records
    backend    what a graph is a face over; local: that of this process
    engine     sessions, heads, branches; the one writer
    rows/      how it is written down
    reading/   every question: views, queries, causes, differences, watching, verification
    schemas/   the broker: versions, compatibility, migrations; standard: types every home knows
    access/    who may read and write when: locks, leases, permissions
    retention/ what is kept, and how the rest goes
    blobs      content by hash; records: operational records, which have no history
    transfer/  a session as a file, and back
    home       a folder and its owner; format: its number, and upgrades
    stores/    where rows live
"""

from agent_infra.state.access.leases import Lease
from agent_infra.state.backend import Acting, Backend, Reader, Terms, Writer
from agent_infra.state.blobs import BlobStore
from agent_infra.state.engine import StateEngine
from agent_infra.state.format import Upgrade
from agent_infra.state.graph import StateGraph
from agent_infra.state.home import Home, open_home, open_memory, upgrade_home
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
from agent_infra.state.reading.activation import Reading, activation
from agent_infra.state.reading.diff import Diff
from agent_infra.state.reading.everywhere import caused_by as caused_by_everywhere
from agent_infra.state.reading.query import Explanation, Page, Query
from agent_infra.state.reading.referring import Referring, references_with, referring
from agent_infra.state.reading.view import View
from agent_infra.state.reading.watch import Change
from agent_infra.state.records import Records
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.janitor import Janitor, collect_all
from agent_infra.state.retention.keeping import Retention
from agent_infra.state.schemas import MergeRules, Migration, Schema, SchemaBroker, SchemaDiff
from agent_infra.state.step import Step
from agent_infra.state.stores import fit_store
from agent_infra.state.transfer import Exported, Imported, export_session, import_session

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
    "MergeRules",
    "Migration",
    "Node",
    "NodeDraft",
    "Page",
    "Query",
    "Reader",
    "Reading",
    "Records",
    "Referring",
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
    "fit_store",
    "import_session",
    "open_home",
    "open_memory",
    "references_with",
    "referring",
    "session_of",
    "upgrade_home",
]
