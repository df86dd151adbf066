"""Recordings as a Parquet file of the same rows as CSV, by pyarrow, which is an extra."""

from __future__ import annotations

from itertools import islice
from typing import Any, BinaryIO

from agent.commands.export.row_files import COLUMNS, Row, rows_of
from agent.commands.export.selected_snapshots import SelectedSnapshots

ROWS = 500_000
"""Rows that are held and written at a time."""


class MissingLibraryError(Exception):
    """pyarrow is not installed; the text has the remedy."""


def library() -> Any:
    """pyarrow. Raises MissingLibraryError."""
    try:
        import pyarrow  # type: ignore[import-not-found,unused-ignore]  # an extra
        import pyarrow.parquet  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ImportError as error:
        raise MissingLibraryError(
            "Parquet needs pyarrow, which is not installed: install it beside coldplate (pip install pyarrow), or use "
            f"--format csv ({error})"
        ) from error
    return pyarrow


def write_parquet(snapshots: SelectedSnapshots, pyarrow: Any, out: BinaryIO) -> None:
    """Write the file. Raises RecordingError, and OSError where the disk is full."""
    word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = (pyarrow.timestamp("ms", tz="UTC"), word, word, word, pyarrow.float64())
    schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))
    rows = rows_of(snapshots)
    with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while chunk := list(islice(rows, ROWS)):
            writer.write_table(_table(pyarrow, schema, chunk))


def _table(pyarrow: Any, schema: Any, rows: list[Row]) -> Any:
    times, *words, values = zip(*rows, strict=True)
    arrays = [pyarrow.array([round(wall * 1000) for wall in times], pyarrow.timestamp("ms", tz="UTC"))]
    arrays += [pyarrow.array(each, pyarrow.string()).dictionary_encode() for each in words]
    arrays.append(pyarrow.array(values, pyarrow.float64()))
    return pyarrow.table(arrays, schema=schema)
