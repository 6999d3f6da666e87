"""Expressions: conditions in CEL and values that hold `${…}`, compiled once and evaluated on plain JSON data.

In: source text and the names of its variables (`compile_expression`, `compile_template`). Out: the paths that it reads,
so that a caller fetches nothing else; and for some bindings an `Evaluation`: a value, or the reason why there is none.
An expression that doesn't compile raises ExpressionError; `problems_at` makes problems of the document of it.

    compile.py    checking and evaluating        template.py   `${…}` inside texts, lists and objects
    tree.py       CEL's syntax tree              wire.py       the protobuf bytes it is read from
    paths.py      what is read                   rewrite.py    numbers, null and division as they are meant here
    faults.py     compile errors told            evaluation.py values in and out, evaluation errors told
"""

from agent_infra.errors import ExpressionError
from agent_infra.expressions.compile import Expression, compile_expression
from agent_infra.expressions.evaluation import Evaluation
from agent_infra.expressions.faults import faults_of, problems_at
from agent_infra.expressions.paths import Path, spell
from agent_infra.expressions.template import Template, compile_template

__all__ = [
    "Evaluation",
    "Expression",
    "ExpressionError",
    "Path",
    "Template",
    "compile_expression",
    "compile_template",
    "faults_of",
    "problems_at",
    "spell",
]
