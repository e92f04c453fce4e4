"""The picture of every step, drawn by code so that it can be changed like code.

`for_step` gives a picture as SVG; `refresh` puts it into a notebook, as an image inside the text. It is a data URI,
because JupyterLab refuses SVG attachments; as an image, nothing in it can run.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from graders.report.drawing import Drawing, Message, PowerCut, Row, sequence

IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\([^)]*\)")
THREE_LANES = ("peer", "program", "store")
THREE_NAMES = ("publisher", "receiver", "store")


def framing() -> str:
    """One line as bytes, and four lines that are almost one."""
    picture = Drawing(
        720,
        330,
        "The form of one event line",
        "Twelve bytes in boxes: the word EVENT, one space, the seq 12, one space, the delta -5, one LF. Below it, four"
        " lines that are refused: a leading zero, two spaces, no LF, and CR LF at the end.",
    )
    picture.text(24, 36, "One event, byte by byte", bold=True, size=16)
    cells = ["E", "V", "E", "N", "T", "SP", "1", "2", "SP", "-", "5", "LF"]
    tones = ["peer"] * 5 + ["muted"] + ["program"] * 2 + ["muted"] + ["store"] * 2 + ["danger"]
    for number, (cell, tone) in enumerate(zip(cells, tones, strict=True)):
        picture.box(30 + 55 * number, 62, 50, 44, tone=tone)
        picture.text(55 + 55 * number, 90, cell, tone=tone, anchor="middle", mono=True, bold=True, size=16)
    fields = [(0, 5, "the word", "peer"), (5, 1, "one", "muted"), (6, 2, "seq", "program")]
    fields += [(8, 1, "one", "muted"), (9, 2, "delta", "store"), (11, 1, "one", "danger")]
    for first, count, name, tone in fields:
        left, right = 32 + 55 * first, 78 + 55 * (first + count - 1)
        picture.line(left, 116, right, 116, tone=tone)
        picture.text((left + right) / 2, 135, name, tone=tone, anchor="middle")
    picture.line(30, 152, 685, 152, tone="muted")
    picture.text(358, 172, "at most 64 bytes, LF included", tone="muted", anchor="middle")
    picture.text(24, 206, "Almost, and therefore refused", bold=True, size=16)
    misses = [
        ("EVENT 012 -5 LF", "a leading zero"),
        ("EVENT 12  -5 LF", "two spaces"),
        ("EVENT 12 -5", "no LF: is there more to come?"),
        ("EVENT 12 -5 CR LF", "a CR nobody agreed on"),
    ]
    for number, (line, reason) in enumerate(misses):
        y = 234 + 24 * number
        picture.cross(42, y - 5)
        picture.text(62, y, line, mono=True)
        picture.text(250, y, reason, tone="danger")
    return picture.svg()


def _table(picture: Drawing, x: float, y: float, name: str, columns: list[str], rows: list[list[str]]) -> None:
    width = 76 * len(columns)
    picture.text(x, y, name, tone="store", bold=True, mono=True)
    picture.box(x, y + 10, width, 30, tone="store")
    for number, column in enumerate(columns):
        picture.text(x + 38 + 76 * number, y + 30, column, tone="store", anchor="middle", mono=True, bold=True)
    for below, row in enumerate(rows, start=1):
        picture.line(x, y + 40 + 28 * below, x + width, y + 40 + 28 * below, tone="store")
        for number, value in enumerate(row):
            picture.text(x + 38 + 76 * number, y + 30 + 28 * below, value, anchor="middle", mono=True)


def store() -> str:
    """The file on its first day and after two events."""
    picture = Drawing(
        720,
        320,
        "What the store holds",
        "Two states of one file. New: the checkpoint has one row, id 1, last -1, total 0, and the ledger is empty."
        " After EVENT 0 7 and EVENT 1 -2: last 1, total 5, and the ledger holds 0 with 7 and 1 with -2.",
    )
    for left, name in ((20, "a new file"), (370, "after EVENT 0 7 and EVENT 1 -2")):
        picture.box(left, 50, 330, 248, dashed=True, tone="muted")
        picture.text(left + 4, 36, name, bold=True, size=16)
    _table(picture, 50, 82, "checkpoint", ["id", "last", "total"], [["1", "-1", "0"]])
    _table(picture, 50, 180, "ledger", ["seq", "delta"], [])
    picture.text(126, 243, "no row yet", anchor="middle", tone="muted")
    _table(picture, 400, 82, "checkpoint", ["id", "last", "total"], [["1", "1", "5"]])
    _table(picture, 400, 180, "ledger", ["seq", "delta"], [["0", "7"], ["1", "-2"]])
    picture.text(572, 222, "5 = 7 - 2", tone="muted")
    picture.text(572, 246, "1 is the newest", tone="muted")
    return picture.svg()


def atomic_apply() -> str:
    """The transaction as a box in time, and what everybody else sees meanwhile."""
    picture = Drawing(
        720,
        446,
        "One event, one transaction",
        "Inside one transaction, from top to bottom: take the write lock, read last, add the ledger row, change the"
        " total, then the fault hook, change last, COMMIT. Beside it, what another process sees: last 0 and total 7 all"
        " the way down to COMMIT, then last 1 and total 5. A power cut anywhere above COMMIT leaves the old state.",
    )
    picture.text(180, 34, "inside the transaction", anchor="middle", bold=True, size=16, tone="program")
    picture.text(560, 34, "what everybody else sees", anchor="middle", bold=True, size=16, tone="store")
    picture.box(24, 50, 420, 316, tone="program")
    steps = [
        ("BEGIN IMMEDIATE", "the write lock, before any read"),
        ("read last", "0, so event 1 is next"),
        ("ledger", "row (1, -2)"),
        ("total", "7 becomes 5"),
        ("fault()", "the worst possible moment"),
        ("last", "0 becomes 1"),
        ("COMMIT", "now, all at once"),
    ]
    for number, (what, why) in enumerate(steps):
        y = 82 + 42 * number
        tone = {"fault()": "danger", "COMMIT": "store"}.get(what, "program")
        picture.text(44, y, what, mono=True, bold=True, tone=tone)
        picture.text(190, y, why, tone="ink")
    picture.power_cut(24, 444, 268)
    picture.box(480, 60, 216, 262, tone="ink")
    picture.text(588, 180, "last 0, total 7", anchor="middle", mono=True)
    picture.text(588, 204, "as if nothing had begun", anchor="middle", tone="muted")
    picture.arrow(444, 344, 478, 344, tone="store")
    picture.box(480, 330, 216, 62, tone="store")
    picture.text(588, 357, "last 1, total 5", anchor="middle", mono=True, tone="store")
    picture.text(588, 379, "the whole event", anchor="middle", tone="store")
    picture.text(24, 396, "Power cut above COMMIT: the old state.", tone="danger", bold=True)
    picture.text(24, 420, "There is no third state to find.", tone="ink")
    return picture.svg()


def retention() -> str:
    """The publisher's finite log and four cursors that ask it for more."""
    picture = Drawing(
        720,
        344,
        "Which cursors the log can still serve",
        "The log holds the events 10 to 15; 7, 8 and 9 are gone. Cursor 8 needs 9: ResyncRequired. Cursor 9 reads from"
        " 10. Cursor 15 has everything: an empty list. Cursor 16 has seen an event that the publisher has lost:"
        " ResyncRequired.",
    )
    picture.text(24, 36, "The publisher keeps only the newest events", bold=True, size=16)
    for number, seq in enumerate(range(7, 17)):
        x = 24 + 67 * number
        kept = 10 <= seq <= 15
        picture.box(x, 56, 60, 44, tone="peer" if kept else "muted", dashed=not kept)
        picture.text(x + 30, 84, str(seq), anchor="middle", mono=True, bold=kept, tone="peer" if kept else "muted")
    picture.text(121, 122, "gone", anchor="middle", tone="muted")
    picture.text(422, 122, "retained: oldest 10, newest 15", anchor="middle", tone="peer")
    picture.text(657, 122, "not here", anchor="middle", tone="muted")
    rows = [
        ("cursor 8", "needs 9, which is gone", "ResyncRequired", "danger"),
        ("cursor 9", "needs 10, the oldest", "10, 11, 12, ...", "store"),
        ("cursor 15", "has everything", "[]", "store"),
        ("cursor 16", "holds what the publisher lost", "ResyncRequired", "danger"),
    ]
    for number, (cursor, why, answer, tone) in enumerate(rows):
        y = 166 + 44 * number
        picture.label(84, y, cursor, tone="program", mono=True)
        picture.text(160, y + 5, why)
        picture.arrow(396, y, 452, y, tone=tone)
        picture.text(466, y + 5, answer, tone=tone, mono=True, bold=True)
    return picture.svg()


