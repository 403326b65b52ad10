"""The store of a corpus: one SQLite file with one writer, which survives the writer's death at any moment."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from graphopt.audit.corpus.record import CorpusSettings, Record, Reference, digest_of
from graphopt.errors import ModelError, UsageError
from graphopt.system.locks import try_lock

SCHEMA = 1
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names(name TEXT PRIMARY KEY, digest TEXT NOT NULL, files TEXT NOT NULL, stamp TEXT NOT NULL)
    WITHOUT ROWID;
CREATE INDEX names_of ON names(digest);
CREATE TABLE campaigns(id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL, release TEXT NOT NULL,
    settings TEXT NOT NULL, versions TEXT NOT NULL, begun REAL NOT NULL);
CREATE TABLE records(model TEXT NOT NULL, campaign INTEGER NOT NULL REFERENCES campaigns, kind TEXT NOT NULL,
    status TEXT NOT NULL, settled INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(model, campaign, kind))
    WITHOUT ROWID;
CREATE TABLE repeats(model TEXT NOT NULL, campaign INTEGER NOT NULL REFERENCES campaigns, kind TEXT NOT NULL,
    number INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(model, campaign, kind, number)) WITHOUT ROWID;
"""
_CAMPAIGN = "identity, release, settings, versions, begun"
_UNREAD = "FROM listed LEFT JOIN names USING(name) WHERE names.name IS NULL AND listed.name LIKE '%://%'"
_PUT = """
INSERT INTO records VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET status = excluded.status,
    settled = excluded.settled, body = excluded.body WHERE NOT records.settled
"""


@dataclass(frozen=True, slots=True)
class Campaign:
    """All audits with the same settings and versions.

    Attributes:
        number: its number in the store.
        release: its name in reports.
        settings: the settings of the audits.
        versions: the versions of all software involved.
        begun: start time, in seconds since 1970.
    """

    number: int
    release: str
    settings: dict[str, Any]
    versions: dict[str, str]
    begun: float


