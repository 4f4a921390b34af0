"""The images, sounds and films of a request, read when it is sent.

Law: the bytes sent are those that the key names. A file whose SHA-256 is not the request's is never
sent: that row fails, and says which file. So a path in a row gives nothing away: who does not know a
file's digest cannot have it sent.
"""

from __future__ import annotations

import base64
import hashlib
import stat
from pathlib import Path
from typing import Any

from pipelines.llm.request import Media, Request

MOST_BYTES = 1 << 29  # of one part; it is held in memory, and a third larger on its way
FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "mp4": "m4a"}


class MediaFault(Exception):
    """A part that cannot be sent: it fails its own row."""


def has_media(request: Request) -> bool:
    """Whether a message holds more than text."""
    return any(not isinstance(said, str) for _, said in request.messages)


def read_media(request: Request) -> dict[str, str]:
    """The bytes of all parts in base64, by their SHA-256. Raises MediaFault."""
    parts = [
        part
        for _, said in request.messages
        if not isinstance(said, str)
        for part in said
        if isinstance(part, Media)
    ]
    return {part.sha256: _read(part) for part in {p.sha256: p for p in parts}.values()}


def content_part(part: str | dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """One part of a message in the protocol's form; `part` is as the canonical request has it."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind, mime, raw = part["media"], part["mime"], data[part["sha256"]]
    if kind == "audio":
        subtype = mime.split("/", 1)[1]
        sound = {"data": raw, "format": FORMATS.get(subtype, subtype)}
        return {"type": "input_audio", "input_audio": sound}
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{mime};base64,{raw}"}}


def _read(part: Media) -> str:
    if "://" in part.ref:
        raise MediaFault(f"{part.kind} {part.ref}: only a file can be checked; fetch it first")
    try:
        path = Path(part.ref)
        told = path.stat()
        if not stat.S_ISREG(told.st_mode):
            raise MediaFault(f"{part.kind} {part.ref or '(no path)'} is no file")
        if told.st_size > MOST_BYTES:
            raise MediaFault(
                f"{part.kind} {part.ref} has {told.st_size} bytes, at most {MOST_BYTES} are sent"
            )
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise MediaFault(f"{part.kind} {part.ref or '(no path)'} cannot be read: {why}") from None
    found = hashlib.sha256(raw).hexdigest()
    if found != part.sha256:
        what = f"has SHA-256 {found[:12]}..., the request names {part.sha256[:12]}..."
        raise MediaFault(f"{part.kind} {part.ref} {what}")
    return base64.b64encode(raw).decode("ascii")
