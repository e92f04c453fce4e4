"""What an exploration costs: points answered a second beside a naive harness, growth with the events, and memory.

    python benchmarks/bench_explore.py

The exploration is that of `reconnect/killed_anywhere` on the reference: a session with a resend, `open_store` of a new
file and every recovery included, at each instruction. Medians of several turns in one run; no test asserts a figure.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import naive  # noqa: E402
from benchmarks.machine import say_machine  # noqa: E402
from graders.engine import sections  # noqa: E402
from graders.engine.explore import explore  # noqa: E402
from graders.engine.processes import Crew, Workshop  # noqa: E402
from graders.engine.program import compose  # noqa: E402
from graders.engine.rules import Case  # noqa: E402
from graders.receiver.ledger import make_events  # noqa: E402
from graders.receiver.reconnect import SessionAndDie  # noqa: E402
from graders.registry import unit  # noqa: E402
from graders.verdict import Exploration  # noqa: E402

UNIT = unit("receiver")
STEPS = [step.name for step in UNIT.steps]
SEED = 20261201
NAIVE_POINTS = 40  # as many of the naive harness's points as are tried
EVENTS = (3, 10, 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="turns that each median is taken of (5)")
    options = parser.parse_args()
    say_machine()
    beside_naive(options.runs)
    growth()
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory of the judge at its peak: {kibibytes / 1024:.0f} MiB\n")
    say_machine()


def beside_naive(runs: int) -> None:
    """The two take turns, and each ratio is taken within a turn, so that a busier machine harms both alike."""
    found, plain = [], []
    for _ in range(runs):
        plain.append(naive.points_per_second(ROOT / "solutions" / UNIT.file_name, NAIVE_POINTS))
        found.append(explored(3))
    rates = [one.points / one.seconds for one in found]
    ratio = median(rate / other for rate, other in zip(rates, plain, strict=True))
    took = median(one.seconds for one in found)
    print(f"3 events: {found[-1].points} points, {found[-1].states} states, {found[-1].kills} kills in {took:.2f} s")
    print(f"  {median(rates):.0f} points/s; naive {median(plain):.1f}; {ratio:.0f} times as many\n", flush=True)


def growth() -> None:
    for events in EVENTS:
        one = explored(events)
        each = one.seconds / events
        print(f"{events:>3} events: {one.points} points, {one.kills} kills, {one.seconds:.2f} s, {each:.2f} s an event")
    print(flush=True)


def explored(events: int) -> Exploration:
    """The exploration of a session of so many events, with nothing else running beside it."""
    reference = sections.split(UNIT.reference(), STEPS, UNIT.file_name)
    with Workshop("fork", preload=UNIT.preload) as workshop:
        case = Case(Crew(workshop), compose(reference, reference, STEPS), SEED, "reconnect/killed_anywhere")
        explore(case, SessionAndDie(make_events(case, events)), whole=True)
    return case.exploration


if __name__ == "__main__":
    main()
