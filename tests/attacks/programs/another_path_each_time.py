"""Takes another path in each life, so that no stop is met again."""

#: steps = ["atomic_apply"]
#: denied = ["atomic_apply/killed_anywhere"]

import os
import time


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
    names = [f"note{os.urandom(3).hex()}" for _ in range(3)]
    for name in names:
        exec(f"open({name!r}, 'w').write({name!r})\n" + "pass\n" * (os.urandom(1)[0] % 7))
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
    if fault is not None:
        fault()
    if os.urandom(1)[0] % 2:
        time.sleep(0)
    con.execute("UPDATE checkpoint SET last = ?, total = total + ? WHERE id = 1", (seq, delta))
    return True
