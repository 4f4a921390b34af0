"""What headrace is measured against: bare aiohttp with orjson (the floor), and the OpenAI SDK's loop.

Run: `python -m pipelines.bench.contenders floor|naive URL ROWS IN_FLIGHT`. Both ask the same questions
of the same server as `pipelines.bench.rows`, keep the texts in memory and do nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import orjson

from pipelines.bench.measure import obey
from pipelines.bench.rows import INSTRUCTION, MODEL, question


def _messages(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": question(number)}]


def _parameters(number: int) -> dict[str, Any]:
    return {"model": MODEL, "seed": number, "max_tokens": 64, "temperature": 0.7, "top_p": 0.95}


async def floor(url: str, rows: int, in_flight: int) -> Mapping[str, Any]:
    """`in_flight` coroutines over one session: the least that asking over aiohttp can cost."""
    import aiohttp
    from yarl import URL

    address, numbers = URL(f"{url}/v1/chat/completions"), iter(range(rows))
    texts: dict[int, str] = {}
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def ask() -> None:
            for number in numbers:
                body = orjson.dumps(_parameters(number) | {"messages": _messages(number)})
                async with session.post(address, data=body) as response:
                    reply = orjson.loads(await response.read())
                texts[number] = reply["choices"][0]["message"]["content"]

        await asyncio.gather(*(ask() for _ in range(in_flight)))
    return {"rows": len(texts)}


async def naive(url: str, rows: int, in_flight: int) -> Mapping[str, Any]:
    """What one writes first: a task for each row, `AsyncOpenAI`, a semaphore."""
    from openai import AsyncOpenAI

    semaphore, texts = asyncio.Semaphore(in_flight), {}
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:

        async def ask(number: int) -> None:
            async with semaphore:
                reply = await client.chat.completions.create(
                    messages=_messages(number),  # type: ignore[arg-type]
                    **_parameters(number),
                )
            texts[number] = reply.choices[0].message.content

        await asyncio.gather(*(ask(number) for number in range(rows)))
    return {"rows": len(texts)}


def main(name: str, url: str, rows: str, in_flight: str) -> None:
    import aiohttp  # noqa: F401 - what a run imports is not what is measured
    import openai  # noqa: F401

    contender = {"floor": floor, "naive": naive}[name]
    obey(lambda: asyncio.run(contender(url, int(rows), int(in_flight))))


if __name__ == "__main__":
    main(*sys.argv[1:])
