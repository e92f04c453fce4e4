"""Importing a learner's program: first in a child process that may die of it, then here.

A program can end its process, loop for ever or take all memory while it is only being imported. In a notebook that
would take the kernel with it, so the child goes first. Run as a script, this file is that child.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

TIME_LIMIT = 5.0  # seconds for one import
MEMORY_LIMIT = 4 << 30  # bytes of address space
MESSAGE_LIMIT = 300  # characters


@dataclass(frozen=True)
class Trouble:
    """Why a program cannot be imported: the line of the file (0: unknown), the reason, and a name that was missing."""

    line: int
    reason: str
    missing: str = ""


def load(program: str, path: Path) -> ModuleType:
    """Run `program` as the module that `path` names, never as `__main__`; a failure leaves the old module."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    code = compile(program, str(path), "exec", dont_inherit=True)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module  # dataclasses and pickle look their module up
    try:
        exec(code, module.__dict__)
    except BaseException:
        _put_back(path.stem, before)
        raise
    return module


def _put_back(name: str, module: ModuleType | None) -> None:
    if module is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = module


def describe(error: BaseException, path: Path) -> Trouble:
    """Where in the learner's file an import failed, and with what."""
    text = error.msg if isinstance(error, SyntaxError) else _words_of(error)
    name = type(error).__name__
    missing = str(error.name) if isinstance(error, NameError) else ""
    return Trouble(_line_of(error, path), _one_line(f"{name}: {text}" if text else name), missing)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the learner's own __str__
        return ""


def _line_of(error: BaseException, path: Path) -> int:
    """The deepest line of the learner's file on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            number = trace.tb_lineno
        trace = trace.tb_next
    return number


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT else line[:MESSAGE_LIMIT] + " …"


def trouble(program: str, path: Path, time_limit: float = TIME_LIMIT) -> Trouble | None:
    """What goes wrong when a child process imports `program` from `path`; None where all is well."""
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as folder:
        report, mark = Path(folder) / "report", Path(folder) / "line"
        mark.write_bytes(bytes(8))
        status = _run_child(program, [str(path), str(report), str(mark)], path.parent, time_limit)
        if report.exists():
            found = json.loads(report.read_text("utf-8"))
            return Trouble(*found) if found else None
        return Trouble(int.from_bytes(mark.read_bytes(), "little"), _ending(status, time_limit))


def _ending(status: int | None, time_limit: float) -> str:
    if status is None:
        return f"still running after {time_limit:g} seconds, so it was stopped. Is there a loop that never ends?"
    if status < 0:
        return f"importing the file ended the process with {signal.Signals(-status).name}"
    return f"importing the file ended the process with exit status {status}"


def _run_child(program: str, arguments: list[str], folder: Path, time_limit: float) -> int | None:
    """Exit status of the child, None where its time was up. Whatever it started ends with it."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
    ) as child:
        try:
            child.communicate(program.encode(), timeout=time_limit)
            return child.returncode
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def main(file: str, report: str, mark: str) -> None:
    """The child: import the program on standard input as `file`, and say how that went in `report`."""
    path, program = Path(file), sys.stdin.buffer.read().decode()
    sys.path[0] = str(path.parent)
    _limit_memory()
    with _line_noted(mark, file):
        try:
            load(program, path)
            found = None
        except BaseException as error:
            found = astuple(describe(error, path))
    part = Path(report + ".part")
    part.write_text(json.dumps(found), "utf-8")
    part.replace(report)
    os._exit(0)  # no thread or exit hook of the program's may hold things up


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def _line_noted(mark: str, file: str) -> Iterator[None]:
    """Keep the line of `file` that runs in a shared page, so that the parent can tell where the process ended."""
    with open(mark, "r+b") as handle, mmap.mmap(handle.fileno(), 8) as page:

        def trace(frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
            code: CodeType = frame.f_code
            if code.co_filename != file:
                return None
            if event == "line":
                page[:] = frame.f_lineno.to_bytes(8, "little")
            return trace

        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
