"""Makes `.venv` beside pyproject.toml, with everything requirements.lock pins and the project itself, once.

Whether that has been done is written last, in `.venv/recovery-lab.json`, as what it was done for (the pins, the
Python version, the folder). So an installation that was cut off is known by its empty mark and made anew, pins that
changed or could not be had are brought in where it stands, and a `.venv` without a mark is somebody else's and is
left alone. A lock file lets one start install while others wait; pip holds it too, so that it is free only when
nothing writes there any more.

Standard library only, and in the syntax of Python 3.6: see `lab.__main__`.
"""

import hashlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 11)
NEWEST_TESTED = (3, 13)
VERBS = ("open", "test", "check", "watch", "replay", "map", "build", "course", "grade", "report", "export")

USAGE = """\
Usage: python3 -m lab [VERB] [OPTIONS]

Opens Recovery Lab in JupyterLab. The first start makes an environment in .venv, which takes about a minute;
--help says more after that. Verbs: {verbs}.
""".format(verbs=", ".join(VERBS))

# What a user's settings could say to make pip install somewhere else than into .venv, or refuse to.
MISLEADING_PIP_SETTINGS = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_HASHES", "PIP_DRY_RUN")


class Problem(Exception):
    """Why the environment cannot be made, and what to do about it, in one line."""


def main(argv: Sequence[str], root: str = ROOT) -> int:
    """Run `lab.cli` with `argv` in the environment, made first where needed. Returns only where that failed."""
    try:
        warning = check_python(sys.version_info[:2])
        if warning:
            say(warning)
        if list(argv) in (["--help"], ["-h"]) and not (installed_here(root) or is_ready(root)):
            print(USAGE, end="")
            return 0
        python = sys.executable if installed_here(root) else environment(root)
    except Problem as problem:
        say("recovery-lab: {}".format(problem))
        return 2
    except OSError as error:
        say("recovery-lab: {}: {}".format(error.strerror or error, error.filename or root))
        return 2
    except KeyboardInterrupt:
        say("recovery-lab: stopped; the next start finishes the installation")
        return 130
    os.execv(python, [python, "-m", "lab.cli", *argv])


