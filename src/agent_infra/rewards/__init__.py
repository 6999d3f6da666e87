"""Layer 3, the reward weaver: evidence in, explained and versioned rewards out.

Signals come in by `weaver.ingest` or from a source (`sources/`), pass the door, and are kept in the ledger session of
the event's session. `weaver.weave` lets the rule set in force conclude from them; the conclusion is one record, kept in
the ledger, that leaves as a `WovenReward` and is what is shown, reported and trained on.

    sources/   where signals come from
    signals    Signal, Receipt, and the door; intake: from there to the ledger
    joining    which event a signal is about; letters: those that wait for one, and those that found none
    rules/     the weaving policy: rule files in, a RuleSet out
    facts      what rules may read beside the signals
    weaving/   which rules fire, the value whose rows add up to it, the record, and WovenReward, its face
    report/    the explanation
    ledger     signals and rewards in the graph
    history    versions, weaving anew, uses of what is no longer the newest, verification
    arrivals   waking who waits
    weaver     RewardWeaver
"""

from agent_infra.rewards.history import Checked, Explained, RewardChange
from agent_infra.rewards.letters import DeadLetter, WaitingSignal
from agent_infra.rewards.report.content import micro_text
from agent_infra.rewards.rules.compiling import USER_RULES, compile_rule_text, compile_rules, trial_files
from agent_infra.rewards.rules.differences import RuleDifference, rule_differences
from agent_infra.rewards.rules.model import Rule, RuleSet, SourceTerms
from agent_infra.rewards.rules.watching import RuleWatcher
from agent_infra.rewards.signals import Event, Receipt, Signal
from agent_infra.rewards.sources import (
    FunctionSource,
    MetricSource,
    Places,
    PollingSource,
    Sink,
    Source,
    SourceHealth,
    WebhookSource,
    sources_from_config,
)
from agent_infra.rewards.weaver import Rewardable, RewardWeaver, WeaverParts
from agent_infra.rewards.weaving.contributions import Conflict, Contribution, Reason
from agent_infra.rewards.weaving.woven import WovenReward

__all__ = [
    "USER_RULES",
    "Checked",
    "Conflict",
    "Contribution",
    "DeadLetter",
    "Event",
    "Explained",
    "FunctionSource",
    "MetricSource",
    "Places",
    "PollingSource",
    "Reason",
    "Receipt",
    "RewardChange",
    "RewardWeaver",
    "Rewardable",
    "Rule",
    "RuleDifference",
    "RuleSet",
    "RuleWatcher",
    "Signal",
    "Sink",
    "Source",
    "SourceHealth",
    "SourceTerms",
    "WaitingSignal",
    "WeaverParts",
    "WebhookSource",
    "WovenReward",
    "compile_rule_text",
    "compile_rules",
    "micro_text",
    "rule_differences",
    "sources_from_config",
    "trial_files",
]
