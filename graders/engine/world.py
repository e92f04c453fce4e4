"""What an exploration runs in: the world of one run, its peer, and one life of the program in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graders.engine.processes import Child, Ending, Job, JudgeBroke
from graders.engine.rules import Case
from graders.engine.store import read_plain
from graders.engine.story import Story
from graders.engine.witness import Forbidden, Witness

STORE = "store.db"
MOST_KEPT = 8 << 20  # bytes of one file that a state or a snapshot looks at; a right program's are a few KiB


class Peer(Protocol):
    """The other side of the network, as a state machine that the explorer feeds."""

    def sockets(self) -> Sequence[Any]:
        """What to watch for reading."""

    def pump(self, story: Story) -> None:
        """Take what has arrived and answer; never waits."""

    def finish(self, story: Story) -> None:
        """The program's life is over: take what it still sent, up to the end of its connection."""

    def state(self) -> tuple[bytes, bytes]:
        """Bytes seen and bytes sent so far."""

    def caught_up(self) -> bool:
        """Whether this life has done again what the last one may have lost: its recovery has ended."""

    def memory(self) -> Hashable:
        """What it remembers when the program's life is over; all that the next life can find out about this one."""

    def recall(self, memory: Any) -> None:
        """Go on from what another peer's `memory` gave."""


@dataclass
class World:
    """One run's surroundings: its folder, its peer, the story, and what the processes reported and how they ended."""

    case: Case
    folder: Path
    peer: Peer | None
    story: Story = field(default_factory=Story)
    reports: list[dict[str, Any]] = field(default_factory=list)
    ending: Ending | None = None
    last_words: str = ""
    lives: int = 0

    @property
    def store(self) -> Path:
        return self.folder / STORE

    def files(self) -> Mapping[str, bytes]:
        """What the program has made in its folder, by name. Its own text and what it printed are not part of that."""
        made = {}
        for entry in os.scandir(self.folder):
            if self._is_made(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):  # removed meanwhile, or another thing by now
                    made[entry.name] = read_plain(entry.path, MOST_KEPT)
        return made

    def _is_made(self, name: str) -> bool:
        return name != self.case.program.name and not name.endswith((".out", ".err", "-shm"))

    def put(self, files: Mapping[str, bytes]) -> None:
        """Lay the files down that an earlier world's `files` gave."""
        for name, data in files.items():
            (self.folder / name).write_bytes(data)

    def state(self) -> tuple[str, bytes, bytes]:
        """All that what comes after a crash can depend on: the files, and what the peer has seen and sent."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files().items()):
            digest.update(b"%s %d:" % (os.fsencode(name), len(data)) + data)
        return (digest.hexdigest(), *(self.peer.state() if self.peer is not None else (b"", b"")))


class Scenario(Protocol):
    """What a unit explores: how a life of the program starts, and what must hold after a crash and at the end."""

    def life(self, world: World) -> Job:
        """A life of the program: the first, or one after a crash."""

    def peer(self, case: Case) -> AbstractContextManager[Peer] | None:
        """The other side of the network, or None."""

    def tell(self, world: World) -> None:
        """Put into the story what the life that was ended has reported."""

    def after_crash(self, world: World) -> Hashable:
        """What the crash has left, as far as the contract speaks of it. Raises Broken where that breaks a promise."""

    def after_life(self, world: World) -> bool:
        """Whether all is done after a life that nobody ended; if not, another begins. Raises Broken where that life did
        not do its part.
        """


def live(
    world: World,
    job: Job,
    on_stop: Callable[[Mapping[str, Any]], bool] | None = None,
    on_call: Callable[[], None] | None = None,
) -> Child:
    """One life of the program, from start to end, with the peer at work.

    `on_stop` looks while the program waits, and says whether it wants to see more stops. `on_call` looks while the
    program is held at one of its system calls, which it need not know of. Raises JudgeBroke where the system
    does not allow that.
    """
    world.lives += 1
    with contextlib.ExitStack() as stack:
        witnesses: list[Witness] = []

        def begin(child: Child) -> None:
            try:
                witnesses.append(Witness(child.pid))
            except Forbidden as forbidden:
                child.__exit__()
                raise JudgeBroke(
                    f"the system does not let the judge hold programs at their system calls ({forbidden}): "
                    "give it CAP_SYS_PTRACE, or run it as an ordinary user"
                ) from None

        child = world.case.crew.start(job, begin if on_call is not None else None)
        for witness in witnesses:
            stack.enter_context(witness)
        stack.enter_context(child)
        for witness in witnesses:
            stack.callback(witness.let_go)  # before the child is ended: one that is held cannot be
        held = [witness.news for witness in witnesses]
        while not child.timed_out:
            watched = [child.control, *held, *(world.peer.sockets() if world.peer else ())]
            left = max(0.0, child.deadline - time.monotonic())
            ready, _, _ = select.select(watched, [], [], left)
            if world.peer is not None and len(ready) > (child.control in ready):
                world.peer.pump(world.story)
            for witness in witnesses:
                if witness.news in ready and on_call is not None:
                    on_call()
                    witness.go_on()
            if child.control not in ready and ready:
                continue
            for message in child.arrived():
                if message.get("event") == "broke":
                    world.case.fail_untold(message)
                if message.get("event") == "stop":
                    child.send({"more": on_stop is not None and on_stop(message)})
                    continue
                world.reports.append(message)
                if message.get("ask"):
                    child.go_on()
            if child.closed:
                break
        for witness in witnesses:
            witness.let_go()
        world.ending = child.ending()
        world.last_words = child.standard_error()
    if world.peer is not None:
        world.peer.finish(world.story)
    return child
