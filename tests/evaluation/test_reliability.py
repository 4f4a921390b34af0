"""The reliability plot."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from pipelines.evaluation.metrics import Bin
from pipelines.evaluation.reliability import plot, wilson
from pipelines.evaluation.unit_square import LEFT, SIDE, TOP

SERIES = {"classifier": [Bin(50, 0.25, 0.5), Bin(50, 1.0, 1.0)], "bag <&>": [Bin(100, 0.5, 0.5)]}


def test_a_bin_is_drawn_at_its_mean_p_and_its_share() -> None:
    root = ET.fromstring(plot("Title", "note", SERIES))
    circles = [c for c in root.iter("{http://www.w3.org/2000/svg}circle") if c.get("r") == "3.5"]
    where = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in circles]
    assert where == [
        (LEFT + SIDE * 0.25, TOP + SIDE * 0.5),
        (LEFT + SIDE, TOP),
        (LEFT + SIDE * 0.5, TOP + SIDE * 0.5),
    ]


def test_names_are_escaped_and_the_text_is_valid_xml() -> None:
    text = plot("a < b & c", "note", SERIES)
    assert "a &lt; b &amp; c" in text
    assert "bag &lt;&amp;&gt;" in text
    ET.fromstring(text)


def test_equal_bins_give_equal_bytes() -> None:
    assert plot("t", "n", SERIES) == plot("t", "n", dict(SERIES))


def test_wilson_interval_of_five_in_ten() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)
