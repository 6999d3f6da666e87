"""An MCP server without any library, for servers that misbehave: `mcp_stub.py MODE LOG`.

It logs every line that it is sent. Modes: exit (dies in a call), noise (prints before it answers), flood (prints without
end), silent (never answers a call), progress (reports each 0.1 s, 1 s long), deaf (also answers no ping), lists (its list
of tools changes with each call), mute (answers nothing at all), shut (closes its output in a call), forks (a child holds
its output open, and it dies).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

MODE, LOG = sys.argv[1], sys.argv[2]
ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
tools: list[dict[str, Any]] = [ECHO]


def send(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n").encode())


def answer(id: Any, text: str) -> None:
    send({"id": id, "result": {"content": [{"type": "text", "text": text}]}})


def report(id: Any, token: Any) -> None:
    for turn in range(10):
        time.sleep(0.1)
        progress = {"progressToken": token, "progress": turn + 1, "total": 10}
        send({"method": "notifications/progress", "params": progress})
    answer(id, "done")


def call(message: dict[str, Any]) -> None:
    id, params = message["id"], message["params"]
    if MODE == "exit":
        print("going down", file=sys.stderr, flush=True)
        os._exit(3)
    elif MODE == "forks":
        subprocess.Popen(["sleep", "600"])
        os._exit(3)
    elif MODE == "shut":
        os.close(1)
        time.sleep(600)
    elif MODE == "flood":
        for number in range(100_000):
            os.write(1, b"noise %d\n" % number)
    elif MODE == "progress":
        threading.Thread(target=report, args=(id, params["_meta"]["progressToken"]), daemon=True).start()
    elif MODE == "lists":
        tools.append(ECHO | {"name": f"echo{len(tools)}"})
        del tools[:-2]
        send({"method": "notifications/tools/list_changed"})
        answer(id, "listed")
    elif MODE not in ("silent", "deaf"):
        answer(id, params["arguments"].get("text", ""))


def main() -> None:
    if MODE == "noise":
        print("hello 你好", flush=True)
    for line in sys.stdin:
        with open(LOG, "a", encoding="utf-8") as log:
            log.write(line)
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize" and MODE != "mute":
            info = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "stub", "version": "1"}}
            send({"id": message["id"], "result": {**info, "capabilities": {"tools": {"listChanged": True}}}})
        elif method == "tools/list":
            send({"id": message["id"], "result": {"tools": tools}})
        elif method == "ping" and MODE != "deaf":
            send({"id": message["id"], "result": {}})
        elif method == "tools/call":
            call(message)


main()
