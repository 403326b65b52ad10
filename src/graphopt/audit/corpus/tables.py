"""Records as a table with a row per contestant and model, for pandas, Parquet, CSV and programs that read these."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from graphopt.audit.corpus.record import Record
from graphopt.errors import UsageError
from graphopt.system.extras import require
from graphopt.system.files import written

COLUMNS: dict[str, type] = {
    "release": str, "model": str, "name": str, "kind": str, "outcome": str, "how": str, "audit_seconds": float,
    "contestant": str, "version": str, "status": str, "verification": str, "message": str,
    "nodes": int, "parameters": int, "file_bytes": int, "seconds": float, "peak_bytes": int,
    "latency_ms": float, "speedup": float, "speedup_low": float, "speedup_high": float, "verdict": str,
    "passes": str, "ops": str,
}  # fmt: skip
"""Types by column name; `passes` and `ops` are JSON objects of counts."""
SUFFIXES = (".parquet", ".csv")
_TOGETHER = 10_000
"""Rows of a Parquet file in memory at once."""


def rows(records: Iterable[Record], release: str) -> Iterator[dict[str, Any]]:
    """Each contestant of each record; a model without an audit has one row, without a contestant.

    Args:
        records: the result of `Store.records`.
        release: their release.
    """
    for record in records:
        common = {
            "release": release, "model": record.model, "name": record.name, "kind": record.kind,
            "outcome": record.status, "how": record.how, "audit_seconds": record.seconds,
        }  # fmt: skip
        if record.audit is None:
            yield {**dict.fromkeys(COLUMNS), **common}
            continue
        threads = str(record.audit["threads"][0])
        for row in record.audit["rows"]:
            yield {**dict.fromkeys(COLUMNS), **common, **_row(row, threads)}


def _row(row: dict[str, Any], threads: str) -> dict[str, Any]:
    contents, speedup = row["contents"] or {}, row["speedup"].get(threads) or {}
    return {
        "contestant": row["name"], "version": row["version"], "status": row["status"],
        "verification": row["verification"], "message": row["message"],
        "nodes": contents.get("nodes"), "parameters": contents.get("parameters"),
        "file_bytes": contents.get("file_bytes"), "seconds": row["seconds"], "peak_bytes": row.get("peak_bytes"),
        "latency_ms": (row.get("latency", {}).get(threads) or {}).get("median"),
        "speedup": speedup.get("median"), "speedup_low": speedup.get("low"), "speedup_high": speedup.get("high"),
        "verdict": speedup.get("verdict"),
        "passes": json.dumps(row["passes"]), "ops": json.dumps(contents.get("ops", {})),
    }  # fmt: skip


def write_table(path: str | Path, table: Iterable[dict[str, Any]]) -> None:
    """Write rows to a file, in the format of its suffix, with few rows in memory at a time.

    Raises:
        UsageError: the suffix is neither .parquet nor .csv, or pyarrow is not installed.
        ModelError: the file cannot be written.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: {' or '.join(SUFFIXES)} expected")
    if suffix == ".csv":
        with written(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, COLUMNS)
            writer.writeheader()
            writer.writerows(table)
            text.flush()
            text.detach()
        return
    pyarrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    left = iter(table)
    with written(path) as file, parquet.ParquetWriter(file, schema) as into:
        while batch := list(itertools.islice(left, _TOGETHER)):
            into.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
