"""What to write instead of what the reader refuses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

A_RULE: Final = 'write a rule as in: rule "…" when $r: Reward(value < 0) then insert(new WovenReward(…)); end'
A_CONSEQUENCE: Final = (
    'insert(new WovenReward(value, "id")); and insert(new Fact(…)); are all that can stand behind `then`'
)
_FACTS: Final = "insert a fact in one agenda group, and ask for it in a later one"
_NO_CODE: Final = "rules run no code: say it by fields, operators and numbers"
_ALWAYS_ON: Final = "a rule is in force while it stands in the file: take it out instead"
INSTEAD: Final[Mapping[str, str]] = {
    "and": "patterns follow each other, and all must hold; within a pattern write &&",
    "or": "make a rule of each choice; within a pattern write ||",
    "eval": "put the condition into a pattern, as in Reward(value < 0)",
    "from": "patterns ask for facts only: Reward, Session, Action, Condition, Evidence, PromptRule, declared types",
    "accumulate": "rules don't count or add up facts; `add` of a YAML rule sums over its matches",
    "collect": "rules don't gather facts into lists; ask for one with exists, for none with not",
    "forall": "say that there is none that differs: not Reward(…)",
    "over": "a source's `lateness` and the set's `window` say which signals count",
    "modify": f"facts don't change: {_FACTS}",
    "update": f"facts don't change: {_FACTS}",
    "delete": f"facts don't go away: {_FACTS}",
    "retract": f"facts don't go away: {_FACTS}",
    "insertLogical": "write insert(new Kind(…)); what a rule inserts is gone with the event",
    "function": _NO_CODE,
    "query": "questions about rewards are asked by `agent-infra reward report`",
    "global": "a rule reads facts only",
    "unit": "rules have no units; name groups by agenda-group",
    "extends": "repeat the conditions of the other rule",
    "enabled": _ALWAYS_ON,
    "date-effective": _ALWAYS_ON,
    "date-expires": _ALWAYS_ON,
    "timer": "rules are judged when a reward is woven",
    "duration": "rules are judged when a reward is woven",
    "activation-group": "all rules of a group fire; of several overrides the one with the highest salience counts",
    "ruleflow-group": 'write agenda-group "…"; groups are judged in the order that the YAML file declares',
    "auto-focus": "groups are judged in the order that the YAML file declares; leave it out",
    "soundslike": "write matches with a regular expression",
    "str": "write matches with a regular expression",
}
"""Words of Drools that are not read, and what to write for them."""
_HALF: Final[Mapping[str, str]] = {"“": '"', "”": '"', "‘": "'", "’": "'", "。": "."}
_WORD = re.compile(r"[A-Za-z][A-Za-z-]*")


def advice(line: str, column: int, consequence: bool) -> str:
    """A hint for what can't stand at a place of a line. `consequence`: it stands behind `then`."""
    here = line[column - 1 :]
    if here[:1] in _HALF or (here[:1] and unicodedata.normalize("NFKC", here[0]) != here[0]):
        half = _HALF.get(here[0]) or unicodedata.normalize("NFKC", here[0])
        return f"`{here[0]}` is a full-width character: write `{half}`"
    if here.startswith("/*"):
        return "the comment doesn't end: close it with */"
    if here[:1] in ('"', "'"):
        return "the text doesn't end: close it on the same line"
    if here[:1] in ("<", ">", "=", "!") and line[: column - 1].rstrip().endswith(("&&", "||", "(")):
        return "name the field at each comparison, as in value > 0 && value < 1"
    for word in (_WORD.match(here), *list(_WORD.finditer(line[: column - 1]))[-1:]):
        if word is not None and word[0] in INSTEAD:
            return f"`{word[0]}` is not read: {INSTEAD[word[0]]}"
    return A_CONSEQUENCE if consequence else A_RULE
