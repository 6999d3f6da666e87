"""Tools that leak their secret in every way that they can; worker processes import this module."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any
from urllib.parse import quote

from agent_infra import CallContext


def _key(context: CallContext) -> str:
    return context.settings["api_key"]


def say_all(about: str, context: CallContext) -> dict[str, Any]:
    """Give the secret back in every form, and print it."""
    key = _key(context)
    print(f"out {key} {about}")
    print(f"err Authorization: Bearer {key}", file=sys.stderr)
    basic = base64.b64encode(f"用户:{key}".encode()).decode()
    return {
        "plain": key,
        "inside": f"https://api.example/?appid={key}&q=北京",
        "url": f"https://api.example/?appid={quote(key, safe='')}",
        "basic": f"Authorization: Basic {basic}",
        "json": json.dumps({"key": key}),
        "repr": repr([key]),
        "bytes": str(key.encode()),
        key: [key, {"nested": [f"<{key}>"]}],
        "told": about,
        "length": len(key),
    }


def fail_with_it(about: str, context: CallContext) -> None:
    """Raise an error that quotes the secret."""
    key = _key(context)
    print(key, file=sys.stderr)
    raise RuntimeError(f"401 for key {key!r}, about {about}, encoded {base64.urlsafe_b64encode(key.encode()).decode()}")


def chat_too_much(about: str, context: CallContext) -> int:
    """Print so much that the beginning is cut off, perhaps in the middle of the secret."""
    key = _key(context)
    sys.stderr.write(f"{about}{key}" * 3000)
    return len(key)


def end_in_the_middle(about: str, context: CallContext) -> int:
    """Print the secret, and behind it just so much that the recorded tail begins in its middle."""
    kept = 16 * 1024
    behind = kept - len(_key(context).encode()) + int(about)
    sys.stderr.write(_key(context) + "." * behind)
    return behind


async def wait_for_ever(about: str, context: CallContext) -> None:
    """Report the secret as progress, and hang."""
    import asyncio

    context.progress(f"using {_key(context)} for {about}")
    await asyncio.sleep(60)


def die(about: str, context: CallContext) -> None:
    """Write the secret to standard error and end the process."""
    import os

    os.write(2, f"fatal: {_key(context)} {about}\n".encode())
    os._exit(3)


def settings_seen(about: str, context: CallContext) -> dict[str, Any]:
    """What the tool was given, in a form that is not hidden, and whether its environment holds secrets."""
    import os

    return {
        "reversed": _key(context)[::-1],
        "unit": context.settings["unit"],
        "environment": sorted(name for name in os.environ if name.startswith("AGENT_INFRA_SECRET_")),
    }
