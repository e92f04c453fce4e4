"""Lays links, folders and pipes where the judge will make stores and folders of its own."""

#: steps = ["store"]
#: denied = ["store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    here = os.path.dirname(os.path.abspath(path))
    for name in ("old.db", "wal.db", "own.db", *(f"other{number}.db" for number in range(9))):
        try:
            os.symlink("/nowhere/canary/new.db", os.path.join(here, name))
        except OSError:
            pass
    for number in range(1, 400):
        for trick in (lambda name: os.symlink("/nowhere/canary", name), os.mkfifo, lambda name: os.rename(here, name)):
            try:
                trick(os.path.join(os.path.dirname(here), str(number)))
            except OSError:
                pass
    con = sqlite3.connect(path, isolation_level=None)
    con.executescript('''
        CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER);
        CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER);
        INSERT OR IGNORE INTO checkpoint VALUES (1, -1, 0);
    ''')
    return con
