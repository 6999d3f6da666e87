"""Layer 3, the reward weaver: evidence in, explained and versioned rewards out.

Signals come in by `weaver.ingest` or from a source (`sources/`), pass the door, and are kept in the ledger session of
the event's session. `weaver.weave` lets the rule set in force conclude from them; the conclusion is one record, kept in
the ledger, that leaves as a `WovenReward` and is what is shown, reported and trained on.

    signals        Signal, Receipt, and the door
    rules          RuleSet: the weaving policy; compile, rule_reader: rule files into one
    matching       which rules fire
    contributions  signals and rules to a value whose rows add up to it
    woven          the record, and WovenReward, its face
    ledger         both in the graph
    arrivals       waking who waits
    weaver         RewardWeaver
    report         the explanation; report_words: its languages
    sources/       where signals come from
"""

from agent_infra.rewards.rules.compiling import compile_rule_text, compile_rules
from agent_infra.rewards.rules.model import Rule, RuleSet, SourceTerms
from agent_infra.rewards.signals import Event, Receipt, Signal
from agent_infra.rewards.sources import (
    FunctionSource,
    MetricSource,
    PollingSource,
    Sink,
    Source,
    SourceHealth,
    sources_from_config,
)
from agent_infra.rewards.weaver import Rewardable, RewardWeaver, WeaverParts
from agent_infra.rewards.weaving.contributions import Conflict, Contribution, Reason
from agent_infra.rewards.weaving.woven import WovenReward

__all__ = [
    "Conflict",
    "Contribution",
    "Event",
    "FunctionSource",
    "MetricSource",
    "PollingSource",
    "Reason",
    "Receipt",
    "RewardWeaver",
    "Rewardable",
    "Rule",
    "RuleSet",
    "Signal",
    "Sink",
    "Source",
    "SourceHealth",
    "SourceTerms",
    "WeaverParts",
    "WovenReward",
    "compile_rule_text",
    "compile_rules",
    "sources_from_config",
]
