"""The three lists of what to install agree: pyproject.toml (ranges), requirements.lock (pins), environment.yml."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from itertools import product

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from starts import ROOT

from lab import bootstrap

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
CONDA = (ROOT / "environment.yml").read_text(encoding="utf-8").splitlines()
ASKED_FOR = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]]
NEED_NOTHING = {"appnope", "overrides"}  # needed on some systems and Pythons only, so not always here to be asked
MACHINES = [
    {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
        "python_full_version": f"{python}.2",
        "python_version": python,
        "sys_platform": system,
    }
    for python, (system, machine) in product(
        ("3.11", "3.12", "3.13"), (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    )
]


def pins(machine: dict[str, str]) -> dict[str, str]:
    """Name and version of everything that the lock installs on a machine."""
    found: dict[str, str] = {}
    for line in LOCK:
        if line.startswith(("#", " ")):
            continue
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(machine):
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice for {machine}"
            found[name] = str(requirement.specifier).removeprefix("==")
    return found


def machine_name(machine: dict[str, str]) -> str:
    return f"{machine['sys_platform']}-{machine['platform_machine']}-{machine['python_version']}"


def test_the_lock_holds_pins_and_nothing_else() -> None:
    """No host, no path, no option: whose registry it is, is the user's own setting."""
    pin = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; [^@:/\\]+)?")
    reason = re.compile(r" +#[^@:/\\]*")
    assert all(line.startswith("# ") and "://" not in line for line in LOCK[:2])
    assert [line for line in LOCK[2:] if not (pin.fullmatch(line) or reason.fullmatch(line))] == []


@pytest.mark.parametrize("machine", MACHINES, ids=machine_name)
def test_every_range_of_the_project_is_met_by_its_pin(machine: dict[str, str]) -> None:
    pinned = pins(machine)
    unmet = [str(asked) for asked in ASKED_FOR if pinned.get(canonicalize_name(asked.name)) not in asked.specifier]
    assert unmet == []


@pytest.mark.parametrize("machine", MACHINES, ids=machine_name)
def test_the_lock_is_complete_and_has_nothing_that_nobody_needs(machine: dict[str, str]) -> None:
    """pip installs it with --no-deps, so what a package needs on a machine has to be in it for that machine.

    What a package needs is read from the one that is installed here.
    """
    here, pinned, needed, todo = pins({}), pins(machine), set(), list(ASKED_FOR)
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        assert pinned.get(name, "nothing") in SpecifierSet(str(asked.specifier), prereleases=True), f"{asked}: {name}"
        if (name, *sorted(asked.extras)) in needed:
            continue
        needed.add((name, *sorted(asked.extras)))
        if name not in here:
            assert name in NEED_NOTHING
            continue
        for text in distribution(name).requires or []:
            further = Requirement(text)
            if any(
                further.marker is None or further.marker.evaluate({**machine, "extra": extra})
                for extra in ("", *asked.extras)
            ):
                todo.append(further)
    assert set(pinned) == {name for name, *_ in needed}


def test_this_environment_is_the_pinned_one() -> None:
    """Or else the suite says nothing about what learners get."""
    here = pins({})
    different = {name: distribution(name).version for name in here if distribution(name).version != here[name]}
    assert different == {}


def test_conda_brings_python_and_pip_and_everything_else_comes_from_the_lock() -> None:
    items = [line.strip().removeprefix("- ") for line in CONDA if line.strip().startswith("- ")]
    assert items == ["conda-forge", "python>=3.11,<3.14", "pip", "pip:", "-r requirements.lock", "-e ."]


def test_everything_agrees_on_the_versions_of_python() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert (bootstrap.OLDEST, bootstrap.NEWEST_TESTED) == ((3, 11), (3, 13))
    assert "--python-version 3.11" in LOCK[1]