class Store:
    """An open store; used in a `with` statement.

    Args:
        path: the file.
        write: whether to write to it; it is created if missing.
        there: whether it must exist even so.

    Raises:
        ModelError: it is missing, is not a store, or cannot be written.
        UsageError: another run writes to it.
    """

    def __init__(self, path: str | Path, *, write: bool = False, there: bool = False) -> None:
        self.path = Path(path)
        self._held = ExitStack()
        if (there or not write) and not self.path.is_file():
            raise ModelError(f"{path}: not a store of audits")
        try:
            if write and not try_lock(self.path.with_name(self.path.name + ".lock"), self._held):
                raise UsageError(f"{path}: another run writes to it")
            mode = "rwc" if write else "ro"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None)
            self._held.callback(self._db.close)
            self._open(write)
        except sqlite3.Error as error:
            self.close()
            raise ModelError(f"{path}: not a usable store of audits: {error}") from error
        except OSError as error:
            self.close()
            raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, write: bool) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        if "campaigns" not in tables and (tables or not write):  # a database of another program must not be changed
            raise ModelError(f"{self.path}: not a store of audits")
        if write:
            # Each commit reaches the system at once, so that a kill loses nothing; a power failure may lose seconds.
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if not tables:
                self._db.executescript(
                    f"BEGIN; {_TABLES} INSERT INTO meta VALUES('schema', '{SCHEMA}'); "
                    "INSERT INTO meta VALUES('of', 'graphopt corpus'); COMMIT;"
                )
        found = self._db.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
        if found is None:
            raise ModelError(f"{self.path}: not a store of audits")
        if int(found[0]) != SCHEMA:
            raise ModelError(f"{self.path}: a store of schema {found[0]}, expected {SCHEMA}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; then other processes may open it."""
        self._held.close()

    # -- names

    def list_names(self, names: Iterable[str]) -> int:
        """Make these the names of the present run; returns their number."""
        self._db.execute("CREATE TEMP TABLE listed(number INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO listed(name) VALUES(?)", ((name,) for name in names))
        self._db.execute("COMMIT")
        return int(self._db.execute("SELECT COUNT(*) FROM listed").fetchone()[0])

    def references(self) -> Iterator[Reference]:
        """The models of the present run, with their known digests, files and stamps."""
        last = 0
        while rows := self._db.execute(
            "SELECT number, listed.name, digest, files, stamp FROM listed LEFT JOIN names ON names.name = listed.name "
            "WHERE number > ? ORDER BY number LIMIT 500", (last,),
        ).fetchall():  # fmt: skip
            last = rows[-1][0]
            for _, name, digest, files, stamp in rows:
                yield Reference(name, digest or "", tuple(json.loads(files or "[]")), stamp or "")

    def names_of(self, model: str) -> list[str]:
        """All names of a model."""
        query = "SELECT name FROM names WHERE digest = ? ORDER BY name"
        return [name for (name,) in self._db.execute(query, (model,))]

    def put_references(self, references: Iterable[Reference]) -> None:
        """Store the digests of models."""
        rows = [(each.name, each.digest, json.dumps(each.files), each.stamp) for each in references]
        self._db.execute("BEGIN")
        # A record that the model could not be read is obsolete.
        self._db.executemany("DELETE FROM records WHERE model = ?", ((digest_of(name),) for name, *_ in rows))
        self._db.executemany("INSERT OR REPLACE INTO names VALUES(?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def forget(self, name: str) -> None:
        """Delete a name whose model can no longer be read."""
        self._db.execute("DELETE FROM names WHERE name = ?", (name,))

    # -- records

    def campaign(self, settings: CorpusSettings, versions: dict[str, str], release: str) -> Campaign:
        """The campaign with these settings and versions; a new one if there is none."""
        plain = json.loads(json.dumps(settings.to_dict()))
        identity = digest_of([plain, versions])
        values = (identity, release, json.dumps(plain), json.dumps(versions), time.time())
        self._db.execute(f"INSERT OR IGNORE INTO campaigns({_CAMPAIGN}) VALUES(?, ?, ?, ?, ?)", values)
        return next(each for each in self.campaigns() if each.settings == plain and each.versions == versions)

    def campaigns(self) -> list[Campaign]:
        """All campaigns, oldest first."""
        rows = self._db.execute("SELECT id, release, settings, versions, begun FROM campaigns ORDER BY begun, id")
        return [Campaign(n, release, json.loads(s), json.loads(v), at) for n, release, s, v, at in rows]

    def plan(self, campaign: Campaign, kinds: Sequence[str]) -> int:
        """Determine which models of the present run are to be audited; returns their number."""
        self._db.execute("CREATE TEMP TABLE settled(digest TEXT PRIMARY KEY) WITHOUT ROWID")
        marks = ",".join("?" * len(kinds))
        self._db.execute(
            "INSERT OR IGNORE INTO temp.settled "
            f"SELECT model FROM records WHERE campaign = ? AND settled AND kind IN ({marks})",
            (campaign.number, *kinds),
        )
        self._db.execute(
            "CREATE TEMP TABLE todo AS SELECT MIN(number) AS number, digest FROM listed JOIN names USING(name) "
            "WHERE digest NOT IN (SELECT digest FROM settled) GROUP BY digest"
        )
        self._db.execute("CREATE INDEX temp.todo_number ON todo(number)")
        self._db.execute("CREATE UNIQUE INDEX temp.todo_digest ON todo(digest)")
        return int(self._db.execute("SELECT COUNT(*) FROM todo").fetchone()[0])

    def todo(self) -> Iterator[Reference]:
        """The models that `plan` found, each once."""
        last = 0
        while rows := self._db.execute(
            "SELECT todo.number, name, digest, files, stamp FROM todo JOIN listed USING(number) JOIN names "
            "USING(name, digest) WHERE todo.number > ? ORDER BY todo.number LIMIT 500", (last,),
        ).fetchall():  # fmt: skip
            last = rows[-1][0]
            for _, name, digest, files, stamp in rows:
                yield Reference(name, digest, tuple(json.loads(files)), stamp)

    def claim(self, reference: Reference) -> bool:
        """Whether a model that was read since `plan` is to be audited; True once per model."""
        if self._db.execute("SELECT 1 FROM settled WHERE digest = ?", (reference.digest,)).fetchone():
            return False
        row = (None, reference.digest)
        return self._db.execute("INSERT OR IGNORE INTO todo(number, digest) VALUES(?, ?)", row).rowcount > 0

    def unread(self) -> int:
        """The number of names of the present run behind URLs whose contents are unknown."""
        return int(self._db.execute(f"SELECT COUNT(*) {_UNREAD}").fetchone()[0])

    def unread_names(self) -> Iterator[str]:
        """Names of the present run behind URLs whose contents are unknown."""
        last = 0
        query = f"SELECT number, listed.name {_UNREAD} AND number > ? ORDER BY number LIMIT 500"
        while rows := self._db.execute(query, (last,)).fetchall():
            last = rows[-1][0]
            yield from (name for _, name in rows)

    def listed_models(self) -> int:
        """The number of distinct models of the present run, as far as they can be read."""
        query = "SELECT COUNT(DISTINCT digest) FROM listed JOIN names USING(name)"
        return int(self._db.execute(query).fetchone()[0])

    def put(self, campaign: Campaign, record: Record) -> bool:
        """Store a record unless a settled one exists; whether it was stored."""
        values = (record.model, campaign.number, record.kind, record.status, record.settled, _body(record))
        return self._db.execute(_PUT, values).rowcount > 0

    def records(self, campaign: Campaign) -> Iterator[Record]:
        """All records of a campaign, by model."""
        query = "SELECT body FROM records WHERE campaign = ? ORDER BY model, kind"
        yield from (_record(body) for (body,) in self._db.execute(query, (campaign.number,)))

    def record(self, campaign: Campaign, model: str, kind: str | None = None) -> Record | None:
        """One record, of any kind of machine if `kind` is None; None if there is none."""
        wanted, of_kind = [campaign.number, model], ""
        if kind is not None:
            wanted, of_kind = [*wanted, kind], "AND kind = ?"
        query = f"SELECT body FROM records WHERE campaign = ? AND model = ? {of_kind} ORDER BY kind"
        row = self._db.execute(query, wanted).fetchone()
        return None if row is None else _record(row[0])

    def repeats(self, campaign: Campaign, model: str, kind: str) -> list[Record]:
        """The records of repeated measurements."""
        query = "SELECT body FROM repeats WHERE campaign = ? AND model = ? AND kind = ? ORDER BY number"
        return [_record(body) for (body,) in self._db.execute(query, (campaign.number, model, kind))]

    def put_repeat(self, campaign: Campaign, record: Record) -> None:
        """Store a repeated measurement beside its record."""
        number = len(self.repeats(campaign, record.model, record.kind))
        self._db.execute(
            "INSERT INTO repeats VALUES(?, ?, ?, ?, ?)",
            (record.model, campaign.number, record.kind, number, _body(record)),
        )

    def merge(self, other: Store) -> int:
        """Copy what another store has and this one lacks; returns the number of records."""
        names = other._db.execute("SELECT name, digest, files, stamp FROM names")
        self._db.executemany("INSERT OR IGNORE INTO names VALUES(?, ?, ?, ?)", names)
        taken = 0
        query = "SELECT id, identity, release, settings, versions, begun FROM campaigns"
        for theirs, *values in other._db.execute(query).fetchall():
            self._db.execute(f"INSERT OR IGNORE INTO campaigns({_CAMPAIGN}) VALUES(?, ?, ?, ?, ?)", values)
            find = "SELECT id FROM campaigns WHERE identity = ?"
            ours = self._db.execute(find, (values[0],)).fetchone()[0]
            self._db.execute("BEGIN")
            query = "SELECT model, ?, kind, status, settled, body FROM records WHERE campaign = ?"
            for row in other._db.execute(query, (ours, theirs)):
                taken += self._db.execute(_PUT, row).rowcount
            query = "SELECT model, ?, kind, number, body FROM repeats WHERE campaign = ?"
            rows = other._db.execute(query, (ours, theirs))
            self._db.executemany("INSERT OR IGNORE INTO repeats VALUES(?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        return taken

    def count(self, campaign: Campaign) -> dict[str, int]:
        """The number of models with each status; a model that was timed on several kinds of machine counts once."""
        query = (
            "SELECT status, COUNT(*) FROM (SELECT model, MIN(status) AS status FROM records WHERE campaign = ? "
            "GROUP BY model) GROUP BY status"
        )
        return dict(self._db.execute(query, (campaign.number,)).fetchall())


def _body(record: Record) -> bytes:
    return zlib.compress(json.dumps(record.to_dict()).encode())


def _record(body: bytes) -> Record:
    found = json.loads(zlib.decompress(body))
    found["tries"] = tuple(found["tries"])
    return Record(**found)