def say(line: str) -> None:
    """Tell the user something. Standard output belongs to the verb that runs afterwards."""
    print(line, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------- which Python


def check_python(version: Tuple[int, ...]) -> str:
    """A warning about a version that was never tried, or "". Raises Problem for one that is too old."""
    name = ".".join(map(str, version))
    if version < OLDEST:
        raise Problem("this is Python {}, and the lab needs 3.11 to 3.13: {}".format(name, advice()))
    if version > NEWEST_TESTED:
        return "Python {} is newer than the lab was tested with (3.11 to 3.13). If it fails, {}".format(name, advice())
    return ""


def advice() -> str:
    """The command to type instead, with the newest Python of this machine that the lab was tested with."""
    for minor in range(NEWEST_TESTED[1], OLDEST[1] - 1, -1):
        name = "python3.{}".format(minor)
        if works(name):
            return "run `{} -m lab`".format(name)
    return "install Python 3.13 and run `python3.13 -m lab`"


def works(python: str) -> bool:
    """Whether `python` really starts: a version manager also has names for what it does not offer here."""
    if not shutil.which(python):
        return False
    try:
        quiet = subprocess.DEVNULL
        return subprocess.call([python, "-c", ""], stdin=quiet, stdout=quiet, stderr=quiet, timeout=10) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def installed_here(root: str) -> bool:
    """Whether the lab was installed into this interpreter's own environment (conda, plain pip), which then serves."""
    if os.path.realpath(sys.prefix) == os.path.realpath(os.path.join(root, ".venv")):
        return False
    import sysconfig
    from importlib.metadata import distributions

    # Not all of sys.path: the clone itself is on it, with the metadata that building the project leaves there.
    return any(distributions(name="recovery-lab", path=[sysconfig.get_path("purelib")]))


def venv_python(root: str) -> str:
    return os.path.join(root, ".venv", "bin", "python")


# -------------------------------------------------------------------------------------------------------- the mark


def wanted(root: str) -> Dict[str, str]:
    """What an environment has to be made for, to be good for this start."""
    pins = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml"):
        with open(os.path.join(root, name), "rb") as file:
            pins.update(file.read())
    return {"root": root, "python": "{}.{}".format(*sys.version_info[:2]), "pins": pins.hexdigest()}


def mark_file(root: str) -> str:
    return os.path.join(root, ".venv", "recovery-lab.json")


def read_mark(root: str) -> Optional[Dict[str, Any]]:
    """What `.venv` was made for; {} while it is being made; None where it is not ours or not there."""
    try:
        with open(mark_file(root), encoding="utf-8") as file:
            mark = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {}
    return mark if isinstance(mark, dict) else {}


def write_mark(root: str, mark: Dict[str, str]) -> None:
    """All of it or nothing: a mark is believed."""
    unfinished = mark_file(root) + ".tmp"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(mark, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, mark_file(root))


def is_ready(root: str) -> bool:
    return read_mark(root) == wanted(root) and os.access(venv_python(root), os.X_OK)


# ------------------------------------------------------------------------------------------------ the installation


def environment(root: str) -> str:
    """Path of the environment's Python; makes the environment, or brings it up to date, where needed."""
    if is_ready(root):
        return venv_python(root)
    if os.name == "nt":
        raise Problem("Windows is not supported directly: run it in the Windows Subsystem for Linux")
    with only_one(root) as lock:
        if not is_ready(root):
            install(root, lock)
    return venv_python(root)


@contextmanager
def only_one(root: str) -> Iterator[int]:
    """Hold the lock on the installation; yields its descriptor. Waits as long as another start works at it."""
    import fcntl

    try:
        lock = os.open(os.path.join(root, ".venv.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Problem(
            "cannot write in {} ({}): copy the repository to a folder of yours and start there".format(root, reason)
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another start is installing here; waiting until it is done (Ctrl-C stops waiting)")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def install(root: str, lock: int) -> None:
    """Make `.venv`, or bring it up to date. The mark says that it is unfinished until all of it is done."""
    begun = time.monotonic()
    want, mark = wanted(root), read_mark(root)
    same_place = bool(mark) and mark is not None and (mark.get("root"), mark.get("python")) == (root, want["python"])
    venv = os.path.join(root, ".venv")
    if mark is None and os.path.lexists(venv) and not is_empty(venv):
        raise Problem(
            "{0} was made by something else: move it away, or use it: {0}/bin/pip install -r requirements.lock -e ."
            " && {0}/bin/recovery-lab".format(venv)
        )
    fresh = not (same_place and os.access(venv_python(root), os.X_OK))
    if fresh:
        check_venv_module()
        say("Making an environment for the lab in .venv (only the first time; about a minute)")
        if mark is not None:
            say("(The one that is there is unfinished, or for another Python or folder: it is replaced)")
            remove_environment(root)
        os.makedirs(venv, exist_ok=True)
    else:
        say("Bringing the environment in .venv up to date")
    write_mark(root, {})
    runner = Runner(os.path.join(venv, "install.log"), lock)
    with runner.ended_with_us():
        if fresh:
            make_venv(runner, venv)
        try:
            pip_install(runner, root)
        except Problem:
            # pip gave up by itself, so what is there is whole, though not all of it.
            write_mark(root, dict(want, pins="incomplete"))
            raise
    write_mark(root, want)
    say("Done in {:.0f} s".format(time.monotonic() - begun))


def is_empty(folder: str) -> bool:
    return os.path.isdir(folder) and not os.listdir(folder)


def remove_environment(root: str) -> None:
    """The mark goes last: should this be cut off, what is left is still known as ours."""
    venv = os.path.join(root, ".venv")
    write_mark(root, {})
    for name in os.listdir(venv):
        path = os.path.join(venv, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif path != mark_file(root):
            os.remove(path)


def check_venv_module() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise Problem(
            "this Python has no venv module ({}): on Debian or Ubuntu `sudo apt install python3-venv`,"
            " then run this again".format(error)
        ) from error


def make_venv(runner: "Runner", venv: str) -> None:
    base = getattr(sys, "_base_executable", None) or sys.executable
    if runner.run([base, "-I", "-m", "venv", "--prompt", "recovery-lab", venv]) != 0:
        raise Problem("`python3 -m venv` failed: {}; log: {}".format(runner.last_line(), runner.log))


def pip_install(runner: "Runner", root: str) -> None:
    """The pins, then the project. The pins are complete, so that pip has nothing to resolve."""
    with open(os.path.join(root, "requirements.lock"), encoding="utf-8") as file:
        total = len(re.findall(r"(?m)^[A-Za-z0-9]", file.read()))
    pip = [venv_python(root), "-I", "-m", "pip", "install", "--no-deps", "--no-input", "--no-color", "--retries=2"]
    pip += ["--progress-bar=off", "--disable-pip-version-check", "--no-warn-script-location"]
    say("Installing up to {} packages (log: .venv/install.log)".format(total))
    progress = Progress(os.path.join(root, ".venv"), total)
    if runner.run([*pip, "-r", os.path.join(root, "requirements.lock")], progress) != 0:
        raise Problem(pip_failure(runner))
    say("Installing the lab itself")
    # With the pinned setuptools rather than whatever is newest: no download, the same result every time.
    if runner.run([*pip, "--no-build-isolation", "-e", root]) != 0:
        raise Problem(pip_failure(runner))


def pip_failure(runner: "Runner") -> str:
    errors = [line for line in runner.lines if line.startswith("ERROR:")]
    reason = (errors[-1][len("ERROR:") :] if errors else runner.last_line()).strip()
    if any("Retrying (" in line or "Could not fetch URL" in line for line in runner.lines):
        return "no network: pip could not reach the package index ({}); connect and run this again; log: {}".format(
            reason, runner.log
        )
    return "pip could not install the packages: {}; run this again when that is solved; log: {}".format(
        reason, runner.log
    )


class Progress:
    """One line that counts, for who watches a terminal: packages fetched, then packages installed."""

    def __init__(self, venv: str, total: int) -> None:
        self.venv, self.total = venv, total
        self.fetched = 0
        self.installing = False
        self.shown = sys.stderr.isatty()

    def line(self, line: str) -> None:
        self.fetched += line.startswith("Collecting ")
        self.installing = self.installing or line.startswith("Installing collected packages")

    def draw(self) -> None:
        if self.shown:
            done = self.installed() if self.installing else self.fetched
            doing = "installed" if self.installing else "fetched"
            print("\r  {} of {} {}  ".format(done, self.total, doing), end="", file=sys.stderr, flush=True)

    def installed(self) -> int:
        library = os.path.join(self.venv, "lib", "python{}.{}".format(*sys.version_info[:2]), "site-packages")
        return sum(name.endswith(".dist-info") for name in os.listdir(library))

    def clear(self) -> None:
        if self.shown:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


class Runner:
    """Runs the tools of an installation one after the other; their output goes to a log."""

    def __init__(self, log: str, lock: int) -> None:
        self.log, self.lock = log, lock
        self.lines: List[str] = []
        self.child: Optional["subprocess.Popen[bytes]"] = None

    def run(self, command: Sequence[str], progress: Optional[Progress] = None) -> int:
        """Exit status of `command`; `lines` then holds what it printed."""
        self.lines = []
        with open(self.log, "ab") as log:
            log.write(("$ " + " ".join(command) + "\n").encode())
            log.flush()
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                pass_fds=[self.lock],  # were we killed, the lock would still be held for as long as this runs
            )
            for line in output(self.child, progress.draw if progress else None):
                log.write(line)
                self.lines.append(line.decode(errors="replace").rstrip())
                if progress:
                    progress.line(self.lines[-1])
        if progress:
            progress.clear()
        return self.child.wait()

    def last_line(self) -> str:
        return next((line for line in reversed(self.lines) if line.strip()), "it said nothing").strip()

    @contextmanager
    def ended_with_us(self) -> Iterator[None]:
        """Whatever ends this installation also ends the tool that is running."""

        def stop(number: int, frame: Any) -> NoReturn:
            raise SystemExit(128 + number)

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
            if self.child is not None and self.child.poll() is None:
                self.child.kill()
                self.child.wait()


def output(child: "subprocess.Popen[bytes]", tick: Optional[Callable[[], None]]) -> Iterator[bytes]:
    """The lines that `child` prints; `tick` is called with each and twice a second, for a display that moves."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    rest = b""
    with child.stdout, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if tick:
                tick()
            if not selector.select(0.5 if tick else None):
                continue
            chunk = os.read(pipe, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"
    if rest:
        yield rest


def child_environment() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in MISLEADING_PIP_SETTINGS}
