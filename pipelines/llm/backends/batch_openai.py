"""The OpenAI Batch API as a desk, by the `openai` SDK.

Law: the SDK retries nothing, for a repeated creation would be a second batch. Each batch carries
its own number in its metadata, by which it is found when its id was never received. The key of the
endpoint is scrubbed from all that comes back.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import openai

from pipelines.errors import ConfigError, EnvironmentFault, HeadraceError
from pipelines.llm.backends.batch_desk import Passing
from pipelines.llm.backends.batch_file import cut
from pipelines.llm.backends.batch_watch import FULL, Seen
from pipelines.llm.backends.openai import V1, address, at
from pipelines.llm.limits import retry_after
from pipelines.llm.protocol import PATHS
from pipelines.llm.secret import Secret
from pipelines.llm.stops import KEY_VARIABLES, out_of_funds
from pipelines.llm.transport import safe

if TYPE_CHECKING:
    from pipelines.llm.backends.batch_ledger import Batch
    from pipelines.llm.settings import Settings

MARK = "headrace"  # the name of our number in a batch's metadata
LOOK_BACK_S = 86_400.0  # how far a seller's clock may be off ours
SAID_CHARS = 300
NO_ROOM = "token_limit_exceeded"  # of all batches that are out


class OpenAIDesk:
    """Batches at the endpoint `base_url`."""

    kinds = frozenset(PATHS)
    unsaid: Mapping[str, Any] = {}
    look_s = float("inf")
    alone = False

    def __init__(self, base_url: str, settings: Settings) -> None:
        base = address(base_url, "llm.base_url")
        self.address = safe(base)
        self.max_requests = settings.batch.max_requests
        self._secret = Secret.from_environment().beside(base)
        self._client = openai.OpenAI(
            api_key=self._secret.value or "none",
            base_url=at(base, V1),
            max_retries=0,
            timeout=openai.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
        )

    def close(self) -> None:
        self._client.close()

    def find(self, batch: Batch) -> Seen | None:
        """The first one made, should there be two: a request that was given up may still arrive."""
        with self._errors("lists no batches"):
            found = [each for each in self._since(batch.made_at) if _is(each, batch)]
        found.sort(key=lambda each: (each.created_at or 0, each.id))
        for surplus in found[1:]:
            if not self._seen(surplus).ended and surplus.status != "cancelling":
                self._cancel(surplus.id)
        return self._seen(found[0]) if found else None

    def upload(self, uid: str, lines: Sequence[bytes]) -> str:
        with tempfile.TemporaryFile() as file:
            file.writelines(lines)
            file.seek(0)
            with self._errors("takes no file"):
                given = self._client.files.create(
                    file=(_file_name(uid), file, "application/jsonl"), purpose="batch"
                )
                return str(_whole(given, "id"))

    def create(self, batch: Batch) -> Seen:
        endpoint: Any = PATHS[batch.kind]
        with self._errors("makes no batch"):
            made = self._client.batches.create(
                completion_window="24h",
                endpoint=endpoint,
                input_file_id=batch.file,
                metadata={MARK: batch.uid},
            )
            return self._seen(made)

    def look(self, batch: Batch) -> Seen:
        with self._errors(f"shows no batch {batch.id}"):
            return self._seen(self._client.batches.retrieve(batch.id))

    def lines(self, seen: Seen) -> Iterator[bytes]:
        for file in seen.files:
            for line in cut(self._content(file)):
                yield self._secret.scrub(line)

    def cancel(self, batch: Batch) -> None:
        self._cancel(batch.id)

    def taken(self, batch: Batch) -> None:
        """Its files stay with the seller for as long as he keeps them."""

    def discard(self, batch: Batch) -> None:
        with self._errors("deletes no file"):
            names = [batch.file] if batch.file else []
            if not names:
                files = self._client.files.list(purpose="batch")
                names = [each.id for each in files if each.filename == _file_name(batch.uid)]
            for name in names:
                self._client.files.delete(name)

    def sweep(self, uids: Collection[str]) -> None:
        """Nothing is kept here."""

    def _cancel(self, name: str) -> None:
        try:
            self._client.batches.cancel(name)
        except openai.APIStatusError as error:
            if error.status_code not in (400, 409):  # it has just ended
                raise self._fault(error, f"cancels no batch {name}") from None
        except openai.APIError as error:
            raise self._fault(error, f"cancels no batch {name}") from None

    def _since(self, made_at: float) -> Iterator[Any]:
        for each in self._client.batches.list(limit=100):
            if (each.created_at or made_at) < made_at - LOOK_BACK_S:
                return
            yield each

    def _content(self, file: str) -> Iterator[bytes]:
        """A file in pieces; one that is not there, or not yet, or no more, has none."""
        with self._errors(f"gives no file {file}"):
            try:
                with self._client.files.with_streaming_response.content(file) as response:
                    yield from response.iter_bytes()
            except openai.NotFoundError:
                return
            except openai.OpenAIError:
                raise
            except Exception as error:  # it breaks off, by a name of whatever transport the SDK has
                what = f"the endpoint gives file {file} in part: {type(error).__name__}"
                raise Passing(what, where=self.address) from None

    def _seen(self, shown: Any) -> Seen:
        counts = getattr(shown, "request_counts", None)
        errors = getattr(getattr(shown, "errors", None), "data", None) or []
        said = "; ".join(str(getattr(e, "message", "")) for e in errors)
        status = str(_whole(shown, "status"))
        no_room = status == "failed" and any(getattr(e, "code", "") == NO_ROOM for e in errors)
        return Seen(
            id=str(_whole(shown, "id")),
            status=FULL if no_room else status,
            files=tuple(f for f in (shown.output_file_id, shown.error_file_id) if f),
            done=int(getattr(counts, "completed", 0) or 0),
            failed=int(getattr(counts, "failed", 0) or 0),
            said=self._clean(said),
        )

    def _clean(self, said: str) -> str:
        return self._secret.scrub(said.encode("utf-8", "replace")).decode()[:SAID_CHARS]

    @contextmanager
    def _errors(self, refusal: str) -> Iterator[None]:
        try:
            yield
        except openai.OpenAIError as error:
            raise self._fault(error, refusal) from None  # its request holds the key
        except (OSError, ValueError, AttributeError) as error:
            what = f"the endpoint {refusal}: its reply makes no sense ({type(error).__name__})"
            raise Passing(what, where=self.address) from None

    def _fault(self, error: openai.OpenAIError, refusal: str) -> HeadraceError:
        if not isinstance(error, openai.APIStatusError):
            return Passing(f"the endpoint {refusal}: {type(error).__name__}", where=self.address)
        status, raw = error.status_code, error.response.content
        what = f"the endpoint {refusal} (HTTP {status}): {self._clean(error.message)}"
        if status in (401, 403):
            cure = f"set {KEY_VARIABLES[0]} to a key of this endpoint"
            return EnvironmentFault(what, where=self.address, cure=cure)
        if status == 402 or (status == 429 and out_of_funds(raw)):
            cure = "top it up and run again: all answers so far are stored"
            return EnvironmentFault("the endpoint's account has no funds", where=self.address, cure=cure)
        if status in (408, 409, 429) or status >= 500:
            wait_s = retry_after(error.response.headers, time.time())
            return Passing(what, where=self.address, wait_s=wait_s, refused=status == 429)
        if status == 413:
            cure = "lower llm.batch.max_requests or llm.batch.max_mb to what the endpoint takes"
            return ConfigError(what, where=self.address, cure=cure)
        cure = "check llm.base_url, llm.model and the key's account; `headrace batches --forget ID` drops one"
        return ConfigError(what, where=self.address, cure=cure)


def _file_name(uid: str) -> str:
    return f"{MARK}-{uid}.jsonl"


def _is(shown: Any, batch: Batch) -> bool:
    marked = (getattr(shown, "metadata", None) or {}).get(MARK)
    return bool(marked == batch.uid or (batch.file and shown.input_file_id == batch.file))


def _whole(shown: Any, name: str) -> Any:
    value = getattr(shown, name, None)
    if value is None:
        raise ValueError(f"no {name}")
    return value
