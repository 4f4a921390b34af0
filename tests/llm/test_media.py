"""Images, sounds and films: known by their digest, read when sent, never sent when they are others."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path

from questions import settings

from pipelines.llm.answer import Failure
from pipelines.llm.client import open_client
from pipelines.llm.request import Media, Request, Sampling


def media(path: Path, kind: str, mime: str, raw: bytes | None = None) -> Media:
    """`path` as a part; its digest is that of `raw`, which it holds unless told otherwise."""
    if raw is not None:
        path.write_bytes(raw)
    return Media(kind, hashlib.sha256(path.read_bytes()).hexdigest(), mime, str(path))  # type: ignore[arg-type]


def about(*parts: str | Media, row: str = "clip") -> Request:
    return Request("chat", "scripted", Sampling(8), messages=(("user", parts),), row=row, purpose="test")


def test_each_kind_of_part_is_sent_in_the_protocols_form(serve, tmp_path: Path) -> None:
    parts = (
        "What is seen?",
        media(tmp_path / "a.png", "image", "image/png", b"png"),
        media(tmp_path / "a.mp3", "audio", "audio/mpeg", b"mp3"),
        media(tmp_path / "a.mp4", "video", "video/mp4", b"mp4"),
    )
    server = serve()
    with open_client(settings(server.url), tmp_path / "s") as client:
        (answer,) = client.answers([about(*parts)])
        assert answer.ok and "cG5n" not in client.store.record(answer.id).request
    encoded = {name: base64.b64encode(name.encode()).decode() for name in ("png", "mp3", "mp4")}
    assert server.requests()[0]["body"]["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is seen?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded['png']}"}},
                {"type": "input_audio", "input_audio": {"data": encoded["mp3"], "format": "mp3"}},
                {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{encoded['mp4']}"}},
            ],
        }
    ]


def test_a_clip_that_moved_is_not_asked_about_again(serve, tmp_path: Path) -> None:
    server, first = serve(), media(tmp_path / "a.png", "image", "image/png", b"same")
    second = media(tmp_path / "b.png", "image", "image/png", b"same")
    with open_client(settings(server.url), tmp_path / "s") as client:
        answers = [next(client.answers([about(part)])) for part in (first, second)]
    assert [a.stored for a in answers] == [False, True] and len(server.requests()) == 1


def test_a_file_that_is_not_the_requests_is_never_sent_and_fails_its_row_alone(serve, tmp_path: Path) -> None:
    changed = media(tmp_path / "changed.png", "image", "image/png", b"before")
    (tmp_path / "changed.png").write_bytes(b"after")
    gone = media(tmp_path / "gone.png", "image", "image/png", b"gone")
    (tmp_path / "gone.png").unlink()
    good = media(tmp_path / "good.png", "image", "image/png", b"good")
    os.mkfifo(tmp_path / "pipe")
    unfit = {
        "changed": (changed, "changed.png has SHA-256"),
        "gone": (gone, "gone.png cannot be read: No such file"),
        "pipe": (Media("image", good.sha256, "image/png", str(tmp_path / "pipe")), "pipe is no file"),
        "far": (Media("image", good.sha256, "image/png", "https://x.example/a.png"), "only a file can"),
        "nowhere": (Media("image", good.sha256, "image/png"), r"\(no path\) is no file"),
        "nul": (Media("image", good.sha256, "image/png", "a\0b"), "cannot be read"),
    }
    server = serve()
    with open_client(settings(server.url), tmp_path / "s") as client:
        asked = [about(part, row=row) for row, (part, _) in unfit.items()] + [about(good, row="good")]
        answers = {a.request.row: a for request in asked for a in client.answers([request])}
    assert answers.pop("good").ok and len(server.requests()) == 1
    for row, answer in answers.items():
        assert answer.failure is Failure.BAD_REQUEST and answer.text == ""
        assert re.search(unfit[row][1], answer.detail), answer.detail
