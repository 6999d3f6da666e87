"""Sessions under another name, or with other node ids. The chain is hashed anew, so the versions get other ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from agent_infra.clock import random_bytes, ulid_bytes, ulid_text
from agent_infra.state.model import LEDGER
from agent_infra.state.rows import records
from agent_infra.state.rows.records import Branch
from agent_infra.state.transfer.arrived import Arrived, ArrivedNode

_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def rename(arrived: Arrived, name: str) -> None:
    """Give the session, and its ledger, another name. What nodes say stays as it is."""
    old = arrived.sessions[0].session
    names = {old: name, old + LEDGER: name + LEDGER}
    for line in arrived.sessions:
        line.session = names[line.session]
    for number, branch in arrived.branches.items():
        if branch.session in names:
            arrived.branches[number] = Branch(names[branch.session], branch.parent, branch.fork_step)
    for version in arrived.versions.values():
        version.session = names.get(version.session, version.session)
    _chain_anew(arrived)


def redraw(arrived: Arrived) -> None:
    """Give every node a new id of the same moment, and put it wherever node data, keys and references name the old one.

    Content blocks keep their bytes, and with them what they say.
    """
    new = {id: ulid_text(ulid_bytes(id)[:6] + random_bytes(10)) for id in arrived.node_ids()}
    raw = {ulid_bytes(old): ulid_bytes(fresh) for old, fresh in new.items()}
    for version in arrived.versions.values():
        for node in version.nodes:
            _redraw_node(node, raw[node.ulid], new)
        version.edges = [(raw[source], raw[target], type, tool) for source, target, type, tool in version.edges]
        version.deaths = [(raw[ulid], kind) for ulid, kind in version.deaths]
        references = [(kind, _named_anew(value, new)) for kind, value in version.private.references]
        version.private = records.Private(version.private.salt, version.private.reasons, references)
    _chain_anew(arrived)


def _redraw_node(node: ArrivedNode, ulid: bytes, new: Mapping[str, str]) -> None:
    node.ulid = ulid
    if node.draft is None:
        return
    draft = node.draft
    node.draft = replace(
        draft,
        id=ulid_text(ulid),
        body=_named_anew(draft.body.decode(), new).encode(),
        key=_named_anew(draft.key, new) if draft.key is not None else None,
    )
    node.digest = records.node_digest(ulid, node.salt, node.content())


def _named_anew(text: str, new: Mapping[str, str]) -> str:
    return _ULID.sub(lambda found: new.get(found[0], found[0]), text)


def _chain_anew(arrived: Arrived) -> None:
    """Hash every version again; parents stand before their children."""
    for (branch, step), version in arrived.versions.items():
        version.parent_hash = arrived.parent_hash(branch, step)
        version.hash = version.chained()
