"""What a learner touches: the `%%step` magic, `check` and the other names of a notebook, and the launcher.

Importing this package needs the standard library only, because the launcher runs before anything is installed; the
notebook's names are brought in when they are first asked for. It keeps to the syntax of Python 3.6: see `lab.__main__`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.notebook import (
        auto_check,
        catch_up,
        check,
        compare,
        crash_map,
        crash_studio,
        hint,
        progress,
        reset,
        solution,
        watch_store,
    )

__all__ = [
    "auto_check",
    "catch_up",
    "check",
    "compare",
    "crash_map",
    "crash_studio",
    "hint",
    "load_ipython_extension",
    "progress",
    "reset",
    "solution",
    "watch_store",
]

NOTEBOOK_NAMES = frozenset(__all__) - {"load_ipython_extension"}


def __getattr__(name: str) -> Any:
    if name in NOTEBOOK_NAMES:
        from lab import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lab`: registers `%%step` and brings `check` and its like into the notebook."""
    from lab import notebook

    notebook.register(shell)
