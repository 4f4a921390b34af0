"""Any OpenAI-compatible endpoint, by its address.

Law: a model's identity is its name there; moving the endpoint asks nothing again. An address may end in
`/v1`; where a version stands in it (`/v1beta/openai`, `/api/paas/v4`), the paths are those below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pipelines.errors import ConfigError

V1 = "/v1"
VERSION = re.compile(r"/v\d\w*(/|$)")
UNSAID: Mapping[str, Any] = {}  # many endpoints refuse a field that they do not know


class OpenAI:
    """The endpoint at `base_url`, with or without the trailing `/v1`."""

    llama = False
    ours = False
    unsaid = UNSAID

    def __init__(self, base_url: str) -> None:
        self._url = address(base_url, "llm.base_url", "set llm.base_url or HEADRACE_LLM_BASE_URL")

    def identity(self, model: str) -> str:
        return f"name:{model}"

    async def url(self, model: str, prompt: str = "") -> str:
        return self._url

    def left(self, url: str, alive: bool) -> None:
        return None

    async def close(self) -> None:
        return None


def address(url: str, setting: str, cure: str = "") -> str:
    """An endpoint's address without the trailing `/v1`. Raises ConfigError that names the setting."""
    cure = cure or f"set {setting}"
    if not url.startswith(("http://", "https://")):
        shown = url.rpartition("@")[2]  # what stands before it may be a password
        what = f"{setting} must start with http:// or https://, not {shown!r}"
        raise ConfigError(what, cure=cure)
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port beyond 65535, half an IPv6 address
        whole = False
    if not whole:
        raise ConfigError(f"{setting} is no address of an endpoint", cure=cure)
    if parts.query or parts.fragment:  # requests would lose it; and it may hold a key, so it is not shown
        cure = "take it out; Azure's address is https://RESOURCE.openai.azure.com/openai/v1"
        raise ConfigError(f"{setting} ends in a query, and paths follow it", cure=cure)
    return url.rstrip("/").removesuffix(V1)


def at(base: str, path: str) -> str:
    """The whole address of `path`, which begins with `/v1`, at an endpoint's `address`."""
    return base + (path.removeprefix(V1) if VERSION.search(urlsplit(base).path) else path)
