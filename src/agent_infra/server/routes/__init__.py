"""The routes, one file a resource. Requests come in as query parameters or JSON bodies, answers leave as JSON.

    info      who owns the home, and whether it answers
    state     the operations on session graphs: reads, steps, time travel, retention, leases
    watch     changes as a stream of events
    blobs     content by its id
    schemas   the schema broker
    transfer  whole sessions out and in
    webhooks  callbacks of sources of signals

Names of sessions, nodes and versions may hold any character, so they are query parameters, never parts of a path.
"""

from agent_infra.server.routes import blobs, info, schemas, state, transfer, watch, webhooks, writing

ROUTERS = [each.router for each in (info, state, writing, watch, blobs, schemas, transfer, webhooks)]

__all__ = ["ROUTERS"]
