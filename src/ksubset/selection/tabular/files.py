"""Files of columns: read, check, and save some of them as they are."""

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from ksubset._support.files import write

__all__ = ["check_out", "read", "save"]

_ENDINGS = (".csv", ".parquet")


def read(data: Path) -> pd.DataFrame:
    """Read a file; its columns have Arrow's types, in which integers and truth values may be missing.

    Arguments:
        data: CSV (UTF-8, separated by commas, semicolons, tabs or bars) or Parquet, by its ending.

    Raises:
        ValueError: It is neither, or empty, or two columns have the same name.
        OSError: It cannot be read.
    """
    _check_ending(data, "data")
    if not data.is_file():
        raise FileNotFoundError(f"data: expected a file, got {data}")
    try:
        names = _header(data)[0] if data.suffix.lower() == ".csv" else pq.read_schema(data).names
        # pandas would rename them without a word.
        twice = sorted({name for name in names if name and names.count(name) > 1})
        frame = pd.DataFrame() if twice else _frame(data, names, dtype_backend="pyarrow")
    except ValueError as error:
        raise ValueError(f"data: expected a {data.suffix[1:]} file that can be read, got {data} ({error})") from error
    if twice:
        raise ValueError(f"data: expected columns of different names, got {', '.join(map(repr, twice))} more than once")
    if frame.empty:
        raise ValueError(f"data: expected columns and rows, got none in {data}")
    return frame


def check_out(out: Path, data: Path) -> None:
    """Check that columns can be written to a file, before a long search for them.

    Raises:
        ValueError: The ending is neither that of CSV nor of Parquet, or the file is that of the data.
        OSError: There is no such folder.
    """
    _check_ending(out, "out")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"out: expected a file in a folder that exists, got {out}")
    if out.resolve() == data.resolve():
        raise ValueError(f"out: expected another file than that of the data, got {out}")


def save(data: Path, columns: Collection[str], out: Path) -> None:
    """Write some columns of a file, all rows, in its order, with its types; from CSV to CSV the very same cells.

    Raises:
        OSError: The file cannot be written; what was there stays.
    """
    if data.suffix.lower() == out.suffix.lower() == ".csv":
        frame = _frame(data, columns, dtype=str, keep_default_na=False)
    else:
        frame = _frame(data, columns, dtype_backend="pyarrow")
    frame = frame[[name for name in frame.columns if name in columns]]
    content = frame.to_csv(index=False).encode() if out.suffix.lower() == ".csv" else frame.to_parquet(index=False)
    write(out, content)


def _check_ending(path: Path, argument: str) -> None:
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{argument}: expected a file that ends in {' or '.join(_ENDINGS)}, got {path}")


def _header(path: Path) -> tuple[list[str], str]:
    """Names of the columns of a CSV file, and what separates them."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = next(filter(str.strip, file), "")
    separator = max(",;\t|", key=line.count)
    return next(csv.reader(io.StringIO(line), delimiter=separator), []), separator


def _frame(path: Path, columns: Collection[str], **options: Any) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        in_order = [name for name in pq.read_schema(path).names if name in columns]
        return pd.read_parquet(path, columns=in_order, **options).reset_index(drop=True)
    separator = _header(path)[1]
    return pd.read_csv(path, sep=separator, encoding="utf-8-sig", index_col=False, low_memory=False, **options)
