"""The action language: YAML documents come in, compiled contracts leave, or every problem with its place.

compiling         some documents as contracts, with all that is wrong
reader            one document; parameter_reader: its `params:`; versions: which versions of a tool it asks for
templates         `template:` and `use:`
checking/         what documents read and name, against declared schemas and each other
contract          what a document means, compiled; its hash is of the meaning
parameters        given and open ones; domains: what an open one may be chosen from
conditions        judging conditions, and telling why one doesn't hold
program           a contract as bytes, and back; cache: programs kept in a folder
scaffold          tools without a document: implied contracts, documents to begin with
"""

from agent_infra.actions.language.cache import Kept, ProgramCache, cache_folder
from agent_infra.actions.language.checking import NodeSchemas, NoSchemas, PlainSchemas
from agent_infra.actions.language.compiling import (
    Compiled,
    Surroundings,
    compile_actions,
    compile_contracts,
    log_warning,
)
from agent_infra.actions.language.conditions import condition_text, judged, why_not
from agent_infra.actions.language.contract import (
    Compensation,
    ConfidenceRule,
    Contract,
    ResultNode,
    Retries,
    Timeout,
    reads_params,
)
from agent_infra.actions.language.domains import schema_problems
from agent_infra.actions.language.parameters import Given, Open
from agent_infra.actions.language.program import read_program, write_program
from agent_infra.actions.language.scaffold import implied_contract, scaffold

__all__ = [
    "Compensation",
    "Compiled",
    "ConfidenceRule",
    "Contract",
    "Given",
    "Kept",
    "NoSchemas",
    "NodeSchemas",
    "Open",
    "PlainSchemas",
    "ProgramCache",
    "ResultNode",
    "Retries",
    "Surroundings",
    "Timeout",
    "cache_folder",
    "compile_actions",
    "compile_contracts",
    "condition_text",
    "implied_contract",
    "judged",
    "log_warning",
    "read_program",
    "reads_params",
    "scaffold",
    "schema_problems",
    "why_not",
    "write_program",
]
