"""The server: the same operations over HTTP, and the page that shows them.

Requests come in from other processes, browsers and services; an application built around one open `Infra` answers them,
and events go out as a stream. Nothing is exported yet, and the core doesn't install what a server needs.
"""