def ack_after_commit() -> str:
    """The same power cut in the two possible orders."""
    picture = Drawing(
        720,
        606,
        "The same power cut, two orders",
        "First COMMIT, then ACK: the power goes out between them. The store has the event, the publisher is unsure"
        " and sends it again, the receiver recognises it and acknowledges. First ACK, then COMMIT: the power goes out"
        " between them. The publisher has forgotten the event and the store never had it: it is lost.",
    )
    picture.text(24, 34, "First COMMIT, then ACK: at worst it comes twice", bold=True, size=16, tone="store")
    safe: list[Row] = [
        Message("peer", "program", "EVENT 1 -2"),
        Message("program", "store", "COMMIT"),
        PowerCut("program", "stored, but no ACK"),
        Message("peer", "program", "EVENT 1 -2 again"),
        Message("program", "peer", "ACK 1, nothing added"),
    ]
    bottom = sequence(picture, THREE_LANES, THREE_NAMES, safe, 52)
    picture.line(24, bottom + 14, 696, bottom + 14, tone="muted")
    picture.text(24, bottom + 42, "First ACK, then COMMIT: it can be lost", bold=True, size=16, tone="danger")
    lossy: list[Row] = [
        Message("peer", "program", "EVENT 1 -2"),
        Message("program", "peer", "ACK 1"),
        PowerCut("program", "nothing is stored"),
    ]
    end = sequence(picture, THREE_LANES, THREE_NAMES, lossy, bottom + 58)
    picture.text(24, end + 22, "The publisher has let go of event 1. Nobody has it any more.", tone="danger", bold=True)
    return picture.svg()


