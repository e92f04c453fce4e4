"""The store is a folder, and its journal is another."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    for suffix in ('', '-wal', '-journal'):
        os.makedirs(path + suffix, exist_ok=True)
    con = sqlite3.connect(':memory:', isolation_level=None)
    return con
