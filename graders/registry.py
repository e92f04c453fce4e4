"""All units, found by looking: a package in `graders/` that has a `unit` module is a unit."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from importlib.util import find_spec

import graders
from graders.engine.rules import Step, Unit


@lru_cache(maxsize=1)
def units() -> tuple[Unit, ...]:
    """Every unit, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(graders.__path__) if module.ispkg)
    found = [f"graders.{name}.unit" for name in names]
    return tuple(importlib.import_module(name).UNIT for name in found if find_spec(name) is not None)


def unit(name: str) -> Unit:
    """The unit called `name`. Raises KeyError with a sentence for the user."""
    for candidate in units():
        if candidate.name == name:
            return candidate
    raise KeyError(f"no unit is called {name}; there is {', '.join(unit.name for unit in units())}")


def find_step(name: str) -> tuple[Unit, Step]:
    """The step called `name` with its unit. Raises KeyError with a sentence for the user."""
    import difflib

    every = {step.name: (unit, step) for unit in units() for step in unit.steps}
    if name in every:
        return every[name]
    close = difflib.get_close_matches(str(name), every, n=1)
    meant = f"did you mean {close[0]}?" if close else f"the steps are {', '.join(every)}"
    raise KeyError(f"no step is called {name}; {meant}")
