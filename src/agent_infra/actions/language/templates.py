"""`template:` and `use:`: what several actions share is written once, and taken over by name.

A document that begins with `template: NAME` is no action. One that says `use: NAME` has all its fields, and its own ones
win; of a mapping (`params`, `resources`, …) key by key. A template may use another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent_infra.actions.language.reader import TEMPLATE_KEYS, readable_name
from agent_infra.documents import Document, Fields, LayeredDocument, did_you_mean
from agent_infra.errors import Problem


def is_template(document: Document) -> bool:
    """Whether a document is a template."""
    return isinstance(document.data, dict) and "template" in document.data


class Templates:
    """The templates that there are, by name; what is wrong with them is in `problems`."""

    def __init__(self, known: Mapping[str, Document]) -> None:
        self.problems: list[Problem] = []
        self.own: dict[str, Document] = {}
        self._known = dict(known)

    def add(self, documents: Iterable[Document]) -> None:
        """Take in the templates of a file or folder, all before one of them is used."""
        for document in documents:
            fields = Fields(document, self.problems)
            fields.mapping(known=TEMPLATE_KEYS)
            name = readable_name(fields, "template")
            if name is None:
                continue
            if name in self.own:
                place = Fields(self.own[name], []).place("template")
                fields.report("DuplicateTemplate", f"the template {name!r} stands at {place} too", "template")
                continue
            self.own[name] = self._known[name] = document
        for document in self.own.values():
            self.over(document, self.problems)

    def over(self, document: Document, problems: list[Problem]) -> Document:
        """A document with all that it takes over from templates; `problems` gets what is wrong with its `use:`."""
        layers, names = [document], [_own_name(document)]
        while isinstance(layers[-1].data, dict) and "use" in layers[-1].data:
            fields = Fields(layers[-1], problems)
            name = fields.text("use")
            found = self._known.get(name) if name is not None else None
            if name is not None and found is None:
                hint = did_you_mean(name, self._known)
                fields.report("TemplateUnknown", f"there is no template {name!r}", "use", hint=hint)
            elif name in names:
                way = " -> ".join([*(each for each in names if each), str(name)])
                fields.report("TemplateCycle", f"templates use each other in a circle: {way}", "use")
                found = None
            if found is None:
                break
            layers.append(found)
            names.append(name)
        if len(layers) == 1:
            return document
        whole = LayeredDocument(layers)
        if isinstance(whole.data, dict):
            whole.data.pop("template", None)  # what a template is called is no field that it hands on
        return whole


def _own_name(document: Document) -> str | None:
    name = document.data.get("template") if isinstance(document.data, dict) else None
    return name if isinstance(name, str) else None
