"""A unit from the modules of its package: each module with a `STEP` is a step, the reference's markers give the order."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from pathlib import Path
from typing import Any

from graders.engine.processes import ROOT
from graders.engine.rules import Step, Unit
from graders.engine.sections import PREAMBLE, split


def assemble(package: str, file_name: str, preload: tuple[str, ...] = ()) -> Unit:
    """The unit in `package` (`graders.<name>`). Raises ValueError where steps and reference do not fit together."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    modules = [importlib.import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules([str(folder)])]
    steps: dict[str, Step] = {module.STEP.name: module.STEP for module in modules if hasattr(module, "STEP")}
    reference_path = ROOT / "solutions" / file_name
    order = [name for name in split(reference_path.read_text("utf-8"), steps, file_name).sections if name != PREAMBLE]
    if set(order) != set(steps):
        raise ValueError(f"{reference_path.name} has the steps {order}, {package} judges {sorted(steps)}")
    _add_texts(steps, folder / "hints.toml")
    return Unit(package.rpartition(".")[2], file_name, tuple(steps[name] for name in order), reference_path, preload)


def _add_texts(steps: dict[str, Step], path: Path) -> None:
    texts: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, step in steps.items():
        step.title = texts[name]["title"]
        step.hints = tuple(texts[name]["hints"])
