"""Shutting learner code in, on Linux, with bubblewrap.

The whole fork server runs inside: a file system that is read-only but for the workshop's folder, a network that is its
own loopback and nothing else, process numbers of its own, no privileges, and limits on processes, memory and disk. The
judge stays outside, with everything that it expects. Closing the workshop ends the sandbox, and with it every process
that was ever started in it.

Where the judge is root, its children give up that user for one that owns nothing (`Walls.user`): a limit on processes
does not bind root, and a child cannot then signal the fork server. Elsewhere a user namespace does that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Mode = Literal["require", "auto", "off"]
PROGRAM = "bwrap"
NOBODY = 65534
FIRST_USER = 1_000_000_000  # above all that systems give away; each judge's process adds its own number
TRIAL_TIME = 10.0  # seconds
LIMITS = {"RLIMIT_NPROC": 128, "RLIMIT_MSGQUEUE": 1 << 16}  # processes with their threads; bytes
SCRATCH = 64 << 20  # bytes of /tmp and of /dev/shm
MOST_MEMORY = 3 << 30  # bytes that all processes of one sandbox may use together
MOST_DISK = 512 << 20  # bytes that the workshop's folder may grow to
LOOK_EVERY = 0.2  # seconds
SHARED = ("/tmp", "/dev/shm")
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "alternatives", "hosts", "nsswitch.conf")
INSTALL = "install bubblewrap (Debian and Ubuntu: apt install bubblewrap)"


class NoSandbox(Exception):
    """There is no sandbox to be had here; the text says why, and what to do."""


def wanted(mode: Mode) -> bool:
    """Whether to shut learner code in. Raises NoSandbox where it has to be and cannot."""
    if mode == "off":
        return False
    trouble = why_not()
    if trouble and mode == "require":
        raise NoSandbox(trouble)
    return not trouble


@cache
def why_not() -> str:
    """Why there is no sandbox here, and what to do about that; empty where there is one."""
    if not sys.platform.startswith("linux"):
        return "the sandbox needs Linux: grade in a virtual machine or in a container"
    if shutil.which(PROGRAM) is None:
        return f"the sandbox needs the command {PROGRAM}: {INSTALL}"
    try:
        trial = subprocess.run(
            Walls(Path("/tmp")).command(["/bin/true"]), capture_output=True, text=True, timeout=TRIAL_TIME
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{PROGRAM} cannot be run: {error}"
    if trial.returncode == 0:
        return ""
    said = trial.stderr.strip().splitlines()
    return (
        f"{PROGRAM} does not work here: {said[-1] if said else f'exit status {trial.returncode}'}; "
        "the system has to allow user namespaces, or run the judge as root"
    )


@dataclass(frozen=True)
class Walls:
    """One sandbox around one workshop: `folder` is all that can be written in it."""

    folder: Path
    readable: Sequence[Path] = ()

    @property
    def user(self) -> int | None:
        """The user that children become; None where the whole sandbox is nobody's already."""
        return FIRST_USER + os.getpid() if os.geteuid() == 0 else None

    def command(self, inside: Sequence[str]) -> list[str]:
        """The command line that runs `inside` shut in."""
        return [PROGRAM, *self._namespaces(), *self._files(), "--", *inside]

    def _namespaces(self) -> Iterator[str]:
        yield from ("--die-with-parent", "--new-session", "--hostname", "lab", "--clearenv", "--chdir", "/")
        yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
        yield from ("--cap-drop", "ALL")
        if self.user is None:
            yield from ("--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY))
        else:  # what the fork server needs in order to make its children nobody, and to end them
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
                yield from ("--cap-add", capability)

    def _files(self) -> Iterator[str]:
        yield from ("--ro-bind", "/usr", "/usr")
        for name in SYSTEM:
            if os.path.islink(name):
                yield from ("--symlink", os.readlink(name), name)
            else:
                yield from ("--ro-bind-try", name, name)
        for setting in SETTINGS:
            yield from ("--ro-bind-try", f"/etc/{setting}", f"/etc/{setting}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for scratch in SHARED:
            yield from ("--perms", "1777", "--size", str(SCRATCH), "--tmpfs", scratch)
        python = {Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix)}
        bound = dict.fromkeys((*python, Path(sys.prefix), *self.readable), "--ro-bind") | {self.folder: "--bind"}
        there = {Path("/"), Path("/dev"), *map(Path, SHARED)}
        for path, how in sorted(bound.items()):
            if path.is_relative_to("/usr"):
                continue
            for parent in sorted({*path.parents} - there):
                yield from ("--perms", "0755", "--dir", str(parent))  # unasked, only root could pass through it
                there.add(parent)
            yield from (how, str(path), str(path))
            there.add(path)

    def hand_over(self, folder: Path) -> None:
        """Let children write in `folder`, and to the files that the judge has laid down there.

        Nothing on the way is followed that is a link: children would have the judge give them what the link names.
        """
        if self.user is not None:
            with contextlib.suppress(NotADirectoryError), _opened(folder) as descriptor:
                _give(descriptor, self.user)


@contextlib.contextmanager
def _opened(name: str | Path, inside: int | None = None) -> Iterator[int]:
    """The folder itself, never what a link of that name leads to."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _give(folder: int, user: int) -> None:
    os.fchown(folder, user, user)
    for entry in os.scandir(folder):
        if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            continue  # what children made is theirs already
        if entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(NotADirectoryError), _opened(entry.name, folder) as inner:
                _give(inner, user)
        else:
            os.chown(entry.name, user, user, dir_fd=folder, follow_symlinks=False)


class Warden(threading.Thread):
    """Ends what uses up the machine: no limit of one process bounds what many of them take together.

    `ended` is called with the pid of each process that had to go.
    """

    def __init__(self, server: int, folder: Path, ended: Callable[[int], None]) -> None:
        super().__init__(name="sandbox-warden", daemon=True)
        self.server = server
        self.folder = folder
        self.ended = ended
        self.closing = threading.Event()

    def run(self) -> None:
        before = _free(self.folder)
        while not self.closing.wait(LOOK_EVERY):
            sizes = {pid: _memory(pid) for pid in _below(self.server)}
            while sum(sizes.values()) > MOST_MEMORY:
                self.ended(largest := max(sizes, key=sizes.__getitem__))
                del sizes[largest]
            if before - _free(self.folder) > MOST_DISK and _disk(self.folder) > MOST_DISK:
                for pid in sizes:
                    self.ended(pid)
                _make_room(self.folder)

    def close(self) -> None:
        self.closing.set()
        self.join()


def _below(server: int) -> list[int]:
    """All processes that come from the fork server; itself and bubblewrap's have no learner code and are left out."""
    found: list[int] = []
    generation = [server]
    for depth in range(64):
        generation = [child for pid in generation for child in _children(pid)]
        if not generation:
            break
        found += generation if depth >= 2 else []  # bubblewrap's init, and the fork server
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listing:
                found += map(int, listing.read().split())
    return found


def _memory(pid: int) -> int:
    """Bytes that are the process's own."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            _, resident, shared, *_ = map(int, statm.read().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _free(folder: Path) -> int:
    """Bytes that are left where the folder is: asked often, so it has to cost nothing."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _disk(folder: Path) -> int:
    """Bytes in the folder and below; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def _make_room(folder: Path) -> None:
    """Take away what no right program writes: files of a megabyte and more."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                if os.lstat(path).st_size >= 1 << 20:
                    os.unlink(path)
