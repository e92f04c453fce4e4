"""The store is a link to a store that another case has, wherever one is found."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    import glob

    others = [p for p in glob.glob(os.path.dirname(path) + '/../*/*.db') if not os.path.samefile(os.path.dirname(p), os.path.dirname(path))]
    if others and not os.path.lexists(path):
        os.symlink(others[0], path)
    con = sqlite3.connect(':memory:', isolation_level=None)
    return con
