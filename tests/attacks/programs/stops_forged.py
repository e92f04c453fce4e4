"""Names stops that cannot be, in great numbers."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import json
import os


def forge(at, unseen=()):
    message = {"event": "stop", "ask": True, "at": at, "unseen": list(unseen), "threads": False}
    os.write(3, json.dumps(message).encode() + b"\n")


try:
    forge([10**30, "line", -1], [[0, "nothing", 10**30]] * 2000)
    forge("nowhere")
except OSError:
    pass


# %% atomic_apply
class Conflict(Exception):
    pass


class Gap(Exception):
    pass


def apply_event(con, seq, delta, fault=None):
    (last,) = con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()
    if seq > last + 1:
        raise Gap(seq)
    if seq <= last:
        if con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()[0] != delta:
            raise Conflict(seq)
        return False
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
    if fault is not None:
        fault()
    con.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
    return True
