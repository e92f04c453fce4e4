"""Absurd numbers of rows, absurdly large values, and text where integers belong."""

#: steps = ["store"]
#: denied = ["store/schema", "store/keeps_rows", "store/first_open_killed", "store/two_openers"]

# %% store
import os
import sqlite3


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    con.executescript('''
        CREATE TABLE IF NOT EXISTS checkpoint (id, last, total);
        CREATE TABLE IF NOT EXISTS ledger (seq, delta);
        BEGIN;
        INSERT INTO checkpoint VALUES (1, x'00ff', 'nine'), (1, 9e999, 12345678901234567890123), (NULL, NULL, NULL);
        INSERT INTO ledger WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 300000) SELECT i, i FROM n;
        INSERT INTO ledger VALUES (1, hex(zeroblob(9000000)));
        COMMIT;
    ''')
    return con
