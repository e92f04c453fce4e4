"""What both widgets are made of: whether anybody can see one, and which views of it are open.

A view says hello when it is drawn and goodbye when it is taken away. Nothing works before the first hello, so that a
notebook that is run without a browser leaves no thread behind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
from IPython.display import display

HERE = Path(__file__).parent
STYLE = HERE / "widgets.css"
VIEW = "application/vnd.jupyter.widget-view+json"


def has_front_end() -> bool:
    """Whether a Jupyter server has started this kernel for somebody. nbclient and nbgrader start theirs without one."""
    return "JPY_SESSION_NAME" in os.environ


def show_text(words: str) -> None:
    """What stands in for a widget where nobody could see it."""
    display({"text/plain": words}, raw=True)  # type: ignore[no-untyped-call]


class LabWidget(anywidget.AnyWidget):
    """A widget that knows its views. What it has to tell goes out in messages, and only while there is a view."""

    _css = STYLE
    words = ""  # what it is, for whoever sees text only

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.views: set[str] = set()
        self.on_msg(lambda _, content, __: self._take(content))

    def _take(self, content: Any) -> None:
        if not isinstance(content, dict):
            return
        view = str(content.get("view"))
        match content.get("kind"):
            case "hello":
                self.views.add(view)
                self.greet(view)
            case "bye":
                self.views.discard(view)
                if not self.views:
                    self.rest()
            case _:
                self.asked(content)

    def greet(self, view: str) -> None:
        """A view is there: begin, and tell it all that there is."""

    def rest(self) -> None:
        """The last view has gone."""

    def asked(self, content: Mapping[str, Any]) -> None:
        """Somebody has pressed something."""

    def close(self) -> None:
        self.views.clear()
        self.rest()
        super().close()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {"text/plain": self.words, VIEW: view}, {}
