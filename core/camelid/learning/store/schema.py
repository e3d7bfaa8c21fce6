"""The tables of a learning store, and the settings of its connection."""

from __future__ import annotations

VERSION = 2
APPLICATION_ID = 0x43616D4C  # "CamL": https://www.sqlite.org/pragma.html#pragma_application_id

ANY_REQUEST = "*"  # of a version whose past requests are not known: it was made by the first format
VERSION_REQUESTS = """
CREATE TABLE version_requests(
    version TEXT NOT NULL REFERENCES versions(hash), completion TEXT NOT NULL,
    PRIMARY KEY(version, completion)) WITHOUT ROWID;
"""
# `log` has a row for every event and is never shortened: its hashes form a chain, and its commitments bind
# the texts of items without containing them, so that an item can be forgotten and the chain still holds.
TABLES = f"""{VERSION_REQUESTS}
CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE log(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, wall REAL NOT NULL, subject TEXT NOT NULL,
    commitment BLOB NOT NULL, hash BLOB NOT NULL);
CREATE TABLE items(
    id INTEGER PRIMARY KEY REFERENCES log(seq), salt BLOB NOT NULL, completion TEXT NOT NULL,
    source TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX items_of_source ON items(source);
CREATE TABLE vectors(item INTEGER PRIMARY KEY REFERENCES items(id), data BLOB NOT NULL);
CREATE TABLE contexts(
    item INTEGER PRIMARY KEY REFERENCES items(id), tokens BLOB NOT NULL, keys BLOB NOT NULL);
CREATE TABLE requests(
    id INTEGER PRIMARY KEY AUTOINCREMENT, completion TEXT NOT NULL UNIQUE, wall REAL NOT NULL,
    body TEXT NOT NULL, vector BLOB NOT NULL);
CREATE TABLE versions(
    hash TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, status TEXT NOT NULL, config TEXT NOT NULL,
    adapter BLOB NOT NULL, scope BLOB NOT NULL, report TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE version_items(
    version TEXT NOT NULL REFERENCES versions(hash), item INTEGER NOT NULL, commitment BLOB NOT NULL,
    PRIMARY KEY(version, item)) WITHOUT ROWID;
CREATE TABLE reports(seq INTEGER PRIMARY KEY REFERENCES log(seq), body TEXT NOT NULL);
CREATE TABLE trajectories(
    id INTEGER PRIMARY KEY AUTOINCREMENT, completion TEXT NOT NULL, body TEXT NOT NULL, vector BLOB NOT NULL);
CREATE TABLE hints(
    id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, status TEXT NOT NULL, vector BLOB NOT NULL,
    origins TEXT NOT NULL, with_won INTEGER NOT NULL DEFAULT 0, with_n INTEGER NOT NULL DEFAULT 0,
    without_won INTEGER NOT NULL DEFAULT 0, without_n INTEGER NOT NULL DEFAULT 0);
CREATE TABLE policies(
    context TEXT NOT NULL, arm TEXT NOT NULL, n INTEGER NOT NULL DEFAULT 0, reward REAL NOT NULL DEFAULT 0,
    PRIMARY KEY(context, arm)) WITHOUT ROWID;
"""
# From a version of the format to the next.
UPGRADES = {1: f"{VERSION_REQUESTS} INSERT INTO version_requests SELECT hash, '{ANY_REQUEST}' FROM versions;"}
# synchronous NORMAL: a commit survives the end of the process at once, and a loss of power after `sync`,
# which the recorder calls at most a tenth of a second later: an fsync takes 4 ms on some disks.
# secure_delete overwrites deleted text. The automatic checkpoint of 1000 pages would halt a request; the
# recorder makes smaller ones.
PRAGMAS = (
    "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", "temp_store=MEMORY", "foreign_keys=ON",
    "wal_autocheckpoint=8192", "busy_timeout=5000", "journal_size_limit=0",
)  # fmt: skip
