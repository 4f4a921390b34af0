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
    return url.rstrip("/").removesuffix("/v1")
