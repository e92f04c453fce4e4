"""A real kernel for the tests of what notebooks call: it runs one cell at a time and keeps what came out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]
TRIES = 3
DEADLINE = 60.0  # seconds for one cell


@dataclass
class Ran:
    """What one cell put out."""

    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: str | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.stderr and self.error is None

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


class Kernel:
    """An ipykernel process; `close` ends it."""

    def __init__(self) -> None:
        for attempt in range(TRIES):
            try:
                self._start()
                return
            except RuntimeError:  # it died: somebody has taken one of its ports between Jupyter's choice and its start
                self.close()
                if attempt == TRIES - 1:
                    raise

    def _start(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.manager.start_kernel(env={**os.environ, "PYTHONPATH": path, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def run(self, code: str) -> Ran:
        ran = Ran()
        reply = self.client.execute_interactive(
            code, timeout=DEADLINE, output_hook=lambda message: self._note(ran, message), allow_stdin=False
        )
        assert reply["header"]["msg_type"] == "execute_reply"
        return ran

    def _note(self, ran: Ran, message: dict[str, Any]) -> None:
        content = message["content"]
        match message["header"]["msg_type"]:
            case "stream":
                setattr(ran, content["name"], getattr(ran, content["name"]) + content["text"])
            case "execute_result":
                ran.value = content["data"]["text/plain"]
            case "display_data":
                ran.shown.append(content["data"])
            case "error":
                ran.error = f"{content['ename']}: {content['evalue']}"

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
