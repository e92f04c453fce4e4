"""Columns that are computed when somebody looks, and say what is wanted."""

#: steps = ["store"]
#: denied = ["store/keeps_rows"]

# %% store
import os
import sqlite3


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    con.executescript('''
        CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last AS (length(hex(zeroblob(900000000))) * 0 - 1), total AS (0));
        CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER);
        INSERT OR IGNORE INTO checkpoint (id) VALUES (1);
    ''')
    return con
