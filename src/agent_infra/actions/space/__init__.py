"""The action space: contracts and a graph's version come in; what is legal, why the rest is not, and verdicts on specs leave.

space     ActionSpace: the schema for a policy, the list where finite, its hash
legality  one contract at one moment: legal or why not, and what may be chosen
validators  checks of a user's own
verdict   whether a spec that a policy has written may be executed
"""

from agent_infra.actions.space.space import ActionSpace, action_space
from agent_infra.actions.space.validators import Check, Validators
from agent_infra.actions.space.verdict import SPEC_KEYS, Verdict

__all__ = ["SPEC_KEYS", "ActionSpace", "Check", "Validators", "Verdict", "action_space"]
