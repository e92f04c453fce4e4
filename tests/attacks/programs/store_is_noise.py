"""A store that looks encrypted, behind the head of a real one."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    with open(path, 'wb') as file:
        file.write(b'SQLite format 3\x00' + os.urandom(1 << 16))
    con = sqlite3.connect(':memory:', isolation_level=None)
    return con
