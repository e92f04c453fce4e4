"""The two commits happen in a thread that was started past the watcher."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import _thread
import threading

start = next((cell.cell_contents for cell in _thread.start_new_thread.__closure__ or () if cell.cell_contents.__class__ is type(len)), _thread.start_new_thread) if hasattr(_thread.start_new_thread, "__closure__") else _thread.start_new_thread


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
    if fault is not None:
        fault()
    path = con.execute("PRAGMA database_list").fetchone()[2]
    over = threading.Lock()
    over.acquire()

    def work():
        import _sqlite3

        own = _sqlite3.Connection(path, isolation_level=None)
        own.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        own.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
        own.close()
        over.release()

    start(work, ())
    over.acquire()
    return True
