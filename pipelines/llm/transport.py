"""One attempt over HTTP, and the address and key it takes: aiohttp and orjson.

Law: the endpoint's key goes into one header and nowhere else; whatever comes back is scrubbed of
it. A refused key or a wrong address stops the run, for every other row would meet the same.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp

from pipelines.errors import ConfigError, EnvironmentFault, HeadraceError
from pipelines.llm.answer import Failure
from pipelines.llm.protocol import PATHS, Reply, out_of_funds, read_reply, retry_after
from pipelines.llm.store import Kept

if TYPE_CHECKING:
    from pipelines.llm.endpoint import Backend
    from pipelines.llm.settings import Settings

KEY_HEADER = "X-Client-Request-Id"  # the answer's key, so that a server's log can be compared with the store
EMBEDDED_TIMEOUT_S = 900.0  # four long answers on one busy core; its death is seen otherwise
KEY_VARIABLES = ("HEADRACE_LLM_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True)
class Secret:
    """The endpoint's key; its repr hides it."""

    value: str = ""

    @classmethod
    def from_environment(cls) -> Secret:
        return cls(next((v for name in KEY_VARIABLES if (v := os.environ.get(name, "").strip())), ""))

    def __repr__(self) -> str:
        return "Secret(...)"

    def scrub(self, raw: bytes) -> bytes:
        return raw.replace(self.value.encode(), b"***") if self.value else raw


class Transport:
    """Sends one attempt at a time; lives in one event loop."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        # A server that we started is ours: it needs no key and must not be shown one.
        self._secret = Secret() if backend.ours else Secret.from_environment()
        least = EMBEDDED_TIMEOUT_S if backend.llama else 0.0
        timeout = aiohttp.ClientTimeout(
            total=max(least, settings.timeout_s),
            sock_connect=settings.connect_timeout_s,
            sock_read=max(least, settings.first_byte_timeout_s),
        )
        # Asking for a proxy costs two hops to another thread a request, and with it a password from ~/.netrc.
        proxied = not backend.ours and bool(getproxies_environment())
        self._session = aiohttp.ClientSession(
            timeout=timeout,
            connector=aiohttp.TCPConnector(limit=0),
            trust_env=proxied,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    async def attempt(self, kind: str, model: str, body: bytes, key: str, prompt: str = "") -> Reply:
        """Send once. Raises HeadraceError only for what would meet every request alike."""
        url = await self._backend.url(model, prompt)
        alive = False
        try:
            async with self._session.post(
                url + PATHS[kind], data=body, headers=self._headers(key)
            ) as response:
                raw = self._secret.scrub(await response.read())
                wait_s = retry_after(response.headers, time.time())
                status = response.status
            alive = True
        except TimeoutError:
            return _failed(Failure.TIMEOUT, "no answer in time")
        except aiohttp.InvalidURL as error:
            raise ConfigError(
                "is not an address of an endpoint", where=safe(url), cure="set llm.base_url"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            return _failed(Failure.NETWORK, f"{type(error).__name__} at {safe(url)}")
        finally:
            self._backend.left(url, alive)
        if (fault := _stops_all(status, raw, url, PATHS[kind], model)) is not None:
            raise fault
        return read_reply(status, raw, kind, wait_s)

    def _headers(self, key: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", KEY_HEADER: key}
        if self._secret.value:
            headers["Authorization"] = f"Bearer {self._secret.value}"
        return headers


def safe(url: str) -> str:
    """The address without a user, password or query, for messages."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _failed(failure: Failure, detail: str) -> Reply:
    return Reply(Kept("", failure=failure, detail=detail))


def _stops_all(status: int, raw: bytes, url: str, path: str, model: str) -> HeadraceError | None:
    where = safe(url)
    if status in (401, 403):
        cure = f"set {KEY_VARIABLES[0]} to a key of this endpoint"
        return EnvironmentFault(f"the endpoint refuses the key (HTTP {status})", where=where, cure=cure)
    if status == 402 or (status == 429 and out_of_funds(raw)):
        cure = "top it up and run again: all answers so far are stored"
        return EnvironmentFault("the endpoint's account has no funds", where=where, cure=cure)
    if status in (404, 405):
        cure = "check llm.base_url and llm.model"
        return ConfigError(
            f"the endpoint has no {path} or no model {model!r} (HTTP {status})", where=where, cure=cure
        )
    return None
