"""Foreign annotations come in on one clock; what cannot be used is a reject with its place."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from egoavu_workspace import Workspace, scene

from pipelines.errors import InputError

HEAD = "narration_id,participant_id,video_id,start_timestamp,stop_timestamp,start_frame,"
HEAD += "narration,verb,all_nouns\n"
SOUND_HEAD = "annotation_id,video_id,start_timestamp,stop_timestamp,description,class\n"
TOLD = "{id},P01,V1,{start},{stop},999999,{text},{verb},\"['{noun}']\"\n"


def told(
    id: str, start: str, stop: str, text: str = "chop onion", verb: str = "chop", noun: str = "onion"
) -> str:
    return TOLD.format(id=id, start=start, stop=stop, text=text, verb=verb, noun=noun)


def put(w: Workspace, narrations: str, sounds: str, videos: str = "") -> Workspace:
    (w.raw / "a.csv").write_text(HEAD + narrations, encoding="utf-8")
    (w.raw / "b.csv").write_text(SOUND_HEAD + sounds, encoding="utf-8")
    if videos:
        (w.raw / "c.csv").write_text("video_id,duration,fps\n" + videos, encoding="utf-8")
    return w


def places(w: Workspace) -> set[tuple[str, str, int, str]]:
    columns = w.rejected("ingest").select("reason", "file", "line", "column")
    return {tuple(row) for row in columns.iter_rows()}  # type: ignore[misc]


def test_the_committed_scenes_give_twelve_clips_and_these_rejects(demo: Workspace) -> None:
    assert len(demo.rows("ingest")) == 12
    assert places(demo) == {
        ("stop_before_start", "kitchen_narrations.csv", 8, "stop_timestamp"),
        ("missing_text", "kitchen_narrations.csv", 25, "narration"),
        ("no_sound", "kitchen_narrations.csv", 37, "video_id"),
        ("no_sound", "kitchen_narrations.csv", 38, "video_id"),
        ("no_sound", "kitchen_narrations.csv", 39, "video_id"),
        ("bad_time", "kitchen_sounds.csv", 11, "start_timestamp"),
        ("stop_before_start", "scenes.jsonl", 3, "actions[0].end"),
        ("missing_text", "scenes.jsonl", 6, "actions[0].text"),
        ("unreadable", "scenes.jsonl", 8, None),
    }


def test_each_record_of_each_file_is_one_item(demo: Workspace) -> None:
    lines = 0
    for path in sorted(demo.raw.iterdir()):
        if path.suffix in (".csv", ".jsonl"):
            lines += len(path.read_text().splitlines()) - (path.suffix == ".csv")
    found = demo.outcomes("ingest")
    assert found["items"] == found["rows_in"] == lines
    assert found["accepted"] + found["rejected"] == lines


def test_every_row_says_which_lines_it_came_from(demo: Workspace) -> None:
    import polars as pl

    origin = pl.read_parquet(demo.root / "data" / "egoavu" / "ingest" / "origin.parquet")
    assert set(origin["row_id"]) == set(demo.rows("ingest")["row_id"])
    row = demo.rows("ingest").filter(pl.col("clip_id") == "workshop_shelf")["row_id"][0]
    assert origin.filter(pl.col("row_id") == row).rows() == [(row, "scenes.jsonl", 1)]


def test_a_long_scene_is_cut_between_actions_and_a_sound_across_the_cut_is_in_both(
    workspace: Callable[..., Workspace],
) -> None:
    actions = [
        {"start": t, "end": t + 20, "text": "chop onion", "nouns": ["onion"]} for t in (0, 100, 200, 300, 380)
    ]
    sounds = [{"start": 290, "end": 395, "label": "rain"}]
    w = workspace().scenes(scene(start=0, end=410, actions=actions, sounds=sounds)).run("ingest")
    clips = w.rows("ingest").sort("start_s")
    assert clips["clip_id"].to_list() == ["c1@0000.000", "c1@0380.000"]
    assert [len(a) for a in clips["actions"]] == [4, 1]
    assert [(s[0]["start_s"], s[0]["end_s"]) for s in clips["sounds"]] == [(290, 360), (380, 395)]


def test_times_come_from_stamps_and_are_cut_where_the_video_ends(workspace: Callable[..., Workspace]) -> None:
    narrations = told("n1", "00:00:01.50", "00:00:04.00") + told("n2", "00:00:18.00", "00:00:33.00")
    narrations += told("n3", "00:00:31.00", "00:00:32.00")
    sounds = "s1,V1,00:00:02.250,00:00:03.125,knife,cut / chop\n"
    w = put(workspace(), narrations, sounds, "V1,30.0,47.9\n").run("ingest")
    clip = w.rows("ingest").row(0, named=True)
    assert [(a["start_s"], a["end_s"]) for a in clip["actions"]] == [(1.5, 4.0), (18.0, 30.0)]
    assert clip["sounds"][0]["start_s"] == 2.25
    assert places(w) == {("after_video_end", "a.csv", 4, "start_timestamp")}
    assert w.outcomes("ingest")["notes"]["cut at the end of the video"] == 1


def test_the_order_of_rows_changes_no_byte(workspace: Callable[..., Workspace], demo: Workspace) -> None:
    w = workspace(demo.raw)
    for path in w.raw.iterdir():
        if path.suffix == ".md":
            continue
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        head = lines[: path.suffix == ".csv"]
        rest = lines[len(head) :]
        random.Random(3).shuffle(rest)
        path.write_text("".join(head + rest), encoding="utf-8")
    w.run()
    for stage in ("ingest", "filter", "graph", "narrate", "questions"):
        assert w.bytes_of(stage) == demo.bytes_of(stage), stage


def test_a_video_without_sound_and_sounds_without_a_narration_are_rejected(
    workspace: Callable[..., Workspace],
) -> None:
    narrations = told("n1", "00:00:01.50", "00:00:14.00")
    sounds = "s1,V2,00:00:02.250,00:00:03.125,knife,cut / chop\n"
    w = put(workspace(), narrations, sounds).run("ingest")
    assert len(w.rows("ingest")) == 0
    # V2 is narrated nowhere, so it is none of the videos in use
    assert places(w) == {("no_sound", "a.csv", 2, "video_id")}
    assert w.outcomes("ingest")["notes"] == {"of a video that is not used": 1}


def test_the_limit_takes_the_first_videos_by_id(workspace: Callable[..., Workspace]) -> None:
    w = workspace().scenes(*(scene(clip_id=f"c{n}", video_id=f"v{n}") for n in (3, 1, 2)))
    w.params["egoavu"]["ingest"] = {"limit": 2}
    assert w.run("ingest").rows("ingest")["video_id"].sort().to_list() == ["v1", "v2"]
    assert w.outcomes("ingest")["notes"] == {"beyond the limit of videos": 1}


def test_a_scene_is_cut_where_its_video_ends(workspace: Callable[..., Workspace]) -> None:
    w = workspace().scenes(scene(duration=22.5)).run("ingest")
    row = w.rows("ingest").row(0, named=True)
    assert (row["end_s"], row["sounds"][1]["end_s"]) == (22.5, 22.5)
    assert w.outcomes("ingest")["notes"] == {"cut at the end of the video": 1}


@pytest.mark.parametrize(
    ("changes", "reason", "column"),
    [
        ({"start": 50, "end": 60, "duration": 40}, "after_video_end", "start"),
        ({"end": 0}, "empty_interval", "end"),
        ({"end": "soon"}, "bad_time", "end"),
        ({"start": -1}, "negative_time", "start"),
        ({"setting": 3}, "wrong_type", "setting"),
        ({"video_id": "v1", "clip_id": ""}, "missing_value", "clip_id"),
        ({"actions": {"text": "x"}}, "wrong_type", "actions"),
        ({"actions": ["chop"]}, "wrong_type", "actions[0]"),
        ({"actions": [{"start": 40, "end": 50, "text": "chop"}]}, "outside_clip", "actions[0].start"),
        ({"actions": [{"start": True, "end": 5, "text": "chop"}]}, "bad_time", "actions[0].start"),
        ({"sounds": [{"start": 1, "end": 2}]}, "missing_text", "sounds[0].label"),
        ({"sounds": []}, "no_sound", "sounds"),
        ({"end": 9, "actions": [], "sounds": [{"start": 1, "end": 2, "label": "rain"}]}, "too_short", "end"),
        ({"exhaustive": {"smell": True}}, "unknown_key", "exhaustive"),
        ({"background_objects": [7]}, "wrong_type", "background_objects[0]"),
    ],
)
def test_a_bad_scene_is_one_reject_and_its_neighbour_stays(
    workspace: Callable[..., Workspace], changes: dict[str, object], reason: str, column: str
) -> None:
    w = workspace().scenes(scene(video_id="v0", **changes) if "video_id" not in changes else scene(**changes))
    with (w.raw / "scenes.jsonl").open("a", encoding="utf-8") as f:
        import json

        f.write(json.dumps(scene(clip_id="good", video_id="v9")) + "\n")
    w.run("ingest")
    assert w.rows("ingest")["clip_id"].to_list() == ["good"]
    assert places(w) == {(reason, "scenes.jsonl", 1, column)}


def test_a_clip_twice_is_kept_once(workspace: Callable[..., Workspace]) -> None:
    w = workspace().scenes(scene(), scene()).run("ingest")
    assert places(w) == {("duplicate_clip", "scenes.jsonl", 2, "clip_id")}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "narration_id,video_id,start_timestamp,stop_timestamp,verb,all_nouns\nx,v,0,1,cut,[]\n",
            "'narration' is missing",
        ),
        ("a.csv", "alpha,beta\n1,2\n", "none of the known columns"),
        ("a.csv", "", "the file is empty"),
        ("a.jsonl", '[{"clip_id": 1}]', "JSON array"),
        ("a.parquet", "x", "does not read such files"),
        ("a.csv", "video_id,duration\nv,3.0\n", "no file here narrates a video"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_one_clear_line(
    workspace: Callable[..., Workspace], name: str, content: str, message: str
) -> None:
    w = workspace()
    (w.raw / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        w.run("ingest")
    assert "\n" not in str(caught.value)
    assert not (w.root / "data" / "egoavu").exists()


def test_broken_utf8_names_the_line(workspace: Callable[..., Workspace], tmp_path: Path) -> None:
    w = workspace()
    (w.raw / "a.csv").write_bytes(HEAD.encode() + b"n1,P\xff,V\n")
    with pytest.raises(InputError, match=r"a\.csv:2"):
        w.run("ingest")
