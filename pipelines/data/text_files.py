"""Foreign files as text and as lines.

Law: a file that is not UTF-8 text is refused with what it is and where it stops
being text; of a file of lines that is one but for a few, those few are marked
and the others are read unharmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.data.record import LONGEST_RAW, unwritable
from pipelines.data.source_files import bytes_of
from pipelines.errors import InputError

OTHER = {  # how files of other kinds begin
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"PAR1": "Parquet",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe\0\0": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def relative(path: Path, base: Path) -> str:
    """The file's name below `base`: no machine's path enters a row."""
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name


def text_of(path: Path, base: Path) -> str:
    """Text of a UTF-8 file, byte order mark aside, line ends as they are. Raises InputError."""
    name, data = relative(path, base), _bytes_of(path, base)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise _not_utf8(name, data.count(b"\n", 0, e.start) + 1) from e
    if "\0" in text:
        raise _not_text(name, text.count("\n", 0, text.index("\0")) + 1)
    return text


def rough_text_of(path: Path, base: Path) -> str:
    """Text of a file that should be UTF-8: bytes that are none are lone surrogates. Raises InputError."""
    return _bytes_of(path, base).decode("utf-8-sig", "surrogateescape")


def lines_of(path: Path, base: Path, heads: int = 0) -> list[str]:
    """Lines of a UTF-8 file without their ends, LF or CRLF. Those for which `fault_of_line` tells
    a fault are not text and may not be kept.

    `heads` lines above the records must be text. Raises InputError, also when more than
    half of the lines of records are no text: then it is the file that is another's.
    """
    name = relative(path, base)
    lines = split_lines(rough_text_of(path, base), name)
    bad = [n for n, line in enumerate(lines) if fault_of_line(line)]
    told = sum(1 for line in lines[heads:] if line.strip())
    if bad and (bad[0] < heads or 2 * len(bad) > told):
        refused = _not_text if "\0" in lines[bad[0]] else _not_utf8
        raise refused(name, bad[0] + 1)
    return lines


def split_lines(text: str, name: str) -> list[str]:
    """Lines of a text, without their ends; U+2028 and its like end none.

    Raises InputError where CR alone would end them.
    """
    if "\r" in text.strip() and "\n" not in text:
        raise InputError("its lines end with CR alone", where=name, cure="end them with LF: tr '\\r' '\\n'")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def fault_of_line(line: str) -> str:
    """Why a line is no text: "" when it is."""
    if "\0" in line:
        return "it holds a NUL byte"
    return "it is not UTF-8" if not line.isascii() and unwritable(line) else ""


def raw_of(lines: Sequence[str]) -> str:
    """The lines as a reject may keep them: bytes that are no UTF-8 are written as escapes."""
    text = "\n".join(lines)[:LONGEST_RAW].replace("\0", "\\x00")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")[:LONGEST_RAW]


def _bytes_of(path: Path, base: Path) -> bytes:
    name = relative(path, base)
    data = bytes_of(path, name)
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError("the file is empty", where=name, cure="give a file with rows or take it away")
    if data.startswith(b"version https://git-lfs"):
        raise InputError("is a Git LFS pointer, not the data", where=name, cure="git lfs pull")
    kind = next((kind for magic, kind in OTHER.items() if data.startswith(magic)), None)
    if kind is not None:
        raise InputError(f"is not text but {kind}", where=f"{name}:1", cure="give UTF-8 text")
    return data


def _not_utf8(name: str, line: int) -> InputError:
    return InputError("is not UTF-8", where=f"{name}:{line}", cure="iconv -t UTF-8")


def _not_text(name: str, line: int) -> InputError:
    return InputError("is not text (it holds NUL bytes)", where=f"{name}:{line}", cure="give a text file")
