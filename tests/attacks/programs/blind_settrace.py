"""Two commits an event; tracing is switched off before them, so that the exploration sees none between."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import sys
import threading


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
    con.set_trace_callback(None)
    sys.settrace(None)
    sys.setprofile(None)
    threading.settrace(None)
    frame = sys._getframe()
    while frame is not None:
        frame.f_trace = None
        frame = frame.f_back
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
    if fault is not None:
        fault()
    con.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
    return True
