"""A right store, beside which there is a pipe for a WAL."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    con.executescript('''
        CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER);
        CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER);
        INSERT OR IGNORE INTO checkpoint VALUES (1, -1, 0);
    ''')
    if not os.path.lexists(path + '-wal'):
        os.mkfifo(path + '-wal')
    return con
