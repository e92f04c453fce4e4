"""In WAL mode, two commits inside one call of SQLite's that nobody traces."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

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
    con.execute("PRAGMA journal_mode=WAL").fetchone()
    con.set_trace_callback(None)
    con.executescript(
        f"INSERT INTO ledger (seq, delta) VALUES ({seq}, {delta});"
        f"UPDATE checkpoint SET last = {seq}, total = total + {delta} WHERE id = 1;"
    )
    return True
