"""The store is a link to a file outside."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    if not os.path.lexists(path):
        os.symlink('/nowhere/canary/file', path)
    con = sqlite3.connect(':memory:', isolation_level=None)
    return con
