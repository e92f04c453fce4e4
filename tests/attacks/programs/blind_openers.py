"""Makes the store in many small commits, with tracing switched off."""

#: steps = ["store"]
#: denied = ["store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3
import sys


def open_store(path):
    import _sqlite3

    sys.settrace(None)
    con = _sqlite3.Connection(path, isolation_level=None)
    if not con.execute("SELECT * FROM sqlite_schema").fetchall():
        con.execute("CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER)")
        con.execute("INSERT INTO checkpoint VALUES (1, -1, 0)")
        con.execute("CREATE TABLE ledger (seq INTEGER PRIMARY KEY, delta INTEGER)")
    return con
