"""The action language: YAML documents come in, compiled contracts leave, or every problem with its place.

reader            a document as a contract; implied contracts, scaffolds
parameter_reader  its `params:`
contract          what a file means, compiled; its hash is of the meaning
parameters        given and open ones, with the domain that a policy may choose from
conditions        judging conditions, and telling why one doesn't hold
"""

from agent_infra.actions.language.conditions import condition_text, judged, why_not
from agent_infra.actions.language.contract import ConfidenceRule, Contract, ResultNode, Timeout, reads_params
from agent_infra.actions.language.parameters import Given, Open, schema_problems
from agent_infra.actions.language.reader import compile_contracts, implied_contract, scaffold

__all__ = [
    "ConfidenceRule",
    "Contract",
    "Given",
    "Open",
    "ResultNode",
    "Timeout",
    "compile_contracts",
    "condition_text",
    "implied_contract",
    "judged",
    "reads_params",
    "scaffold",
    "schema_problems",
    "why_not",
]
