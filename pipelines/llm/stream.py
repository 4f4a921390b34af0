"""A streamed reply (server-sent events), joined into the one body that the server would else have sent.

Law: a stream is whole when it said `[DONE]`, or where a server never says so, when each of its choices
said why it ended; whatever ends before is a broken body, never a short answer. An error told in the stream
is that error.
"""

from __future__ import annotations

import codecs
from typing import Any

import orjson

from pipelines.llm.protocol import text_of

DONE = b"[DONE]"
MOST_BYTES = 1 << 26  # of one reply
MOST_CHOICES = 1024  # sellers give 128 at most


class _Grown(list[str]):
    """A text in pieces, which are joined once: to copy it with each piece would take their number squared."""


class Pieces:
    """What came so far. `feed` it as it comes; `started` once an event was there."""

    def __init__(self) -> None:
        self.started = self.whole = False
        self._sure = True
        self._line = b""
        self._data: list[bytes] = []
        self._bytes = 0
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, chunk: bytes) -> None:
        """Take bytes, cut anywhere. Raises ValueError for what is no event of the protocol."""
        if not self._bytes:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
        self._bytes += len(chunk)
        if self._bytes > MOST_BYTES:
            raise ValueError(f"a reply of more than {MOST_BYTES} bytes")
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in (read.rstrip(b"\r") for read in lines):
            if line.startswith(b"data:"):
                self._data.append(line[5:].lstrip(b" "))
            elif line.startswith(b"error:"):  # as llama.cpp's server tells one
                self._error(line[6:].strip())
            elif not line and self._data:
                try:
                    self._event(b"\n".join(self._data))
                except (TypeError, KeyError, AttributeError) as error:
                    raise ValueError(f"no event of the protocol ({type(error).__name__})") from error
                self._data.clear()

    def body(self) -> bytes:
        """The joined body. Raises ValueError when the stream was cut off."""
        last = [*self._data, *([self._line[5:].strip()] if self._line.startswith(b"data:") else [])]
        choices = [self._choices[i] for i in sorted(self._choices)]
        if not self.whole and last != [DONE]:  # the last line end may be missing
            choices = [choice for choice in choices if choice["finish_reason"] and self._sure]
            if not choices:
                raise ValueError("the stream was cut off")
        if "error" in self._head:
            return orjson.dumps(self._head)
        return orjson.dumps(self._head | {"choices": [_joined(choice) for choice in choices]})

    def _event(self, data: bytes) -> None:
        self.started = True
        if data.strip() == DONE:
            self.whole = True
            return
        event = orjson.loads(data)
        if not isinstance(event, dict):
            raise ValueError("an event that is no object")
        if event.get("object") == "error" or event.pop("error", None) is not None:
            self._error(data)
            return
        for choice in event.pop("choices", None) or []:
            self._piece(choice)
        usage = event.pop("usage", None)
        self._head = {**event, **self._head} | ({"usage": usage} if usage else {})
        self._head["object"] = str(self._head.get("object", "")).removesuffix(".chunk")

    def _error(self, told: bytes) -> None:
        """The stream is over: its error is all that counts of it."""
        try:
            error = orjson.loads(told)
        except orjson.JSONDecodeError:
            error = told.decode("utf-8", "replace")
        self._head = {"error": error["error"] if isinstance(error, dict) and "error" in error else error}
        self.whole = True

    def _piece(self, piece: dict[str, Any]) -> None:
        index = int(piece.get("index") or 0)
        if not 0 <= index < MOST_CHOICES:
            raise ValueError(f"a choice of number {index}")
        choice = self._choices.setdefault(index, {"index": index, "finish_reason": None})
        delta = piece.get("delta") or {}
        if choice["finish_reason"] and (piece.get("text") or delta.get("content")):
            self._sure = False  # each piece says why it ended: so none says that it is the last
        choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]
        if piece.get("error"):
            choice["error"] = piece["error"]
        if "text" in piece:
            choice.setdefault("text", _Grown()).append(text_of(piece["text"]))
        if "delta" in piece:
            _append(choice.setdefault("message", {"role": "assistant", "content": None}), delta)
        if piece.get("logprobs"):
            _extend(choice.setdefault("logprobs", {}), piece["logprobs"])


def _append(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Texts grow; calls of tools grow each in its own; the role is said once."""
    for name, value in delta.items():
        if name == "tool_calls":
            for call in value or []:
                _append_call(message.setdefault("tool_calls", []), call)
        elif name == "role":
            message["role"] = value or message["role"]
        elif isinstance(value, str) or (name == "content" and value):
            grown = message[name] if isinstance(message.get(name), _Grown) else _Grown()
            grown.append(text_of(value))
            message[name] = grown
        elif value is not None:
            message[name] = value


def _joined(value: Any) -> Any:
    """What came, with its texts whole."""
    if isinstance(value, _Grown):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _joined(v) for name, v in value.items()}
    return [_joined(v) for v in value] if isinstance(value, list) else value


def _append_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """To the call of the same index, or the last one where none is told; a new id is a new call's."""
    index, name = piece.get("index"), piece.get("id")
    same = [c for c in calls if index is None or c["index"] == index][-1:]
    if not same or (name and same[0].get("id") and name != same[0]["id"]):
        calls.append(
            {"type": "function", "function": {"name": _Grown(), "arguments": _Grown()}, "index": index}
        )
        same = calls[-1:]
    (call,) = same
    if name:
        call["id"] = name
    function, said = call["function"], piece.get("function") or {}
    if (told := said.get("name")) and [told] != function["name"]:  # some say it in each piece
        function["name"].append(text_of(told))
    function["arguments"].append(text_of(said.get("arguments")))


def _extend(known: dict[str, Any], more: dict[str, Any]) -> None:
    for name, values in more.items():
        if isinstance(values, list):
            known[name] = known[name] if isinstance(known.get(name), list) else []
            known[name].extend(values)
        elif values is not None:
            known[name] = values
