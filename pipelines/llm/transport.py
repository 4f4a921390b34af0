"""One attempt over HTTP, and the key it takes: aiohttp and orjson.

Law: the endpoint's key goes into one header and nowhere else; whatever comes back is scrubbed of
it (`secret.py`). Redirects are not followed, so the key never goes to another host.

A request that the server is known not to have read, since it had closed a kept-alive connection, goes out
at once on a new one, within the same attempt: it was not sent before (`connections.py`).

Time-outs: of the connection, of the first byte (streamed: the first token; the server's silence
later too), of the whole. A proxy is taken from the environment, not for a server that is ours.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import orjson
from yarl import URL

from pipelines.errors import ConfigError, EnvironmentFault
from pipelines.llm.answer import Failure
from pipelines.llm.backends.openai import at
from pipelines.llm.connections import SENDING, Connector, Sending
from pipelines.llm.limits import read_limits
from pipelines.llm.protocol import PATHS, Reply, read_reply
from pipelines.llm.secret import Secret
from pipelines.llm.stops import KEY_VARIABLES, stop_of
from pipelines.llm.store import Kept
from pipelines.llm.stream import MOST_BYTES, Pieces

if TYPE_CHECKING:
    from pipelines.llm.endpoint import Backend
    from pipelines.llm.settings import Settings

KEY_HEADER = "X-Client-Request-Id"  # the answer's key, so that a server's log can be compared with the store
EMBEDDED_TIMEOUT_S = 900.0  # four long answers on one busy core; its death is seen otherwise


@dataclass(frozen=True, slots=True)
class _Target:
    """A path of one address, ready to be posted to."""

    url: URL
    where: str  # for messages
    proxy: str | None
    secret: Secret


class Transport:
    """Sends one attempt at a time; lives in one event loop."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        # A server that we started is ours: it needs no key and must not be shown one.
        self._secret = Secret() if backend.ours else Secret.from_environment()
        self._ours = backend.ours
        least = EMBEDDED_TIMEOUT_S if backend.llama else 0.0
        self._connect_s = settings.connect_timeout_s
        self._first_byte_s = max(least, settings.first_byte_timeout_s)
        self._whole_s = max(least, settings.timeout_s)
        self._targets: dict[tuple[str, str], _Target] = {}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._secret.value:
            headers["Authorization"] = f"Bearer {self._secret.value}"
        self._session = aiohttp.ClientSession(
            connector=Connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            timeout=aiohttp.ClientTimeout(
                total=self._whole_s, sock_connect=self._connect_s, sock_read=self._first_byte_s
            ),
        )

    async def close(self) -> None:
        await self._session.close()

    async def attempt(self, url: str, kind: str, model: str, body: bytes, key: str) -> Reply:
        """Send once. Raises HeadraceError for an address or a certificate that meets every request alike."""
        target, sending = self._targets.get((url, kind)) or self._target(url, kind), Sending()
        token = SENDING.set(sending)
        try:
            reply = await self._once(target, sending, kind, model, body, key)
            if reply is None:
                sending.begin_anew()
                reply = await self._once(target, sending, kind, model, body, key)
            assert reply is not None  # of a new connection it always is known
            return reply
        finally:
            SENDING.reset(token)

    async def _once(
        self, target: _Target, sending: Sending, kind: str, model: str, body: bytes, key: str
    ) -> Reply | None:
        """The reply; None when the request was not read, on a connection that was kept alive for too long."""
        try:
            async with self._session.post(
                target.url, data=body, headers={KEY_HEADER: key}, allow_redirects=False, proxy=target.proxy
            ) as response:
                raw = target.secret.scrub(await self._read(response))
                status, limits = response.status, read_limits(response.headers, time.time())
        except aiohttp.ConnectionTimeoutError:
            return _failed(Failure.TIMEOUT, f"no connection within {self._connect_s:g} s", left=False)
        except aiohttp.SocketTimeoutError:
            return _failed(Failure.TIMEOUT, f"nothing came for {self._first_byte_s:g} s")
        except TimeoutError:
            return _failed(Failure.TIMEOUT, f"not whole within {self._whole_s:g} s")
        except aiohttp.InvalidURL:  # which would name a password
            cure = "set llm.base_url"
            raise ConfigError("is not an address of an endpoint", where=target.where, cure=cure) from None
        except aiohttp.ClientConnectorCertificateError as error:
            what = f"the endpoint's certificate is not trusted: {error.certificate_error}"
            cure = "check llm.base_url, or set SSL_CERT_FILE to the authority's certificate"
            raise EnvironmentFault(what, where=target.where, cure=cure) from None
        except (aiohttp.ClientError, OSError) as error:
            if await sending.unread():
                return None
            left = not isinstance(error, aiohttp.ClientConnectorError)
            why = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
            return _failed(Failure.NETWORK, f"{type(error).__name__}{why} at {target.where}", left=left)
        except _Broken as error:
            return Reply(Kept("", failure=Failure.BROKEN_BODY, detail=str(error)))
        reply = read_reply(status, raw, kind, limits.retry_after_s, limits)
        if 200 <= reply.status < 300:
            return reply
        where, path = target.where, PATHS[kind]
        stop = stop_of(reply.status, raw, where, path, model, throttled=reply.throttled)
        return replace(reply, stop=stop)

    async def vouches(self, url: str, model: str, *, named: bool) -> bool:
        """Whether the endpoint lists its models to this key, among them this one where it must be `named`.

        Then it is neither the key nor the model that it refuses. False where nobody can say.
        """
        try:
            proxy = None if self._ours else _proxy(url)
            address = URL(at(url, "/v1/models"))
            async with self._session.get(address, allow_redirects=False, proxy=proxy) as response:
                told = orjson.loads(await self._read(response)) if response.status == 200 else {}
            models = {str(entry["id"]) for entry in told["data"]}
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError, _Broken):
            return False
        return model in models or not named

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body; a stream joined. Raises _Broken, and what the connection raises."""
        if response.status < 300 and response.content_type == "text/event-stream":
            return await self._joined(response)
        if (response.content_length or 0) > MOST_BYTES:
            raise _Broken(f"a reply of {response.content_length} bytes")
        if response.content_length is not None and "Content-Encoding" not in response.headers:
            return await response.read()  # what is compressed may be far larger than it says
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise _Broken(f"a reply of more than {MOST_BYTES} bytes")
        return b"".join(chunks)

    async def _joined(self, response: aiohttp.ClientResponse) -> bytes:
        pieces = Pieces()
        try:
            async with asyncio.timeout(self._first_byte_s) as first:
                with suppress(aiohttp.ClientPayloadError):  # whether anything is missing, the pieces say
                    async for chunk in response.content.iter_any():
                        pieces.feed(chunk)
                        if pieces.started:
                            first.reschedule(None)
                        if pieces.whole:
                            break
            return pieces.body()
        except TimeoutError as error:
            with suppress(ValueError):  # it said all, and kept the connection open
                return pieces.body()
            if pieces.started:
                raise
            raise aiohttp.SocketTimeoutError from error
        except ValueError as error:
            raise _Broken(f"no whole stream: {error}") from error

    def _target(self, url: str, kind: str) -> _Target:
        where, cure = safe(url), "set llm.base_url"
        secret = self._secret.beside(url)
        if secret.others and secret.value:
            what = "has a password, and there is a key in the environment"
            raise ConfigError(what, where=where, cure=f"take the one out, or unset {KEY_VARIABLES[0]}")
        try:
            proxy = None if self._ours else _proxy(url)
            target = _Target(URL(at(url, PATHS[kind])), where, proxy, secret)
        except ValueError:  # which would name a password
            raise ConfigError("is not an address of an endpoint", where=where, cure=cure) from None
        self._targets[url, kind] = target
        return target


class _Broken(Exception):
    """A body that cannot be one of the protocol."""


def safe(url: str) -> str:
    """The address without a user, password or query, for messages."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _proxy(url: str) -> str | None:
    """The environment's proxy for an address, if any."""
    parts = urlsplit(url)
    if parts.hostname is None or urllib.request.proxy_bypass(parts.hostname):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _failed(failure: Failure, detail: str, *, left: bool = True) -> Reply:
    return Reply(Kept("", failure=failure, detail=detail), reached=False, left=left)
