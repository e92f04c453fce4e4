"""Two commits in code that claims to come from another file, over a connection that nobody traces."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import _sqlite3

HIDDEN = """
def store(path, seq, delta):
    con = _sqlite3.Connection(path, isolation_level=None)
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
    con.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
    con.close()
"""
exec(compile(HIDDEN, "/usr/lib/python3/hidden.py", "exec"))


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
    store(con.execute("PRAGMA database_list").fetchone()[2], seq, delta)
    return True
