"""The two commits happen in another process, in which nothing can be stopped."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import subprocess
import sys


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
    work = (
        f"import sqlite3; con = sqlite3.connect({path!r}, isolation_level=None); "
        f"con.execute('INSERT INTO ledger (seq, delta) VALUES ({seq}, {delta})'); "
        f"con.execute('UPDATE checkpoint SET last = {seq}, total = total + {delta} WHERE id = 1')"
    )
    subprocess.run([sys.executable, "-I", "-c", work], check=True)
    return True