def reclamation() -> str:
    """Many ways out of a session, one way of leaving."""
    picture = Drawing(
        720,
        360,
        "Every way out passes the same door",
        "Six ways out of a session: the publisher closes, a bad line, silence, refused, reset, cancelled. All of them"
        " lead through the same two steps, close the writer and wait for it, then close the SQLite connection. After"
        " that the caller gets the result or the first error, unchanged.",
    )
    picture.text(24, 36, "six ways out", bold=True, size=16)
    picture.text(300, 36, "one way of leaving", bold=True, size=16)
    ways = [
        "the publisher closes",
        "a bad line",
        "silence: TimeoutError",
        "refused: no connection",
        "a reset in mid-session",
        "cancelled from outside",
    ]
    for number, way in enumerate(ways):
        y = 72 + 48 * number
        picture.box(24, y - 18, 200, 36, tone="peer" if number == 0 else "danger")
        picture.text(124, y + 5, way, anchor="middle", tone="peer" if number == 0 else "danger")
        picture.line(224, y, 262, y, tone="muted")
    picture.line(262, 72, 262, 312, tone="muted")
    picture.arrow(262, 102, 298, 102, tone="muted")
    steps = [
        ("close the writer, wait for it", "stuck? abort it: the descriptor must go", "program"),
        ("close the SQLite connection", "no lock and no descriptor stays behind", "store"),
        ("the caller gets what happened", "the result, or the first error, unchanged", "ink"),
    ]
    for number, (what, why, tone) in enumerate(steps):
        y = 70 + 96 * number
        picture.box(300, y, 390, 64, tone=tone)
        picture.text(320, y + 27, what, tone=tone, bold=True)
        picture.text(320, y + 50, why, tone="ink")
        if number < 2:
            picture.arrow(495, y + 64, 495, y + 94, tone="muted")
    return picture.svg()


def reconnect() -> str:
    """Two processes, one file, and the moment between them."""
    picture = Drawing(
        720,
        704,
        "Two processes, one store",
        "The first process sends RESUME -1, stores and acknowledges event 0, stores event 1, and loses its power before"
        " ACK 1. The second process opens the same file and sends RESUME 1. The publisher is unsure and sends event 1"
        " again; it is known, nothing is added, ACK 1. Event 2 is new: stored, ACK 2. At the end last is 2, total 9.",
    )
    rows: list[Row] = [
        Message("program", "peer", "RESUME -1"),
        Message("peer", "program", "EVENT 0 7"),
        Message("program", "store", "last 0, total 7"),
        Message("program", "peer", "ACK 0"),
        Message("peer", "program", "EVENT 1 -2"),
        Message("program", "store", "last 1, total 5"),
        PowerCut("program", "before ACK 1: os._exit(17)"),
        Message("program", "peer", "RESUME 1"),
        Message("peer", "program", "EVENT 1 -2 again"),
        Message("program", "peer", "ACK 1, nothing added"),
        Message("peer", "program", "EVENT 2 4"),
        Message("program", "store", "last 2, total 9"),
        Message("program", "peer", "ACK 2"),
    ]
    end = sequence(picture, THREE_LANES, THREE_NAMES, rows, 16)
    picture.text(
        24, end + 24, "Above the cut the first process, below it the second; one file throughout.", tone="muted"
    )
    return picture.svg()


PICTURES: dict[str, Callable[[], str]] = {
    picture.__name__: picture
    for picture in (framing, store, atomic_apply, retention, ack_after_commit, reclamation, reconnect)
}


def for_step(slug: str) -> str:
    """The picture of the step `slug` as SVG text; KeyError for a step without one."""
    return PICTURES[slug]()


def refresh(notebook: Any, slug: str) -> None:
    """Put the current picture of `slug` into the notebook (an nbformat node), in the cell whose id is `<slug>-picture`.

    The alternative text stays as it is written there. ValueError where there is no such cell, or no image in it.
    """
    data = base64.b64encode(for_step(slug).encode()).decode()
    for cell in notebook.cells:
        if cell.get("id") == f"{slug}-picture":
            source, count = IMAGE.subn(rf"![\g<alt>](data:image/svg+xml;base64,{data})", cell.source)
            if count != 1:
                raise ValueError(f"the cell {slug}-picture needs exactly one image, it has {count}")
            cell.source = source
            return
    raise ValueError(f"this notebook has no cell with the id {slug}-picture")
