"""A second opinion on the exploration: real kills at system calls, by a tool that knows nothing of Python.

`strace` ends the program with SIGKILL as it enters its n-th call that writes. What that leaves, and what the next life
makes of it, has to be something that the exploration has found too. Known of strace 6.1: with `--seccomp-bpf` it drops
the signal without a word; `when=N` counts for each thread and each call by itself; the kill lands before the call runs.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Hashable, Iterator

import corpus
import pytest

from graders.engine import sections
from graders.engine.explore import explore
from graders.engine.processes import Crew, Workshop
from graders.engine.program import compose
from graders.engine.rules import Broken, Case
from graders.engine.store import Unreadable
from graders.engine.story import Story
from graders.engine.world import World, live
from graders.receiver.ledger import found_after_crash
from graders.receiver.publisher import HOST, StopAndWait
from graders.receiver.reconnect import SessionAndDie
from graders.registry import unit

UNIT = unit("receiver")
EVENTS = [(0, 5), (1, -70), (2, 900)]
CALLS = ("pwrite64", "fdatasync", "unlink", "ftruncate", "sendto")
LONGEST_RUN = 30.0  # seconds
KILLED_STATUS = -signal.SIGKILL  # strace ends itself with the signal that has ended the program
STRIDE = 12  # of a wrong program every twelfth call is enough: twenty programs are swept
# Not store/durable_journal: without a journal in the file a kill inside COMMIT tears the store, and the exploration
# does not stop there. The judge reads the journal mode instead.
ABOUT_CRASHES = (
    *("store/first_open_killed", "atomic_apply/fault_window", "atomic_apply/exit_in_fault"),
    *("atomic_apply/killed_anywhere", "ack_after_commit/committed_first", "reclamation/before_ack"),
    *("reconnect/exit_before_ack", "reconnect/two_processes", "reconnect/killed_anywhere"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed, so there is no second opinion"),
]


class Recorder(SessionAndDie):
    """Notes what crashes leave and how runs end, and judges nothing: a wrong program is explored to its end, too."""

    def __init__(self) -> None:
        super().__init__(EVENTS)
        self.left: set[Hashable] = set()
        self.ends: set[Hashable] = set()

    def after_crash(self, world: World) -> Hashable:
        found = self.found(world)
        assert isinstance(world.peer, StopAndWait)
        self.left.add((found, world.peer.acknowledged))
        return found

    def after_life(self, world: World) -> bool:
        self.ends.add((self.found(world), str(world.ending)))
        return True

    def found(self, world: World) -> str:
        assert isinstance(world.peer, StopAndWait)
        try:
            books = found_after_crash(world.store)
        except Unreadable as torn:
            return str(torn)
        world.peer.committed = books.last
        return str(books)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    with Workshop("fork", preload=UNIT.preload) as workshop:
        yield workshop


def case_of(workshop: Workshop, source: str) -> Case:
    names = [step.name for step in UNIT.steps]
    learner = sections.split(source, names, UNIT.file_name)
    return Case(Crew(workshop), compose(learner, learner, names), 7, "reconnect/killed_anywhere", fates=[])


def swept() -> list[corpus.WrongProgram]:
    """Twenty programs that are wrong about crashes, spread over the steps."""
    found = [program for program in corpus.wrong_programs("receiver") if program.rule in ABOUT_CRASHES]
    return found[:: max(1, len(found) // 20)][:20]


def test_the_reference_has_no_outcome_at_a_system_call_that_the_exploration_missed(workshop: Workshop) -> None:
    compare(workshop, corpus.reference("receiver"), stride=1)


@pytest.mark.parametrize("program", swept(), ids=str)
def test_nor_has_a_wrong_program(workshop: Workshop, program: corpus.WrongProgram) -> None:
    compare(workshop, program.source(corpus.reference("receiver")), stride=STRIDE)


def compare(workshop: Workshop, source: str, stride: int) -> None:
    explored = Recorder()
    case = case_of(workshop, source)
    try:
        explore(case, explored, whole=True)
    except Broken as broken:
        pytest.fail(f"a recorder judges nothing, yet: {broken}")
    seen = Recorder()
    kills = sum(sweep(case, seen, call, stride) for call in CALLS)
    assert kills >= 5
    assert seen.left <= explored.left
    assert seen.ends <= explored.ends


def sweep(case: Case, seen: Recorder, call: str, stride: int) -> int:
    """Kill at every `stride`-th such call until a run meets no more of them; how many kills there were."""
    number = 1
    while killed_at(case, seen, call, number):
        number += stride
    return (number - 1) // stride


def killed_at(case: Case, seen: Recorder, call: str, number: int) -> bool:
    """One run that is ended at the call, and the next life of it; False where the run ended by itself."""
    with StopAndWait(case.crew.workshop.tcp_socket(), EVENTS) as peer:
        world = World(case, case.new_folder(), peer)
        status = traced(world, peer, call, number)
        peer.finish(Story())
        if status != KILLED_STATUS:
            return False
        seen.after_crash(world)
        live(world, seen.life(world))
        seen.after_life(world)
        return True


def traced(world: World, peer: StopAndWait, call: str, number: int) -> int:
    """The exit status of `python client.py …` under strace, with the publisher at work in a thread."""
    inject = f"inject={call}:signal=SIGKILL:when={number}"
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", inject, sys.executable]
    over = threading.Event()

    def publish() -> None:
        while not over.is_set():
            select.select(peer.sockets(), [], [], 0.01)
            peer.pump(Story())

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        process = subprocess.run(
            [*command, str(world.folder / world.case.program.name), HOST, str(peer.port), str(world.store)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LONGEST_RUN,
            cwd=world.folder,
        )
    finally:
        over.set()
        thread.join()
    return process.returncode
