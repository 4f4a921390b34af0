"""Which files of a folder are data, what each is called, and its bytes.

Law: no file of a folder is passed over in silence: it is data (a known suffix, perhaps packed), it is
named by `left_out`, or it is refused. A packed file is read as what it holds, whole or not at all.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.data.record import unwritable
from pipelines.errors import InputError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}  # a suffix behind one of SUFFIXES
LARGEST = 2**32  # bytes that a packed file may unpack to
KNOWN = f"known suffixes: {', '.join(SUFFIXES)}, each perhaps with {', '.join(PACKED)} behind it"


def data_files(folder: Path) -> list[Path]:
    """All files below `folder` with a known suffix, sorted.

    Raises InputError when there are none, and for one that is there by name alone, that has a name which
    is no text, or that stands both packed and unpacked.
    """
    files = sorted(path for path in _files(folder) if is_data(path))
    if not files:
        raise InputError("holds no data files", where=str(folder), cure=KNOWN)
    plain: dict[Path, Path] = {}
    for path in files:
        require_named(path)
        _require_regular(path, folder)
        twin = plain.setdefault(path.with_name(_unpacked_name(path)), path)
        if twin != path:
            what = f"stands here as {twin.name!r}, too: its rows would be read twice"
            raise InputError(what, where=_below(path, folder), cure="take one of them away")
    return files


def left_out(folder: Path) -> list[str]:
    """Names below `folder` that no reader takes, sorted: files of other suffixes, hidden ones, and
    (`name/`) folders that nothing looks into: hidden ones and links."""
    found = [_below(path, folder) for path in _files(folder) if not is_data(path)]
    closed = [
        f"{_below(at / name, folder)}/"
        for at, folders, _ in _walk(folder)
        for name in folders
        if name.startswith(".") or (at / name).is_symlink()
    ]
    return sorted([*found, *closed])


def is_data(path: Path) -> bool:
    """True for a file with a known suffix that is not hidden."""
    return not path.name.startswith(".") and suffix_of(path) in SUFFIXES


def suffix_of(path: Path) -> str:
    """What a file holds, by its name: ".csv" of "a.CSV" and of "a.csv.gz"; any other suffix as it is."""
    return Path(_unpacked_name(path)).suffix.lower()


def stem_of(path: Path) -> str:
    """The file's name without its suffix: "a" of "a.csv" and of "a.csv.gz"."""
    return Path(_unpacked_name(path)).stem


def require_named(path: Path) -> None:
    """Raises InputError for a file whose name is no text: rows could not say where they come from."""
    if unwritable(str(path)):
        name = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError("the file's name is not UTF-8", where=name, cure="rename it")


def bytes_of(path: Path, name: str) -> bytes:
    """All bytes of a file, unpacked where its name says that it is packed. `name` is for messages.

    Raises InputError when it cannot be read, is damaged, or is not packed as its name says.
    """
    kind = PACKED.get(path.suffix.lower()) if is_data(path) else None
    try:
        if kind is None:
            return path.read_bytes()
        with _opened(path, kind) as stream:
            data: bytes = stream.read(LARGEST + 1)
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as e:
        raise _damaged(name, str(kind), str(e)) from e
    except OSError as e:
        if e.errno is None and kind is not None:  # how bzip2 and zstd tell damage
            raise _damaged(name, kind, str(e)) from e
        raise InputError(f"cannot be read: {e.strerror}", where=name) from e
    if len(data) > LARGEST:
        what = f"unpacks to more than {LARGEST // 2**30} GiB"
        raise InputError(what, where=name, cure="split it, or unpack it and give a part")
    return data


def _opened(path: Path, kind: str) -> Any:
    """A stream of what the file holds; its `read` raises what its kind of packing raises."""
    if kind == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    if kind == "xz":
        return lzma.open(path)
    return bz2.open(path) if kind == "bzip2" else gzip.open(path)


def _damaged(name: str, kind: str, what: str) -> InputError:
    return InputError(f"is no whole {kind} file: {what}", where=name, cure="is it damaged, or misnamed?")


def _unpacked_name(path: Path) -> str:
    """The name without the suffix of its packing, where one of SUFFIXES stands before it."""
    inner = Path(path.stem)
    packed = path.suffix.lower() in PACKED and inner.suffix.lower() in SUFFIXES
    return inner.name if packed else path.name


def _files(folder: Path) -> Iterator[Path]:
    """All that is no folder below `folder`, hidden folders aside. Raises InputError."""
    for at, _, names in _walk(folder):
        yield from (at / name for name in names)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    def refuse(e: OSError) -> None:
        name = _below(Path(str(e.filename)), folder)
        raise InputError(f"cannot be listed: {e.strerror}", where=name, cure="make it readable") from e

    for at, folders, names in os.walk(folder, onerror=refuse):
        yield Path(at), list(folders), names
        folders[:] = [name for name in folders if not name.startswith(".")]


def _require_regular(path: Path, folder: Path) -> None:
    """Raises InputError for a pipe, a device, or a link that leads to no file."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except OSError as e:
        what = "is a link that leads to no file" if path.is_symlink() else f"cannot be read: {e.strerror}"
        raise InputError(what, where=_below(path, folder), cure="mend it or take it away") from e
    if not regular:
        raise InputError("is no file", where=_below(path, folder), cure="give a file or take it away")


def _below(path: Path, folder: Path) -> str:
    name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
    return name.encode("utf-8", "backslashreplace").decode()
