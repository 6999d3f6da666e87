"""The node type `plan_step` as two releases of a product know it."""

from agent_infra.state import SchemaBroker

V1_8 = {
    "type": "object",
    "required": ["step", "status"],
    "properties": {
        "step": {"type": "string"},
        "status": {"enum": ["todo", "done"]},
        "result": {"type": "string"},
    },
}
V2_1 = {
    "type": "object",
    "required": ["step", "status", "confidence_score"],
    "properties": V1_8["properties"] | {"confidence_score": {"type": "number", "minimum": 0, "maximum": 1}},
}


def declare_versions(schemas: SchemaBroker) -> None:
    """Both versions. 2.1 promises nothing to 1.8, as it requires what 1.8 doesn't write."""
    schemas.register("plan_step", V1_8, tag="1.8")
    schemas.register("plan_step", V2_1, compatibility="NONE", tag="2.1")


def declare_migrations(schemas: SchemaBroker) -> None:
    """The ways between them, as data: the home keeps them."""
    assumed = "${data.status == 'done' ? 0.9 : 0.5}"
    schemas.migrate("plan_step", "1.8", "2.1", {"default": {"confidence_score": assumed}})
    schemas.migrate("plan_step", "2.1", "1.8", {"drop": ["confidence_score"]})
