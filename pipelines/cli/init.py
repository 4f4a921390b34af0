"""`headrace init`: a workspace is this project's graph with other inputs.

Law: nothing is written unless every source can be read; an existing folder is
left alone. Sources are copied, so that no machine's path enters the graph.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.data.source_files import KNOWN, data_files, is_data, left_out, require_named
from pipelines.errors import ConfigError, EnvironmentFault, InputError, nearest

if TYPE_CHECKING:
    from ruamel.yaml import YAML

PROJECT = Path(__file__).resolve().parents[2]
PROFILES = Path(__file__).parent / "profiles"
SOURCES = ("evergreen", "egoavu", "trit", "cbu", "self_knowledge")  # folders of data/raw


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the folder to make")
    parser.add_argument("--profile", default="demo", help="sizes and models: demo (default) or paper")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="ENGINE=PATH",
        help="a file or folder for evergreen, egoavu, trit, cbu or self_knowledge; repeatable",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="sets",
        help="a parameter, e.g. trit.ingest.limit=20; repeatable",
    )  # fmt: skip


def main(args: argparse.Namespace, root: Path) -> int:
    target = root / args.dir
    sources = _sources(args.source, root)
    params = _profile(args.profile)
    for text in args.sets:
        _set(params, text)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError("exists already and is not empty", where=args.dir, cure="name a new folder")
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        _make(beside, sources, params)
        if target.exists():
            target.rmdir()
        beside.rename(target)
    except OSError as e:
        raise EnvironmentFault(
            f"cannot be made: {e.strerror}", where=args.dir, cure="free disk space, or name another"
        ) from e
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    for engine in SOURCES:
        names = ", ".join(p.name for p in sources.get(engine, []))
        print(f"{engine}: {f'copied {names}' if names else 'the sample inputs of the project'}")
        for path in filter(Path.is_dir, sources.get(engine, [])):
            if others := left_out(path):
                print(f"{engine}: no data, not copied from {path.name}: {', '.join(others)}")
    print(f"next: cd {shlex.quote(args.dir)} && headrace run")
    return 0


def _sources(texts: list[str], root: Path) -> dict[str, list[Path]]:
    """ENGINE=PATH pairs, each looked at before anything is made."""
    found: dict[str, list[Path]] = {}
    for text in texts:
        engine, sep, name = text.partition("=")
        if not sep or not name:
            raise ConfigError(f"{text!r} is not ENGINE=PATH", where="--source")
        if engine not in SOURCES:
            raise ConfigError(f"unknown engine {engine!r}", where="--source", cure=nearest(engine, SOURCES))
        try:
            path = (root / name).resolve()
        except RuntimeError as e:
            raise InputError("is a link to itself", where=name, cure="name the file behind it") from e
        if not path.exists():
            raise InputError("no such file or folder", where=name, cure="check the path")
        if path.is_dir():
            data_files(path)
        elif not is_data(path):
            raise InputError(f"unknown suffix {path.suffix!r}", where=name, cure=KNOWN)
        require_named(path)
        found.setdefault(engine, []).append(path)
    return found


def _profile(name: str) -> dict[str, Any]:
    """The project's params.yaml, with its comments, and a profile's differences laid over it."""
    yaml = _commented()
    known = {"demo", *(p.stem for p in PROFILES.glob("*.yaml"))}
    if name not in known:
        raise ConfigError(f"unknown profile {name!r}", where="--profile", cure=nearest(name, known))
    params: dict[str, Any] = yaml.load(PROJECT / "params.yaml")
    if name != "demo":
        _lay_over(params, yaml.load(PROFILES / f"{name}.yaml"))
    return params


def _commented() -> YAML:
    """Reads and writes YAML so that comments and the form of lists stay."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    return yaml


def _lay_over(base: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _lay_over(base[key], value)
        else:
            base[key] = value


def _set(params: dict[str, Any], text: str) -> None:
    import yaml

    name, sep, value = text.partition("=")
    if not sep:
        raise ConfigError(f"{text!r} is not KEY=VALUE", where="--set")
    *path, last = name.split(".")
    at: Any = params
    for key in path:
        if not isinstance(at, dict) or key not in at:
            raise ConfigError(
                f"unknown key {name!r}", where="--set", cure=nearest(key, at if isinstance(at, dict) else ())
            )
        at = at[key]
    if not isinstance(at, dict):
        raise ConfigError(f"unknown key {name!r}", where="--set")
    try:
        given = yaml.safe_load(value)
    except yaml.YAMLError as e:
        raise ConfigError(f"{value!r} is not a YAML value", where=f"--set {name}") from e
    # On the one line where its comment stands, and with quotes where the reader of params needs them.
    at[last] = _commented().load(yaml.safe_dump(given, default_flow_style=True, allow_unicode=True))


def _make(folder: Path, sources: Mapping[str, list[Path]], params: Mapping[str, Any]) -> None:
    from pipelines.cli.params import check_params

    folder.mkdir(parents=True)
    shutil.copyfile(PROJECT / "dvc.yaml", folder / "dvc.yaml")
    _commented().dump(params, folder / "params.yaml")
    check_params(folder)
    (folder / "pipelines").symlink_to(PROJECT / "pipelines")
    raw = folder / "data" / "raw"
    raw.mkdir(parents=True)
    for engine in SOURCES:
        _lay(raw / engine, sources.get(engine, []), PROJECT / "data" / "raw" / engine)
    for name in ("facts", "benchmarks", "encoders"):
        shutil.copytree(PROJECT / "data" / "raw" / name, raw / name)
    for said in ("observations", "review"):
        _lay_said(folder, Path("data") / said / "evergreen", own="evergreen" in sources)
    for name in (".gitignore", ".dvcignore"):
        shutil.copyfile(PROJECT / name, folder / name)
    _dvc(folder)


def _lay(folder: Path, given: list[Path], sample: Path) -> None:
    """Copies the given files, or the project's sample where none is given. Symbolic links are followed."""
    if not given:
        shutil.copytree(sample, folder)
        return
    folder.mkdir()
    for path in given:
        files = [path] if path.is_file() else data_files(path)
        for file in files:
            inside = Path(path.name) / file.relative_to(path) if path.is_dir() else Path(file.name)
            to = folder / (inside if len(given) > 1 or path.is_file() else file.relative_to(path))
            if to.exists():
                raise ConfigError("two sources have this name", where=str(inside), cure="rename one of them")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
            to.chmod(0o644)


def _lay_said(folder: Path, part: Path, own: bool) -> None:
    """The project's observations and decisions are on its own sample questions; others start with none."""
    if own:
        (folder / part).mkdir(parents=True)
        (folder / part / ".gitkeep").touch()
    else:
        shutil.copytree(PROJECT / part, folder / part)


def _dvc(folder: Path) -> None:
    """DVC without version control of its own: a workspace in a Git repository is seen as such."""
    inside = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=folder, capture_output=True, text=True, check=False
    )
    (folder / ".dvc").mkdir()
    scm = "" if inside.returncode == 0 and Path(inside.stdout.strip()) == folder else "    no_scm = true\n"
    (folder / ".dvc" / "config").write_text(f"[core]\n    analytics = false\n    check_update = false\n{scm}")
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
