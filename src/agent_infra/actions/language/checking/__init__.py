"""What one document can't tell by itself: whether what it reads and names is there.

Read documents come in; problems (certain mistakes) and warnings (likely ones) are noted at their places.

schemas     declared schemas: the protocol, and what stands at a path of one
references  paths that conditions and values read, against node types, tools' schemas and each other
names       other actions that a document names
"""

from agent_infra.actions.language.checking.names import check_names
from agent_infra.actions.language.checking.references import check_references
from agent_infra.actions.language.checking.schemas import NodeSchemas, NoSchemas, PlainSchemas

__all__ = ["NoSchemas", "NodeSchemas", "PlainSchemas", "check_names", "check_references"]
