"""The conformance suite's functions as a command in an image: `suite_command.py TOOLS FUNCTION`.

The image has Python and nothing else: what the functions' module wants of the library is a stand-in here, so this is
also how a tool in a container can be written without the library.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import json
import os
import sys
import types
from typing import Any, get_type_hints


class CallContext:
    """What a function may know of its call, from the environment."""

    idempotency_key = os.environ["AGENT_INFRA_IDEMPOTENCY_KEY"]
    deadline = float(os.environ["AGENT_INFRA_SECONDS"]) if "AGENT_INFRA_SECONDS" in os.environ else None

    def progress(self, update: str | float) -> None:
        """Report a line."""
        print(f"::progress {update}", flush=True)


def main(path: str, name: str) -> None:
    stand_in = types.ModuleType("agent_infra.actions")
    stand_in.CallContext = CallContext  # type: ignore[attr-defined]
    sys.modules |= {"agent_infra": types.ModuleType("agent_infra"), "agent_infra.actions": stand_in}
    spec = importlib.util.spec_from_file_location("tools", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools"] = module
    spec.loader.exec_module(module)
    function = getattr(module, name)
    params: dict[str, Any] = json.load(sys.stdin)
    for each, kind in get_type_hints(function).items():
        if kind is CallContext:
            params[each] = CallContext()
        elif each in params and dataclasses.is_dataclass(kind):
            params[each] = kind(**params[each])  # type: ignore[operator]
    value = function(**params)
    value = asyncio.run(value) if inspect.iscoroutine(value) else value
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    print(json.dumps(plain, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
