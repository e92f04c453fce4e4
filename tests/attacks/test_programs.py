"""Programs that want points they do not deserve, or want to do harm, get none and do none.

Where the judge says that it could not tell, grading gives no points and a person decides, so that is no way out either.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import psutil
import pytest
from sandboxed import needs_sandbox

import graders
from graders.engine import processes
from graders.judge import judge
from graders.verdict import Finding, Outcome, Verdict

pytestmark = [needs_sandbox, pytest.mark.timeout(120)]  # the deadline for a verdict, far beyond what it takes
SEED = 7
SECRET = "a secret that no report may tell"
ATTACKS = corpus.attacks()
PATIENCE = 4.0  # seconds instead of the usual 15, for programs that never end


def fingerprint(*folders: Path) -> str:
    """What is in these files and below these folders, whose they are, and when the files were last changed. Folders
    change when another test is the first to leave its bytecode there.
    """
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (folder, *folder.rglob("*.py"), *folder.glob("file"))):
        found, content = path.stat(), path.read_bytes() if path.is_file() else b""
        changed = found.st_mtime_ns if path.is_file() else "-"
        digest.update(f"{path} {changed} {found.st_uid} {found.st_mode} ".encode() + content)
    return digest.hexdigest()


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder outside the workshop. Around every test: no process, thread or folder stays, and nothing outside is
    changed.
    """
    monkeypatch.setattr(processes, "PATIENCE", PATIENCE)
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_text(SECRET)
    kept = (canary, Path(graders.__file__).parent, Path(os.__file__).parent / "json", Path("/etc/passwd"))
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def noted(*arguments: Any, **named: Any) -> str:
        made.append(mkdtemp(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    before = fingerprint(*kept), set(threading.enumerate())
    me = psutil.Process()
    yield canary
    _, alive = psutil.wait_procs(me.children(recursive=True), timeout=10)
    assert alive == []
    assert (fingerprint(*kept), set(threading.enumerate())) == before
    assert [folder for folder in made if os.path.lexists(folder)] == []


def outcomes(verdict: Verdict) -> dict[str, Outcome]:
    return {finding.rule: finding.outcome for step in verdict.steps for finding in step.rules}


def messages(verdict: Verdict, outcome: Outcome) -> list[str]:
    findings = [finding for step in verdict.steps for finding in step.rules if finding.outcome is outcome]
    return [f"{finding.rule}: {finding.message}" for finding in findings]


def told(finding: Finding) -> list[str]:
    return [finding.message, *finding.story]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_an_attack_gains_nothing(attack: corpus.Attack, canary: Path) -> None:
    source = attack.source.replace("/nowhere/canary", str(canary))
    verdict = judge(source, steps=attack.steps, seed=SEED, ahead=False, sandbox="require")
    found = outcomes(verdict)
    assert {rule for rule in attack.denied if found[rule] is Outcome.PASS} == set()
    assert not any(SECRET in line for step in verdict.steps for rule in step.rules for line in told(rule))


def test_an_honest_program_is_judged_as_ever_afterwards() -> None:
    verdict = judge(corpus.reference("receiver"), seed=SEED, sandbox="require")
    assert messages(verdict, Outcome.FAIL) + messages(verdict, Outcome.ERROR) == []
    assert verdict.score == verdict.max_score
