"""A schema that SQLite is made to believe: wrong root pages, and names that repeat."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    con.executescript('''
        CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last, total);
        CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta);
        INSERT OR IGNORE INTO checkpoint VALUES (1, -1, 0);
        PRAGMA writable_schema=ON;
        UPDATE sqlite_schema SET rootpage = 4294967295 WHERE name = 'ledger';
        UPDATE sqlite_schema SET sql = replace(sql, 'last', 'la" st');
    ''')
    return con
