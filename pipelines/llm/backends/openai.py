"""Any OpenAI-compatible endpoint, by its address.

Law: a model's identity is its name there; moving the endpoint asks nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pipelines.errors import ConfigError

UNSAID: Mapping[str, Any] = {}  # many endpoints refuse a field that they do not know


class OpenAI:
    """The endpoint at `base_url`, with or without the trailing `/v1`."""

    llama = False
    ours = False
    unsaid = UNSAID

    def __init__(self, base_url: str) -> None:
        cure = "set llm.base_url or HEADRACE_LLM_BASE_URL"
        if not base_url.startswith(("http://", "https://")):
            what = f"llm.base_url must start with http:// or https://, not {base_url!r}"
            raise ConfigError(what, cure=cure)
        try:
            address = urlsplit(base_url)
            whole = bool(address.hostname) and (address.port or 1) > 0
        except ValueError:  # a port beyond 65535, half an IPv6 address
            whole = False
        if not whole:
            raise ConfigError("llm.base_url is no address of an endpoint", cure=cure)
        self._url = base_url.rstrip("/").removesuffix("/v1")

    def identity(self, model: str) -> str:
        return f"name:{model}"

    async def url(self, model: str, prompt: str = "") -> str:
        return self._url

    def left(self, url: str, alive: bool) -> None:
        return None

    async def close(self) -> None:
        return None
