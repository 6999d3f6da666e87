"""The schema broker: what node types there are, and under which schemas.

A version is named by its number or by a tag, as JSON: `version=2`, `version="2.1"`.
"""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response

from agent_infra.server.codec import DeprecationBody, MappingBody, SchemaBody, decode
from agent_infra.server.routes.common import Home, acted, answer
from agent_infra.state import Schema

router = APIRouter(prefix="/schemas", tags=["schemas"])


@router.get("/names")
def names(infra: Home) -> Response:
    """The declared types."""
    return answer(infra.schemas.names())


@router.get("")
def get(infra: Home, name: str, version: str | None = None) -> Response:
    """A type's schema, in the version that new nodes have unless one is named."""
    return answer(_body(infra.schemas.get(name, _version(version) if version is not None else None)))


@router.get("/list")
def every(infra: Home, name: str | None = None) -> Response:
    """All versions of a schema, or of all schemas."""
    return answer([_body(schema) for schema in infra.schemas.list(name)])


@router.get("/diff")
def diff(infra: Home, name: str, old: str, new: str | None = None) -> Response:
    """What changed from one version to another, or to the one that new nodes have."""
    return answer(infra.schemas.diff(name, _version(old), _version(new) if new is not None else None))


@router.post("")
async def register(request: Request, infra: Home) -> Response:
    """Declare a type's schema; the schema as it is registered."""

    def act(body: SchemaBody) -> SchemaBody:
        tag = body.tags[0] if body.tags else None
        return _body(infra.schemas.register(body.name, body.schema, body.compatibility, tag))

    return await acted(request, SchemaBody, act)


@router.post("/deprecate")
async def deprecate(request: Request, infra: Home) -> Response:
    """Take a version out of use."""

    def act(body: DeprecationBody) -> SchemaBody:
        return _body(infra.schemas.deprecate(body.name, body.version, body.why))

    return await acted(request, DeprecationBody, act)


@router.post("/migrate")
async def migrate(request: Request, infra: Home) -> Response:
    """Say by a mapping how data of one version becomes data of another."""

    def act(body: MappingBody) -> None:
        infra.schemas.migrate(body.name, body.from_version, body.to_version, body.mapping)

    return await acted(request, MappingBody, act)


def _version(text: str) -> int | str:
    return decode(text.encode(), cast("type[int | str]", int | str))


def _body(schema: Schema) -> SchemaBody:
    return SchemaBody(
        schema.name,
        schema.schema,
        schema.compatibility,
        schema.version,
        schema.tags,
        schema.compatible_with,
        schema.deprecated,
    )
