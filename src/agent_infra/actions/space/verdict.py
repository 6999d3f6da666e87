"""The verdict on an action spec that a policy has written: valid, invalid with reasons that it can read, or no call.

Nothing is mended on the way: a spec that isn't valid as it stands is never executed with other arguments.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.actions.language.conditions import why_not
from agent_infra.actions.language.contract import Contract, reads_params
from agent_infra.actions.language.parameters import schema_problems
from agent_infra.actions.space.legality import Legality
from agent_infra.content import JsonValue, json_bytes
from agent_infra.errors import NotJson

SPEC_KEYS: Final = ("tool", "params", "confidence")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a spec may be executed.

    kind       "valid", "invalid", or "not_a_call": it wasn't meant as one, such as a sentence
    problems   all that is wrong with it
    needs      what would make it go on where nothing but its confidence is too low: "ask_human", or a fallback action
    """

    ok: bool
    kind: Literal["valid", "invalid", "not_a_call"]
    problems: tuple[str, ...] = ()
    needs: str | None = None

    @property
    def reason(self) -> str | None:
        """The problems in one line, for the policy to read; None if there are none."""
        return "; ".join(self.problems) or None


Checked: TypeAlias = Callable[[str, Mapping[str, JsonValue]], "list[str]"]
"""From an action's name and the complete parameters to what the user's own checks find wrong."""


def judge(spec: Any, standings: Mapping[str, Legality], *, confidence: bool, checked: Checked | None = None) -> Verdict:
    """The verdict on a spec, given the contracts by name as they stand at one version."""
    fields = _fields(spec)
    if isinstance(fields, Verdict):
        return fields
    problems = [
        f"there is no key `{key}` in a spec; it has {', '.join(SPEC_KEYS)}" for key in fields if key not in SPEC_KEYS
    ]
    standing = _standing(fields, standings, problems)
    params = fields.get("params", {})
    if not isinstance(params, dict):
        problems.append(f"`params` must be an object, not {params!r}")
    elif standing is not None:
        problems += standing.reasons
        problems += _params_problems(standing, cast("dict[str, JsonValue]", params), checked)
    needs = None
    sure = fields.get("confidence")
    rule = standing.contract.confidence if standing and standing.contract.open and confidence else None
    if sure is not None and (isinstance(sure, bool) or not isinstance(sure, int | float) or not 0 <= sure <= 1):
        problems.append(f"`confidence` must be a number from 0 to 1, not {sure!r}")
    elif rule is not None and (sure is None or sure < rule.min):
        needs = None if problems else rule.needs
        said = "is missing" if sure is None else f"{sure} is under the bar"
        problems.append(f"the confidence {said}; at least {rule.min:g} is asked for")
    return _invalid(problems, needs) if problems else Verdict(True, "valid")


def _invalid(problems: list[str], needs: str | None = None) -> Verdict:
    return Verdict(False, "invalid", tuple(dict.fromkeys(problems)), needs)


def _fields(spec: Any) -> dict[str, JsonValue] | Verdict:
    """A spec's fields; or the verdict on what has none."""
    if isinstance(spec, str):
        text = spec
        try:
            spec = read_json(text)
        except (ValueError, RecursionError) as error:
            meant = text.lstrip().startswith("{")
            return _invalid([f"it is no JSON: {error}"]) if meant else Verdict(False, "not_a_call", ("it is a text",))
    if not isinstance(spec, Mapping):
        return Verdict(False, "not_a_call", (f"it is a {type(spec).__name__}, not an object",))
    fields = dict(cast("Mapping[str, JsonValue]", spec))
    try:
        json_bytes(fields, where="the spec")
    except NotJson as error:
        return _invalid([f"{error.facts['path']}: {error.why}"])
    return fields


def read_json(text: str) -> Any:
    """A JSON text that a policy wrote. Raises ValueError, also for a key that stands twice, or RecursionError."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return fields


def _standing(
    fields: Mapping[str, JsonValue], standings: Mapping[str, Legality], problems: list[str]
) -> Legality | None:
    """The contract that a spec names: by its own name, or by its tool's where no other contract uses that."""
    name = fields.get("tool")
    if not isinstance(name, str):
        problems.append("a spec needs `tool`, the name of an action")
        return None
    if name in standings:
        return standings[name]
    of_tool = [standing for standing in standings.values() if standing.contract.tool == name]
    if len(of_tool) == 1:
        return of_tool[0]
    if of_tool:
        names = ", ".join(standing.contract.name for standing in of_tool)
        problems.append(f"several actions use the tool {name!r}: name one of {names}")
    else:
        near = difflib.get_close_matches(name, standings, n=1)
        problems.append(f"there is no action or tool {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return None


def _params_problems(standing: Legality, params: Mapping[str, JsonValue], checked: Checked | None) -> list[str]:
    """What is wrong with a spec's parameters: names, values, domains, the tool's own schema, preconditions, and what the
    user's own checks say of parameters that are well formed.
    """
    contract = standing.contract
    complete, problems = contract.resolve(standing.bindings, params)
    if not problems:
        problems = _whole(contract, complete) or (checked(contract.name, complete) if checked is not None else [])
    wrong = {problem[1:].partition(":")[0].partition("/")[0] for problem in problems}
    for condition in standing.judged:
        if not reads_params(condition.reads) & wrong:
            reason = why_not(condition, {**standing.bindings, "params": complete})
            problems += [] if reason is None else [reason]
    return problems


def _whole(contract: Contract, params: dict[str, Any]) -> list[str]:
    return schema_problems(contract.input_schema, params)
