"""Views named like the tables, that never come to an end of their rows."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    endless = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT i AS seq, i AS delta FROM n"
    con.executescript(f'''
        CREATE VIEW IF NOT EXISTS ledger AS {endless};
        CREATE VIEW IF NOT EXISTS checkpoint AS SELECT 1 AS id, -1 AS last, count(*) AS total FROM ledger;
    ''')
    return con
