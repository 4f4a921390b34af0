"""Shared fixtures: where the public data lies, and a workspace of one's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.demo import demo

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

__all__ = ["demo"]
ROOT = Path(__file__).parents[1]


DEMO = ("tests/live/", "tests/browser/")  # share one live run, the longest of all


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that nothing long is left to one process at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(DEMO))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """A file's tests in one process, and all that share the demo."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "demo" if nodeid.startswith(DEMO) else str(super()._split_scope(nodeid))

    return Together(config, log)


@pytest.fixture(autouse=True)
def _left_as_it_was() -> Iterator[None]:
    """What a test changes of its process would be another's surprise, in another order of the tests."""
    before = _process(set(os.environ) - {"PYTEST_CURRENT_TEST"})
    yield
    assert _process(before.keys()) == before


def _process(known: Collection[str]) -> dict[str, object]:
    """Ours, and what was there; libraries add variables of their own when they are loaded."""
    variables = {k: v for k, v in os.environ.items() if k in known or k.startswith("HEADRACE_")}
    return {**variables, "SIGINT": signal.getsignal(signal.SIGINT), "folder": Path.cwd()}


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the public data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("HEADRACE_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "evergreenqa" / "test.csv").is_file():
        pytest.skip("public data sets are absent: set HEADRACE_DATA")
    return folder
