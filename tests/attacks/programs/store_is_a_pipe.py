"""The store and its journal are pipes, from which a reader never comes back."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    for suffix in ('', '-wal', '-journal'):
        if not os.path.lexists(path + suffix):
            os.mkfifo(path + suffix)
    con = sqlite3.connect(':memory:', isolation_level=None)
    return con
