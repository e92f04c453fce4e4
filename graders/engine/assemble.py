"""A unit from the modules of its package: each module with a `STEP` is a step, the notebooks' numbers give the
order.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from pathlib import Path
from typing import Any

from graders.engine.processes import ROOT
from graders.engine.rules import Step, Unit
from graders.engine.story import Lanes


def assemble(package: str, file_name: str, lanes: Lanes, preload: tuple[str, ...] = ()) -> Unit:
    """The unit in `package` (`graders.<name>`). Raises ValueError where modules and notebooks do not fit together."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    modules = [importlib.import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules([str(folder)])]
    steps: dict[str, Step] = {module.STEP.name: module.STEP for module in modules if hasattr(module, "STEP")}
    name = package.rpartition(".")[2]
    order = [path.stem.partition("_")[2] for path in sorted((ROOT / "solutions" / name).glob("[0-9][0-9]_*.ipynb"))]
    if set(order) != set(steps):
        raise ValueError(f"solutions/{name} has notebooks for {order}, {package} judges {sorted(steps)}")
    _add_texts(steps, folder / "hints.toml")
    in_order = tuple(steps[step] for step in order)
    return Unit(name, file_name, in_order, lanes, ROOT / "solutions" / file_name, preload)


def _add_texts(steps: dict[str, Step], path: Path) -> None:
    texts: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, step in steps.items():
        step.title = texts[name]["title"]
        step.hints = tuple(texts[name]["hints"])
