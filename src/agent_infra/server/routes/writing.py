"""Writing session graphs: whole steps, moves of a head, retention, leases. System sessions can't be written from here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from fastapi import APIRouter, Request, Response

from agent_infra.clock import ulid_bytes
from agent_infra.errors import DuplicateConflict, InvalidNode
from agent_infra.server.codec import (
    CollectBody,
    CommittedBody,
    EraseBody,
    ForkBody,
    GcBody,
    HeadBody,
    LeaseBody,
    NodeBody,
    PinBody,
    RollbackBody,
    Stamp,
    StepBody,
    body_of,
    head_of,
)
from agent_infra.server.routes.common import Home, acted, answer
from agent_infra.state import (
    Acting,
    Backend,
    Lease,
    NodeDraft,
    Retention,
    StepDraft,
    Terms,
    VersionId,
    Writer,
    check_session_id,
)

router = APIRouter(prefix="/state", tags=["state"])


@router.post("/steps")
async def commit(request: Request, infra: Home) -> Response:
    """Write one step, all or nothing; the version that it became, and each node's schema and ttl."""
    return await acted(request, StepBody, lambda body: _commit(infra.backend, body))


def _commit(backend: Backend, body: StepBody) -> CommittedBody:
    check_session_id(body.session)
    _check_ids(backend, [node.id for node in body.nodes])
    draft = StepDraft(body.agent)
    with backend.writing(body.session, _terms(backend, body)) as writer:
        draft.nodes += [_draft(writer, node, body.agent) for node in body.nodes]
        draft.edges += body.edges
        draft.removals += body.removals
        draft.references += body.references
        version = writer.commit(draft)
    stamps = [_stamp(*pair) for pair in zip(body.nodes, draft.nodes, strict=True)]
    return CommittedBody(replace(version, id=str(version.id)), stamps, cast("VersionId", version.id).seq)


def _stamp(asked: NodeBody, node: NodeDraft) -> Stamp:
    return Stamp(node.schema, node.ttl, None if asked.schema_version is None else node.data)


def _terms(backend: Backend, body: StepBody) -> Terms:
    return Terms(
        body.agent,
        head_of(body.expect) if body.expect else None,
        body.lock_wait_timeout,
        body.durable,
        _lease(backend, body.lease) if body.lease else None,
        Acting(body.acting.name, body.acting.roles) if body.acting else None,
    )


def _draft(writer: Writer, node: NodeBody, owner: str | None) -> NodeDraft:
    drafted = writer.draft(
        node.type,
        node.data,
        key=node.key,
        ttl=node.ttl,
        owner=owner,
        tool=node.tool,
        permissions=node.permissions,
        labels=node.labels,
        schema_version=node.schema_version,
    )
    return replace(drafted, id=node.id)


def _check_ids(backend: Backend, ids: list[str]) -> None:
    """The client drew the ids, so that its nodes have them at once: they must be ULIDs that no node has."""
    for id in ids:
        try:
            ulid_bytes(id)
        except ValueError as error:
            raise InvalidNode(f"{id!r} can't be a node's id", why=str(error), facts={"node": id}) from None
        if ids.count(id) > 1 or backend.engine.locate(id) is not None:
            raise DuplicateConflict(
                f"there is a node {id} already", mend="Draw a new id for each node; ids are never used again."
            )


@router.post("/flush")
def flush(infra: Home) -> Response:
    """Return once every step so far is as durable as the setting promises."""
    return answer(infra.backend.flush())


@router.post("/rollback")
async def rollback(request: Request, infra: Home) -> Response:
    """Move a head back by some steps, or to a version; the id of the version now at the head."""

    def act(body: RollbackBody) -> HeadBody:
        session = check_session_id(body.session)
        return body_of(infra.backend.rollback(session, steps=body.steps, to=body.to, agent=body.agent, why=body.why))

    return await acted(request, RollbackBody, act)


@router.post("/fork")
async def fork(request: Request, infra: Home) -> Response:
    """Begin a session at another's head, or at one of its versions."""

    def act(body: ForkBody) -> None:
        infra.backend.fork(body.session, check_session_id(body.new), at=body.at, agent=body.agent)

    return await acted(request, ForkBody, act)


# -- retention -------------------------------------------------------------------------------------


@router.post("/pin")
async def pin(request: Request, infra: Home) -> Response:
    """Keep a version readable."""
    return await acted(request, PinBody, lambda body: infra.backend.pin(body.version, body.owner, body.why))


@router.post("/unpin")
async def unpin(request: Request, infra: Home) -> Response:
    """Let go of a pin; whether there was one."""
    return await acted(request, PinBody, lambda body: infra.backend.unpin(body.version, body.owner))


@router.post("/collect")
async def collect(request: Request, infra: Home) -> Response:
    """One bounded pass of retention; what it freed."""

    def act(body: CollectBody) -> Any:
        policy = Retention(body.keep_last, body.max_age, body.max_bytes, body.abandoned_after)
        return infra.backend.collect(body.session, policy, body.limit, agent=body.agent)

    return await acted(request, CollectBody, act)


@router.post("/erase")
async def erase(request: Request, infra: Home) -> Response:
    """Erase a node's data for good, from every version; what it freed."""

    def act(body: EraseBody) -> Any:
        by = Acting(body.acting.name, body.acting.roles) if body.acting else None
        return infra.backend.erase(check_session_id(body.session), body.node, body.why, agent=body.agent, acting=by)

    return await acted(request, EraseBody, act)


@router.post("/gc")
async def gc(request: Request, infra: Home) -> Response:
    """The settings' retention, applied to every session in one bounded pass each; what it freed."""
    return await acted(request, GcBody, lambda body: infra.gc(body.limit))


# -- leases ----------------------------------------------------------------------------------------


@router.post("/leases")
async def take_lease(request: Request, infra: Home) -> Response:
    """Lead a session for some seconds; the lease's token."""

    def act(body: LeaseBody) -> int:
        session = check_session_id(body.session)
        return infra.backend.take_lease(session, body.owner, body.seconds, body.lock_wait_timeout)

    return await acted(request, LeaseBody, act)


@router.post("/leases/renew")
async def renew_lease(request: Request, infra: Home) -> Response:
    """Make a lease run for its full time again."""
    backend = infra.backend
    return await acted(request, LeaseBody, lambda body: backend.renew_lease(_lease(backend, body), body.seconds))


@router.post("/leases/release")
async def release_lease(request: Request, infra: Home) -> Response:
    """Let others lead."""
    backend = infra.backend
    return await acted(request, LeaseBody, lambda body: backend.release_lease(_lease(backend, body), body.seconds))


def _lease(backend: Backend, body: LeaseBody) -> Lease:
    return Lease(backend, body.session, body.owner, body.seconds, body.token)
