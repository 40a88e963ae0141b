"""A node that joins, as callers see it: once it is connected, it stays so."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx2

from tests.system.stack import Stack, until

PATIENCE_S = 60.0
LOOKS = 50
"""At the nodes, after the first that finds one connected."""


class Watch:
    """What `/v1/nodes` says of the only node, asked again and again for the length of the block."""

    def __init__(self, stack: Stack) -> None:
        self.states: list[str] = []
        self._stack = stack
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        stack = self._stack
        headers = {"Authorization": f"Bearer {stack.key}"}
        with httpx2.Client(
            base_url=stack.facts["http"], headers=headers, timeout=PATIENCE_S, trust_env=False
        ) as http:
            while not self._over.is_set():
                self.states += [node["state"] for node in http.get("/v1/nodes").json()]

    def since_connected(self) -> list[str]:
        return self.states[self.states.index("connected") :] if "connected" in self.states else []


def test_a_node_that_is_seen_connected_stays_so(tmp_path: Path) -> None:
    """It opens one session, with its credential; started again, it needs no join token."""
    stack = Stack(tmp_path)
    try:
        stack.start_control()
        with Watch(stack) as watch:
            stack.start_agent()
            until(lambda: len(watch.since_connected()) > LOOKS, PATIENCE_S, "a node that is connected")
        assert set(watch.since_connected()) == {"connected"}
        assert " is over" not in stack.log("control")
        until(lambda: "connected; devices: " in stack.log("agent"), PATIENCE_S, "what it says then")
        log = stack.log("agent")
        joined, began = log.index("this node joined"), log.index("session 1 begins")
        assert joined < began < log.index("connected; devices: ")
        assert "not connected" not in log

        stack.kill("agent")
        stack.join = ""
        stack.start_agent()
        until(lambda: stack.log("agent").count(" begins") == 2, PATIENCE_S, "its second session")
        assert stack.log("agent").count("this node joined") == 1
    finally:
        stack.stop()
