"""egoavu.ingest: clips of 10 to 360 s with all that is annotated in them, on one clock.

Reads pairs of EPIC-KITCHENS narrations and EPIC-SOUNDS events of the same videos, and
our own JSONL (schema: data/raw/egoavu/README.md). Each record is a work item. Law:
times come from time stamps, rows come in time order whatever the file's order, and an
annotation that cannot be used is a reject with file, line and column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.data.readers import Record, records
from pipelines.egoavu import annotations as known
from pipelines.egoavu.annotations import Action, Fault, Scene, Sound
from pipelines.egoavu.clips import SCHEMA, clip_row, cut_clips, part_id
from pipelines.egoavu.sources import Kind, known_files
from pipelines.egoavu.timeline import Span, mean_gap
from pipelines.errors import ConfigError
from pipelines.step import Step

__all__ = ["SCHEMA", "Params", "run"]
START = "start_timestamp"
CUT = "cut at the end of the video"
Origin = list[tuple[str, str, int]]  # row id, file, line of a record that the row was made of


@dataclass(frozen=True)
class Params:
    limit: int = 0  # videos, in the order of their ids; 0 = all
    shortest_s: float = 10.0  # paper: clips of 10 to 360 s
    longest_s: float = 360.0
    epic_setting: str = "kitchen"
    epic_exhaustive: tuple[str, ...] = ("action", "sound")  # kinds that EPIC annotates completely


@dataclass
class Video:
    """What the files say of one video, with the records that said it."""

    narrations: dict[str, tuple[Record, Action]] = field(default_factory=dict)
    sounds: dict[str, tuple[Record, Sound]] = field(default_factory=dict)
    uncategorised: list[Span] = field(default_factory=list)
    scenes: list[tuple[Record, Scene]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # record key -> what was special
    wearer: str = ""


def run(step: Step, params: Params) -> None:
    if not 0 < params.shortest_s <= params.longest_s:
        raise ConfigError("must be 0 < shortest_s <= longest_s", where="params.yaml: egoavu.ingest")
    unknown = sorted(set(params.epic_exhaustive) - {"action", "object", "sound"})
    if unknown:
        raise ConfigError(f"unknown kind {unknown[0]!r}", where="params.yaml: egoavu.ingest.epic_exhaustive")
    files = read_all(step)
    chosen = choose_videos(files, params.limit)
    durations = read_durations(step, files)
    videos = read_annotations(step, files, chosen, durations)
    gap = mean_of_gaps(videos.values())
    origin: Origin = []
    for video_id in sorted(videos):
        video = videos[video_id]
        settle_epic(step, params, video_id, video, durations.get(video_id), origin)
        settle_scenes(step, params, video, gap, origin)
    lines = {"row_id": pl.String, "file": pl.String, "line": pl.Int64}
    step.table("origin", pl.DataFrame(sorted(set(origin)), schema=lines, orient="row"))


def read_all(step: Step) -> list[tuple[Kind, list[Record]]]:
    """All records of all known files; each is planned. Records that cannot be read are rejected."""
    folder = step.source()
    found = []
    for path, kind in known_files(folder):
        good = []
        for record in records(path, folder):
            step.plan([record.key])
            step.rows_in += 1
            if record.fault:
                step.reject(
                    record.key, "unreadable", detail=record.fault, place=record.place(), raw=record.raw
                )
            else:
                good.append(record)
        found.append((kind, good))
    return found


def choose_videos(files: Sequence[tuple[Kind, list[Record]]], limit: int) -> set[str]:
    """Ids of the videos to use: all that are narrated, or the first `limit` in the order of their ids."""
    narrated = {
        str(r.values.get("video_id") or "").strip()
        for kind, found in files
        if kind in (Kind.NARRATIONS, Kind.SCENES)
        for r in found
    } - {""}
    return set(sorted(narrated)[:limit] if limit > 0 else narrated)


def read_durations(step: Step, files: Sequence[tuple[Kind, list[Record]]]) -> dict[str, float]:
    """Lengths of videos in seconds. A row without a usable one is rejected."""
    found: dict[str, float] = {}
    for record in (r for kind, rows in files if kind is Kind.VIDEOS for r in rows):
        video_id = str(record.values.get("video_id") or "").strip()
        raw = str(record.values.get("duration") or "")
        try:
            seconds = float(raw)
        except ValueError:
            seconds = -1.0
        if not video_id or not 0 < seconds <= known.LONGEST_S:
            column = "duration" if video_id else "video_id"
            why = f"{raw!r} is not a length in seconds" if video_id else ""
            reason = "bad_duration" if video_id else "missing_value"
            _reject(step, record, Fault(reason, column, why))
        elif video_id in found:
            _reject(step, record, Fault("duplicate_video", "video_id"))
        else:
            found[video_id] = round(seconds, 3)
            step.accept(record.key, note="video info")
    return found


def read_annotations(
    step: Step,
    files: Sequence[tuple[Kind, list[Record]]],
    chosen: set[str],
    durations: Mapping[str, float],
) -> dict[str, Video]:
    """Annotations by video. What is not used is settled here; the rest when its clip is made."""
    videos: dict[str, Video] = {}
    scenes: set[str] = set()
    for kind, found in files:
        for record in found if kind is not Kind.VIDEOS else ():
            video_id = str(record.values.get("video_id") or "").strip()
            if not video_id:
                _reject(step, record, Fault("missing_value", "video_id"))
            elif video_id not in chosen and kind in (Kind.NARRATIONS, Kind.SCENES):
                step.accept(record.key, note="beyond the limit of videos")
            elif video_id not in chosen:
                step.accept(record.key, note="of a video that is not used")
            else:
                video = videos.setdefault(video_id, Video())
                try:
                    _take(step, record, kind, video, durations.get(video_id), scenes)
                except Fault as fault:
                    _reject(step, record, fault)
    return videos


def _take(
    step: Step, record: Record, kind: Kind, video: Video, duration_s: float | None, scenes: set[str]
) -> None:
    """Adds one record to its video. Raises Fault."""
    if kind is Kind.SCENES:
        scene = known.scene(record.values)
        if scene.clip_id in scenes:
            raise Fault("duplicate_clip", "clip_id", scene.clip_id)
        scenes.add(scene.clip_id)
        video.scenes.append((record, scene))
        return
    if kind is Kind.UNCATEGORISED:
        span, _ = known.within_video(known.clock_span(record.values), duration_s, START)
        video.uncategorised.append(span)
        step.accept(record.key, note="uncategorised sound: not used")
        return
    one: Action | Sound
    one = known.narration(record.values) if kind is Kind.NARRATIONS else known.sound(record.values)
    span, cut = known.within_video(one.span, duration_s, START)
    if cut:
        video.notes[record.key] = CUT
    video.wearer = str(record.values.get("participant_id") or "").strip() or video.wearer
    if isinstance(one, Action):
        if one.id in video.narrations:
            raise Fault("duplicate_annotation", "narration_id", one.id)
        video.narrations[one.id] = (record, Action(one.id, span, one.text, one.verb, one.nouns))
        return
    if one.id in video.sounds:
        raise Fault("duplicate_annotation", "annotation_id", one.id)
    video.sounds[one.id] = (record, Sound(one.id, span, one.label, one.description))


def mean_of_gaps(videos: Iterable[Video]) -> float | None:
    """a of section 3.1: the mean over all videos of the mean gap between stamped narrations."""
    gaps = []
    for video in videos:
        gap = mean_gap(sorted(at for _, scene in video.scenes for at, _ in scene.stamped))
        if gap is not None:
            gaps.append(gap)
    return sum(sorted(gaps)) / len(gaps) if gaps else None


def settle_epic(
    step: Step, params: Params, video_id: str, video: Video, duration_s: float | None, origin: Origin
) -> None:
    """Groups one EPIC video into clips and settles each of its annotations."""
    if not video.sounds or not video.narrations:
        reason = "no_narration" if video.sounds else "no_sound"
        for record, _ in [*video.narrations.values(), *video.sounds.values()]:
            _reject(step, record, Fault(reason, "video_id", video_id))
        return
    actions = [action for _, action in video.narrations.values()]
    sounds = [sound for _, sound in video.sounds.values()]
    end_s = duration_s or max(s.end_s for s in [*(a.span for a in actions), *(s.span for s in sounds)])
    clips = []
    for clip, mine in cut_clips(actions, params.shortest_s, params.longest_s, end_s):
        if clip.length_s < params.shortest_s:
            for action in mine:
                fault = Fault("too_short", None, f"clip of {clip.length_s} s")
                _reject(step, video.narrations[action.id][0], fault)
            continue
        clips.append(clip)
        near = [sound for sound in sounds if sound.span.shared_s(clip)]
        row = clip_row(
            clip_id=part_id(video_id, clip),
            video_id=video_id,
            wearer=video.wearer,
            setting=params.epic_setting,
            source="epic",
            clip=clip,
            actions=mine,
            sounds=near,
            things=(),
            exhaustive=dict.fromkeys(params.epic_exhaustive, True),
            uncategorised=video.uncategorised,
        )
        told = [video.narrations[action.id][0] for action in mine]
        heard = [video.sounds[sound.id][0] for sound in near]
        origin.extend((row["row_id"], r.file, r.line) for r in [*told, *heard])
        for n, record in enumerate(told):  # the clip's row comes with the first of its records
            step.accept(record.key, *([] if n else [row]), note=video.notes.get(record.key, ""))
    for record, sound in video.sounds.values():
        if any(sound.span.shared_s(clip) for clip in clips):
            step.accept(record.key, note=video.notes.get(record.key, ""))
        else:
            _reject(step, record, Fault("outside_clips", START, "no narrated clip is near"))


def settle_scenes(step: Step, params: Params, video: Video, gap: float | None, origin: Origin) -> None:
    """Makes the clips of one video's scenes; a long scene gives several."""
    silent = not any(scene.sounds for _, scene in video.scenes)
    for record, scene in video.scenes:
        long = scene.span.length_s > params.longest_s
        actions = list(scene.actions(gap))
        if silent:
            _reject(step, record, Fault("no_sound", "sounds", scene.clip_id))
        elif scene.span.length_s < params.shortest_s:
            _reject(step, record, Fault("too_short", "end", f"{scene.span.length_s} s"))
        elif long and not actions:
            _reject(step, record, Fault("too_long", "end", "and no action to cut it at"))
        else:
            clips = [(scene.span, actions)]
            if long:
                clips = cut_clips(actions, params.shortest_s, params.longest_s, scene.span.end_s)
            rows = [scene_row(scene, clip, mine, long) for clip, mine in clips]
            origin.extend((row["row_id"], record.file, record.line) for row in rows)
            step.accept(
                record.key, *rows, note="cut into several clips" if long else CUT if scene.cut else ""
            )


def scene_row(scene: Scene, clip: Span, actions: Sequence[Action], long: bool) -> dict[str, Any]:
    """The row of one clip of a scene."""
    return clip_row(
        clip_id=part_id(scene.clip_id, clip) if long else scene.clip_id,
        video_id=scene.video_id,
        wearer=scene.wearer,
        setting=scene.setting,
        source="scenes",
        clip=clip,
        actions=actions,
        sounds=[sound for sound in scene.sounds if sound.span.shared_s(clip)],
        things=scene.things,
        exhaustive=scene.exhaustive,
        uncategorised=(),
    )


def _reject(step: Step, record: Record, fault: Fault) -> None:
    step.reject(
        record.key, fault.reason, detail=fault.detail, place=record.place(fault.column), raw=record.raw
    )
