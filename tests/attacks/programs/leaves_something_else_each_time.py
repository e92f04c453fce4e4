"""What a crash leaves is drawn by lot: two crashes in one state leave different things."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import os


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
    with open("store.db-journal-of-mine" if os.urandom(1)[0] % 2 else "store.db-notes", "wb") as notes:
        notes.write(os.urandom(1)[:1] if os.urandom(1)[0] % 2 else b"")
    if os.urandom(1)[0] % 2:
        open("store.db-wal", "ab").close()
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
    if fault is not None:
        fault()
    con.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
    return True
