"""`headrace graph`: the graph as text; `--write` declares the code that each stage reaches."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.closure import closure
from pipelines.errors import StageError

CODE = re.compile(r"^\s+- pipelines/\S+\n", re.M)
HEAD = re.compile(r"^  (?P<engine>[a-z_]+)\.(?P<step>[a-z_]+):\n", re.M)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mermaid", action="store_true", help="as a Mermaid diagram, as in the README")
    parser.add_argument("--write", action="store_true", help="write the code of each stage into dvc.yaml")


def main(args: argparse.Namespace, root: Path) -> int:
    if args.write:
        path = root / "dvc.yaml"
        before = path.read_text(encoding="utf-8")
        after = with_code(before, Path(__file__).resolve().parents[2])
        if after != before:
            from pipelines.data.tables import replace

            replace(path, lambda beside: beside.write_text(after, encoding="utf-8"))
        print("dvc.yaml " + ("is as it was" if after == before else "now names the code of every stage"))
        return 0
    from pipelines import graph

    found = graph.stages(root)
    above = graph.upstream(found)
    if args.mermaid:
        print(mermaid({s.name: above[s.name] for s in found}))
        return 0
    for stage in found:
        raw = [d for d in stage.deps if d not in stage.code]
        print(f"{stage.name:24} <- {', '.join(above[stage.name] or raw)}")
    return 0


def mermaid(above: Mapping[str, Sequence[str]]) -> str:
    """The graph as Mermaid text, an engine a box; the entries of a matrix are one node.

    What reads every stage (the report, the answers) is named and not drawn.
    """
    bare = {name.partition("@")[0]: [a.partition("@")[0] for a in ups] for name, ups in above.items()}
    for reads_all in ("evaluation.report", "evaluation.answers"):
        bare.pop(reads_all, None)
    boxes: dict[str, list[str]] = {}
    for name in bare:
        boxes.setdefault(name.split(".")[0], []).append(name)
    out = ["flowchart LR"]
    for engine, names in boxes.items():
        out += [f"  subgraph {engine}", *(f"    {_node(n)}[{n.split('.')[1]}]" for n in names), "  end"]
    out += sorted({f"  {_node(a)} --> {_node(name)}" for name, ups in bare.items() for a in ups})
    return "\n".join(out)


def _node(name: str) -> str:
    return name.replace(".", "_")


def with_code(text: str, root: Path) -> str:
    """dvc.yaml with the code lines of every stage as its imports say; all else as it was."""
    pieces = HEAD.split(text)
    done = pieces[0]
    for engine, step, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        files = closure(root / "pipelines" / engine / f"{step}.py", root)
        lines = "".join(f"      - {f}\n" for f in files)
        bare = CODE.sub("", body)
        if "    params:" not in bare:
            raise StageError(f"stage {engine}.{step} has no line `params:`", where="dvc.yaml")
        done += f"  {engine}.{step}:\n" + bare.replace("    params:", f"{lines}    params:", 1)
    return done
