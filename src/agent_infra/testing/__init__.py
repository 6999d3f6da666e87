"""What anyone who extends the library tests with: conformance suites, a reference model, data strategies.

    stores       what every Store must keep: `STORE_PROMISES`, each with a `check`, and `check_store` for all at once
    reference    GraphModel, a slow and obvious state graph of plain dicts, to compare a real one with
    strategies   Hypothesis strategies: JSON values, values that are not JSON, programs of steps (needs hypothesis)

In: a function that opens the thing under test. Out: nothing, or an AssertionError that names the promise and what broke it.
"""

from agent_infra.testing.reference import GraphModel, ModelNode, ModelVersion
from agent_infra.testing.stores import (
    OPTIONAL_STORE_CAPABILITIES,
    STORE_PROMISES,
    StoreFinding,
    StoreOpener,
    StorePromise,
    check_store,
    store_capabilities,
)

__all__ = [
    "OPTIONAL_STORE_CAPABILITIES",
    "STORE_PROMISES",
    "GraphModel",
    "ModelNode",
    "ModelVersion",
    "StoreFinding",
    "StoreOpener",
    "StorePromise",
    "check_store",
    "store_capabilities",
]
