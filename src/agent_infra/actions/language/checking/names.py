"""Other actions that a document names: what undoes it, what is done instead of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from agent_infra.actions.language.contract import Contract
from agent_infra.documents import did_you_mean
from agent_infra.errors import ToolUnknown

if TYPE_CHECKING:
    from agent_infra.actions.language.compiling import Surroundings
    from agent_infra.actions.language.reader import ActionReader


def check_names(
    readers: Iterable[ActionReader], contracts: Sequence[Contract], around: Surroundings, written: Collection[str]
) -> None:
    """Report each name of an action that is none, and what a compensation fills that isn't there to be filled.

    `written` are the names of the documents themselves, those of wrong ones too.
    """
    known = dict(around.contracts or {}) | {contract.name: contract for contract in contracts}
    for reader in readers:
        for path in (("compensation", "action"), ("confidence", "below", "fallback")):
            name = reader.fields.get(*path)
            if isinstance(name, str) and name not in known and name not in written and not _is_tool(name, around):
                hint = did_you_mean(name, [*known, *written])
                reader.fields.report("ActionUnknown", f"there is no action `{name}`", *path, hint=hint)
        _check_fill(reader, known, around)


def _is_tool(name: str, around: Surroundings) -> bool:
    try:
        around.tools.get(name)
    except ToolUnknown:
        return False
    return True


def _check_fill(reader: ActionReader, known: Mapping[str, Contract], around: Surroundings) -> None:
    """That a compensation fills what the other action leaves open, all that it must and nothing else."""
    fields = reader.fields
    name, fill = fields.get("compensation", "action"), fields.get("compensation", "with") or {}
    found = _open_of(name, known, around) if isinstance(name, str) and isinstance(fill, dict) else None
    if found is None:
        return
    can, must = found
    written = cast("dict[str, Any]", fill)
    for param in written:
        if param not in can:
            message = f"`{param}` is not left open by the action `{name}`"
            hint = did_you_mean(param, can)
            fields.report("ParamUnknown", message, "compensation", "with", param, key=True, hint=hint)
    for param in must:
        if param not in written:
            message = f"the action `{name}` leaves `{param}` open, and nothing fills it"
            hint = f"write `with: {{{param}: …}}`"
            fields.report("ParamMissing", message, "compensation", key=True, hint=hint)


def _open_of(
    name: str, known: Mapping[str, Contract], around: Surroundings
) -> tuple[Collection[str], Collection[str]] | None:
    """The parameters that an action leaves open, and those of them that must be filled; None where nobody knows."""
    contract = known.get(name)
    if contract is not None:
        return contract.open, contract.required_open
    try:
        schema = around.tools.get(name).input_schema
    except ToolUnknown:
        return None
    return list(schema.get("properties", {})), list(schema.get("required", []))
