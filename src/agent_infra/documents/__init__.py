"""YAML as people mean it: YAML 1.2 core rules, positions kept, every problem reported at once.

In: a text or file (`parse_documents`, `read_documents`). Out: a `Document` each, its data JSON, its `problem()` aimed
at the place of any part of it; or DocumentErrors with all that is wrong. `Fields` reads typed values out of one.

The scalars `no`, `on`, `010`, `12:30:00` stay what they look like (https://yaml.org/spec/1.2.2/#103-core-schema).
What makes one text mean two things is refused: duplicate keys, aliases, tags, keys that aren't text. Two traps of flow
style are named: an unquoted `${…}` inside `{}` or `[]`, and an unquoted comma that silently begins a second key.

    reader.py     from YAML to documents        document.py   data with positions
    fields.py     typed values out of one
"""

from agent_infra.documents.document import Document, LayeredDocument, Position
from agent_infra.documents.fields import Fields, did_you_mean, seconds_of
from agent_infra.documents.reader import parse_documents, read_documents, read_text, survey_documents

__all__ = [
    "Document",
    "Fields",
    "LayeredDocument",
    "Position",
    "did_you_mean",
    "parse_documents",
    "read_documents",
    "read_text",
    "seconds_of",
    "survey_documents",
]
