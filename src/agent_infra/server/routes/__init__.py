"""The routes, one file a resource. Requests come in as query parameters or JSON bodies, answers leave as JSON.

    info      who owns the home, and whether it answers
    state     the operations on session graphs: reads, steps, time travel, retention, leases
    watch     changes as a stream of events
    blobs     content by its id
    schemas   the schema broker
    transfer  whole sessions out and in

Names of sessions, nodes and versions may hold any character, so they are query parameters, never parts of a path.
"""

from agent_infra.server.routes import blobs, info, schemas, state, transfer, watch, writing

ROUTERS = [info.router, state.router, writing.router, watch.router, blobs.router, schemas.router, transfer.router]

__all__ = ["ROUTERS"]
