"""Probes that any unit can use. They run in the child, beside the learner's module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from graders.engine.child import Session

AS_MAIN = "graders.engine.child:run_as_main"
AS_COMMAND = "graders.engine.probes:run_command"


def public_names(session: Session, client: ModuleType, names: Sequence[str]) -> dict[str, str]:
    """For each name: `callable`, `missing`, or its type's name."""
    found = {}
    for name in names:
        value = getattr(client, name, None)
        found[name] = "callable" if callable(value) else "missing" if value is None else type(value).__name__
    return found


def run_command(session: Session, client: None) -> NoReturn:
    """Become `python client.py …`: a new interpreter, with nothing of the judge's in it but the limits."""
    os.execv(sys.executable, [sys.executable, *sys.argv])
