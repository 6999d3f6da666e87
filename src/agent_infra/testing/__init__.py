"""What anyone who extends the library tests with: conformance suites, a reference model, data strategies.

    stores       tries a Store against `STORE_PROMISES`, which store_promises holds: one by one, or all by `check_store`
    executors    the same for executors: `EXECUTOR_PROMISES`, `check_executor`
    desk         Desk, which takes what a source of signals delivers
    reference    GraphModel, a slow and obvious state graph of plain dicts, to compare a real one with
    strategies   Hypothesis strategies: JSON values, values that are not JSON, programs of steps (needs hypothesis)

In: a function that opens the thing under test. Out: nothing, or an AssertionError that names the promise and what
broke it.
"""

from agent_infra.testing.reference import GraphModel, ModelNode, ModelVersion
from agent_infra.testing.store_promises import (
    OPTIONAL_STORE_CAPABILITIES,
    STORE_PROMISES,
    StoreOpener,
    StorePromise,
)
from agent_infra.testing.stores import StoreFinding, check_store, store_capabilities

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
