"""What can be judged only when all rules of a set are known: agenda groups, and the facts that rules insert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent_infra.documents import did_you_mean
from agent_infra.errors import Problem
from agent_infra.rewards.rules.model import MAIN, Binding, Rule


def check_together(rules: Sequence[Rule], groups: Sequence[str]) -> list[Problem]:
    """Every problem of rules that are each well formed."""
    problems = [_at(rule.spot, *_unknown_group(rule, groups)) for rule in rules if rule.group not in groups]
    rank = {group: place for place, group in enumerate(groups)}
    inserted = _inserted(rules)
    for rule in rules:
        if rule.group not in rank:
            continue
        for binding in rule.when:
            if binding.fact == "fact":
                problems += _check_kind(rule, binding, inserted, rank)
        problems += _check_fields(rule, inserted)
    return problems


def _unknown_group(rule: Rule, groups: Sequence[str]) -> tuple[str, str, str]:
    if groups == (MAIN,):
        return (
            "UnknownGroup",
            f"no agenda groups are declared, and this rule is in `{rule.group}`",
            "add groups: [facts, main]",
        )
    message = f"rule `{rule.id}` is in the agenda group `{rule.group}`, which is not declared"
    return "UnknownGroup", message, did_you_mean(rule.group, list(groups))


def _inserted(rules: Iterable[Rule]) -> dict[str, list[tuple[Rule, frozenset[str]]]]:
    """By kind: the rules that insert such facts, and the fields that they give them."""
    found: dict[str, list[tuple[Rule, frozenset[str]]]] = {}
    for rule in rules:
        for effect in rule.then:
            if effect.kind == "insert":
                found.setdefault(effect.text, []).append((rule, frozenset(effect.inserted) | {"kind"}))
    return found


def _check_kind(
    rule: Rule,
    binding: Binding,
    inserted: Mapping[str, list[tuple[Rule, frozenset[str]]]],
    rank: Mapping[str, int],
) -> list[Problem]:
    kind = binding.kind or ""
    if kind not in inserted:
        hint = did_you_mean(kind, sorted(inserted)) if inserted else f"add then: {{insert: {{kind: {kind}, …}}}}"
        return [_at(binding.spot, "UnknownKind", f"no rule inserts a fact of the kind `{kind}`", hint)]
    late = [each.id for each, _ in inserted[kind] if rank.get(each.group, 0) >= rank[rule.group]]
    if not late:
        return []
    message = f"`{kind}` is inserted by rule `{late[0]}`, whose group is not before this rule's: it can't be seen here"
    hint = f"put this rule into a group behind; they are judged in this order: {', '.join(rank)}"
    return [_at(binding.spot, "InsertedTooLate", message, hint)]


def _check_fields(rule: Rule, inserted: Mapping[str, list[tuple[Rule, frozenset[str]]]]) -> list[Problem]:
    """Fields of inserted facts that no rule gives them."""
    kinds = {each.name: each for each in rule.when if each.fact == "fact" and each.kind in inserted}
    problems: list[Problem] = []
    for expression in rule.expressions:
        for read in expression.reads:
            binding = kinds.get(read[0])
            if binding is None or len(read) < 2:
                continue
            known = sorted({name for _, fields in inserted[binding.kind or ""] for name in fields})
            if read[1] not in known:
                message = f"no rule gives a `{binding.kind}` the field `{read[1]}`"
                problems.append(_at(binding.spot, "UnknownField", message, did_you_mean(read[1], known)))
    return list(dict.fromkeys(problems))


def _at(spot: Problem | None, code: str, message: str, hint: str | None) -> Problem:
    return replace(spot or Problem(code, message), code=code, message=message, hint=hint)
