"""Definitions follow the files: after an edit of code or parameters Dagster loads them again.

Law: only the Dagster that `headrace ui` started is asked, on loopback; where
its address is not known, the log says what to press.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.error
import urllib.request

from dagster_project.versions import Graph, fingerprint

URL = "HEADRACE_DAGSTER_URL"
LOCATION = "headrace"
MUTATION = """mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) { __typename }
}"""


def declared(graph: Graph) -> dict[str, str]:
    """Content of all that the definitions were made from."""
    code = sorted({c for s in graph.stages for c in s.code})
    return {path: fingerprint(graph.root / path) for path in ("dvc.yaml", "params.yaml", *code)}


_LOADED: dict[str, dict[str, str]] = {}  # root -> what was declared when this process loaded it


def remember(graph: Graph) -> None:
    _LOADED[str(graph.root)] = declared(graph)


def reload_when_stale(graph: Graph, log: logging.Logger) -> bool:
    """Whether something changed since this process loaded the graph; asks Dagster to load it again."""
    loaded = _LOADED.get(str(graph.root))
    now = declared(graph)
    if loaded is None or loaded == now:
        return False
    changed = sorted(p for p in {*loaded, *now} if loaded.get(p) != now.get(p))
    url = os.environ.get(URL)
    if url and _ask(url):
        log.info(f"{changed[0]} changed: Dagster loads the definitions again")
    else:
        log.warning(f"{changed[0]} changed since Dagster loaded it: press Reload definitions")
    return True


def _ask(url: str) -> bool:
    body = json.dumps({"query": MUTATION, "variables": {"name": LOCATION}}).encode()
    request = urllib.request.Request(
        f"{url}/graphql", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            value = json.loads(answer.read())
    except (OSError, urllib.error.URLError, ValueError):
        return False
    return "errors" not in value
