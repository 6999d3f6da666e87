"""The conformance suite's tools as a command in an image that has nothing but Python: `suite_command.py FUNCTION`."""

import asyncio
import dataclasses
import inspect
import json
import os
import sys
import time
import types

TOOLS = os.path.join(os.path.dirname(__file__), "..", "tools", "executor_tools.py")


class CallContext:
    """What the suite's tools ask of a call."""

    def __init__(self) -> None:
        self.idempotency_key = os.environ["AGENT_INFRA_IDEMPOTENCY_KEY"]
        seconds = os.environ.get("AGENT_INFRA_SECONDS")
        self._ends = None if seconds is None else time.monotonic() + float(seconds)

    @property
    def deadline(self):
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def progress(self, update) -> None:
        print("::progress", update, flush=True)


def main() -> None:
    package, actions = types.ModuleType("agent_infra"), types.ModuleType("agent_infra.actions")
    actions.CallContext = CallContext
    sys.modules |= {"agent_infra": package, "agent_infra.actions": actions}
    tools = types.ModuleType("executor_tools")
    sys.modules["executor_tools"] = tools
    with open(TOOLS, encoding="utf-8") as file:
        exec(compile(file.read(), TOOLS, "exec"), tools.__dict__)
    function = getattr(tools, sys.argv[1])
    params = json.loads(sys.stdin.buffer.read())
    if "spot" in params:
        params["spot"] = tools.Spot(**params["spot"])
    if "context" in inspect.signature(function).parameters:
        params["context"] = CallContext()
    value = function(**params)
    value = asyncio.run(value) if inspect.isawaitable(value) else value
    value = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\n" + json.dumps(value, ensure_ascii=False).encode() + b"\n")


main()
