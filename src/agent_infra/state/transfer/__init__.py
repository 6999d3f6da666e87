"""A session as a file of JSON lines, and back: to keep it, to look at it elsewhere, to move it into another home.

`export_session` writes everything that the session's versions are made of, abandoned branches and the reward ledger
included, with the salts and digests by which the receiver can recompute every hash. `import_session` checks all of it
and then brings it in, whole or not at all. What belongs to a home and not to a session (pins, leases, the feed of moves,
migrations) stays behind.

    lines      the file's format, line by line
    exporting  out
    importing  in: what is asked, and one atomic batch
    reading    a file checked, hash by hash, into versions
    rewriting  another name, other node ids
    rows       versions as rows of a store
"""

from agent_infra.state.transfer.exporting import Exported, export_session, exported_in
from agent_infra.state.transfer.importing import Imported, import_session
from agent_infra.state.transfer.reading import check_export

__all__ = ["Exported", "Imported", "check_export", "export_session", "exported_in", "import_session"]
