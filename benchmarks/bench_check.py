"""How long a check takes, and what the judge's way of killing saves over a new interpreter for every kill.

    python benchmarks/bench_check.py                  the check, each step, and a naive harness, in one run
    python benchmarks/bench_check.py --first-page     from a fresh clone to the first JupyterLab page

Medians of several runs; no test asserts a time. What was measured where: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import naive  # noqa: E402
from benchmarks.machine import say_machine  # noqa: E402
from graders.engine import sections  # noqa: E402
from graders.engine.processes import Crew, Method, Workshop  # noqa: E402
from graders.engine.program import compose  # noqa: E402
from graders.engine.rules import Case  # noqa: E402
from graders.judge import judge  # noqa: E402
from graders.registry import unit  # noqa: E402
from graders.verdict import Exploration  # noqa: E402

UNIT = unit("receiver")
STEPS = [step.name for step in UNIT.steps]
REFERENCE = UNIT.reference()
SEED = 20261130
CHECK_TARGET = 6.0  # seconds, all seven steps, a cold process
STEP_TARGET = 1.0  # seconds, one step, a warm process
PAGE_TARGET = 90.0  # seconds, a fresh clone with a warm package cache
PAGE_DEADLINE = 600.0
NAIVE_POINTS = 40  # as many of the naive harness's points as are tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs that each median is taken of (5)")
    parser.add_argument("--first-page", action="store_true", help="measure the first page instead; takes a minute")
    options = parser.parse_args()
    say_machine()
    if options.first_page:
        first_page()
    else:
        whole_check(options.runs)
        each_step(options.runs)
        naive_and_forked(options.runs)
    say_machine()


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def row(name: str, times: list[float], target: float) -> None:
    middle = median(times)
    met = "met" if middle <= target else f"missed by {middle - target:.2f} s"
    print(
        f"  {name:<18} {middle:6.2f} s   {min(times):.2f} to {max(times):.2f}   target {target:g} s: {met}", flush=True
    )


# ------------------------------------------------------------------------------------------------------- the check


def whole_check(runs: int) -> None:
    print(f"recovery-lab check solutions/client.py: a cold process, all steps, median of {runs}")
    command = [sys.executable, "-m", "lab.cli", "check", str(ROOT / "solutions" / UNIT.file_name), f"--seed={SEED}"]

    def check() -> None:
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=300)

    row("all steps", [seconds(check) for _ in range(runs)], CHECK_TARGET)
    print()


def each_step(runs: int) -> None:
    """A warm process judges a changed section again; the earlier sections are as they were, so it remembers those."""
    print(f"check() of one changed step in a warm process, median of {runs}")
    judge(REFERENCE, seed=SEED)
    for step in STEPS:
        times = []
        for run in range(runs):
            changed = with_comment(step, f"# benchmark run {run}")
            times.append(seconds(lambda text=changed, name=step: passed(text, name)))  # type: ignore[misc]
        row(step, times, STEP_TARGET)
    print()


def with_comment(step: str, comment: str) -> str:
    """The reference with one comment more in the section of `step`."""
    return REFERENCE.replace(f"# %% {step}\n", f"# %% {step}\n{comment}\n", 1)


def passed(source: str, step: str) -> None:
    verdict = judge(source, steps=[step], seed=SEED)
    assert verdict.passed, f"the reference fails {step}: {verdict}"


# ------------------------------------------------------------------------------------------- what the kills cost


def naive_and_forked(runs: int) -> None:
    """One session of three events, ended everywhere: by a new interpreter for each life, and as the judge does it.

    The two take turns, and each ratio is taken within a turn, so that a machine that gets busier harms both alike.
    """
    print(f"ending a session of three events everywhere, median of {runs} turns, {naive.AT_ONCE} at once in each row")
    plain, forked = [], []
    for _ in range(runs):
        plain.append(naive.points_per_second(ROOT / "solutions" / UNIT.file_name, NAIVE_POINTS))
        forked.append(explored("fork"))
    print(f"  naive, a new interpreter for each life: {median(plain):.1f} points/s, each of them a kill and a restart")
    say_explored("fork", forked, plain)
    say_explored("spawn", [explored("spawn")], plain[-1:])
    print()


def say_explored(method: Method, found: list[Exploration], plain: list[float]) -> None:
    one, took = found[-1], median(each.seconds for each in found)
    print(f"  the judge by {method}: {one.points} points in {one.states} states, {one.kills} kills in {took:.2f} s")
    for unit_of_work in ("kills", "points"):
        rates = [getattr(each, unit_of_work) / each.seconds for each in found]
        ratio = median(rate / naive_rate for rate, naive_rate in zip(rates, plain, strict=True))
        print(f"    {median(rates):6.1f} {unit_of_work}/s, {ratio:.1f} times naive", flush=True)


def explored(method: Method) -> Exploration:
    """What the rule reconnect/killed_anywhere explores in the reference, with nothing else running beside it."""
    reference = sections.split(REFERENCE, STEPS, UNIT.file_name)
    rule = next(rule for rule in UNIT.step("reconnect").rules if rule.name == "killed_anywhere")
    with Workshop(method, preload=UNIT.preload) as workshop:
        case = Case(Crew(workshop), compose(reference, reference, STEPS), SEED, rule.id)
        rule.judge(case)
    return case.exploration


# --------------------------------------------------------------------------------------------------- the first page


def first_page() -> None:
    print("python3 -m lab --no-browser: a fresh clone, pip's cache as it is on this machine")
    with tempfile.TemporaryDirectory(prefix="recovery-lab-bench-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=60)
        row("first start", [seconds_to_page(clone)], PAGE_TARGET)
        again = [seconds_to_page(clone) for _ in range(3)]
        print(f"  {'later starts':<18} {median(again):6.2f} s   median of 3\n")


def seconds_to_page(clone: Path) -> float:
    """From the command in `clone` to the first page over HTTP; then the lab is ended, which is not counted."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    command = [str(base_python()), "-m", "lab", "--no-browser"]
    started = time.perf_counter()
    lab = subprocess.Popen(command, cwd=clone, env=kept, stdout=subprocess.PIPE, start_new_session=True)
    with ended(lab), urllib.request.urlopen(printed_address(lab), timeout=30) as page:
        assert b"jupyter" in page.read().lower(), page.status
        return time.perf_counter() - started


def base_python() -> Path:
    """The interpreter below this environment: the lab makes one of its own."""
    return Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info[:2]))


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def printed_address(lab: subprocess.Popen[bytes]) -> str:
    assert lab.stdout is not None
    until, said = time.monotonic() + PAGE_DEADLINE, b""
    while (match := re.search(rb"http://\S+(?=\s)", said)) is None:
        ready = select.select([lab.stdout], [], [], max(0.0, until - time.monotonic()))[0]
        chunk = os.read(lab.stdout.fileno(), 4096) if ready else b""
        if not chunk:
            sys.exit(f"the lab printed no address: {said.decode()!r}")
        said += chunk
    return match[0].decode()


if __name__ == "__main__":
    main()
