"""The server: the operations of an open home over HTTP, for processes that don't own it.

Requests come in on `<home>/agent-infra.sock` and are answered by an application built around the owner's `Infra`;
changes go out as a stream of events. The other process holds a `Client`, behind the faces that a home of its own has.

    socket         the owner's listening socket; what serves it is imported at the first connection
    app, routes/   the application, one file a resource; served: what it asks of an Infra
    codec          records as JSON; problems: errors as problem JSON; events: server-sent events
    client         requests to an owner; remote: its sessions; remote_stores: its content and schemas

Serving needs the extra `[server]`; being a client doesn't. `agent_infra.server.app` holds `create_app`: importing it
imports FastAPI, importing this package doesn't.
"""

from agent_infra.server.client import Client, socket_of, target_of
from agent_infra.server.remote import RemoteBackend
from agent_infra.server.remote_stores import RemoteBlobs, RemoteSchemas
from agent_infra.server.served import Served
from agent_infra.server.socket import HomeSocket, can_listen, open_socket

__all__ = [
    "Client",
    "HomeSocket",
    "RemoteBackend",
    "RemoteBlobs",
    "RemoteSchemas",
    "Served",
    "can_listen",
    "open_socket",
    "socket_of",
    "target_of",
]
