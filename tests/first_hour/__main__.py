"""Runs every block of the README and of the pages in docs/ as a newcomer would: from a wheel, in a new environment.

    python -m tests.first_hour [--out docs/develop/first_hour.json] [--environment FOLDER] [--go-on] [PAGE ...]

Builds the wheel, installs it into an environment without anything else, and runs the blocks of each page in their order
in a folder of the page's own, which holds what a reader has (`belongings.py`). A block fails that ends in an exit code
other than 0, or shows a traceback. Needs nothing but Python; the network only to install. `--environment` takes one
that is there, as it is. `--go-on` runs only the pages that failed, or that changed with what their reader has, since
the result in `--out`, and keeps its rows of the others, with their date and commit.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.first_hour.pages import ROOT, Block, all_blocks

HERE = Path(__file__).resolve().parent
LONGEST = 3600
"""Seconds that a block may take."""

SHOWN = 40
"""Last lines of a failed block that are shown."""


def installed(place: Path) -> Path:
    """Builds the wheel and installs it alone into an environment of its own; returns its folder."""
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = place / "wheel"
    clean = {
        key: value for key, value in os.environ.items() if key != "PYTHONPATH"
    }  # or pip takes its packages as there
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT], check=True, env=clean)
    subprocess.run([*pip, "install", *wheels.glob("*.whl")], check=True, env=clean)
    return place


def shell_of(environment: Path, home: Path) -> dict[str, str]:
    """The variables of a newcomer's shell: the environment is active, and nothing is left of the developer's."""
    kept = {key: value for key, value in os.environ.items() if key in ("LANG", "TERM", "OMP_NUM_THREADS")}
    return kept | {
        "PATH": os.pathsep.join([str(environment / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]),
        "VIRTUAL_ENV": str(environment),
        "HOME": str(home),
        "MPLBACKEND": "agg",
    }


def demo() -> Block:
    """The commands of `make demo` after those that install."""
    said = ["make", "--dry-run", "--always-make", "demo", "RUN=python -m medimg_eval"]
    done = subprocess.run(said, cwd=ROOT, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("python -m medimg_eval")]
    return Block("README.md", 0, "sh", "\n".join([*lines, ""]))


def prelude_of(page: str) -> Path:
    """The file of the names that the Python blocks of a page take from its reader; few pages have one."""
    return HERE / "preludes" / Path(page.removeprefix("docs/")).with_suffix(".py")


def belongings_digest(page: str) -> str:
    """Tells apart what the readers of a page have, by the functions that write it and its prelude."""
    tree = ast.parse((HERE / "belongings.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    (table,) = (node.value for node in tree.body if isinstance(node, ast.AnnAssign))
    assert isinstance(table, ast.Dict)
    reached: dict[str, str] = {}
    waiting: list[ast.AST] = [
        writers for key, writers in zip(table.keys, table.values, strict=True) if getattr(key, "value", "") == page
    ]
    while waiting:
        for name in {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)} & functions.keys():
            if name not in reached:
                reached[name] = ast.unparse(functions[name])
                waiting.append(functions[name])
    prelude = prelude_of(page)
    text = "".join([reached[name] for name in sorted(reached)]) + (prelude.read_text() if prelude.exists() else "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stands(former: dict[str, Any] | None, page: str, blocks: list[Block]) -> bool:
    """Whether the former result of a page holds still: nothing failed there, and nothing it rests on has changed."""
    return former is not None and (
        former["belongings"] == belongings_digest(page)
        and [(told["block"], told["digest"], told.get("why", "")) for told in former["blocks"]]
        == [(block.name, block.digest, block.not_run) for block in blocks]
        and all(told["result"] != "failed" for told in former["blocks"])
    )


def commit() -> str:
    """The state of the checkout; empty where it is none."""
    said = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(said, cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()


def cpu_seconds() -> float:
    """What all finished processes that this one has started took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(block: Block, before: str, folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Runs a block in a folder, or saves it there; returns what became of it.

    `before`: the Python of the page up to there, for its blocks are one session.
    """
    told: dict[str, Any] = {"block": block.name, "digest": block.digest}
    if block.not_run:
        return told | {"result": "not run", "why": block.not_run}
    if block.file is not None:
        (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.file).write_text(block.text)
        if block.language == "yaml":
            return told | {"result": "saved"}
    script = folder / f"block_{block.number}.{block.language[:2]}"
    script.write_text(before + block.text if block.language == "python" else block.text)
    program = ["bash", "-eu", "-o", "pipefail"] if block.language == "sh" else ["python"]
    used, started = cpu_seconds(), time.monotonic()
    try:
        done = subprocess.run(
            [*program, script.name],
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LONGEST,
            check=False,
        )
        output, code = done.stdout, str(done.returncode)
    except subprocess.TimeoutExpired as error:
        output, code = str(error), "none"
    script.unlink()
    told |= {"CPU s": round(cpu_seconds() - used, 1), "s": round(time.monotonic() - started, 1)}
    (folder / f"block_{block.number}.log").write_text(output)
    if code == "0" and "Traceback (most recent call last)" not in output:
        return told | {"result": "ran"}
    return told | {"result": "failed", "exit code": code, "output": output.splitlines()[-SHOWN:]}


def run_page(page: str, blocks: list[Block], place: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Runs all blocks of a page in a new folder with a reader's belongings; returns what became of them."""
    folder = place / Path(page).with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / ".venv").symlink_to(variables["VIRTUAL_ENV"])
    used = cpu_seconds()
    subprocess.run(["python", HERE / "belongings.py", page], cwd=folder, env=variables, check=True)
    told_of_page: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": commit(),
        "belongings": belongings_digest(page),
        "belongings CPU s": round(cpu_seconds() - used, 1),
        "blocks": [],
    }
    session = ""
    if prelude_of(page).exists():
        shutil.copy(prelude_of(page), folder / "prelude.py")
        session = "from prelude import *\n"
    for block in blocks:
        told = run(block, session, folder, variables)
        if block.language == "python" and block.file is None and told["result"] == "ran":
            session += block.text
        told_of_page["blocks"].append(told)
        print(f"{told['result']:8}{told.get('CPU s', ''):>8} CPU s  {told['block']}  {told.get('why', '')}", flush=True)
        for line in told.get("output", []):
            print(f"        {line}", flush=True)
    return told_of_page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/python.md; all where none is named")
    parser.add_argument("--out", type=Path, help="the file to write what became of each block to")
    parser.add_argument("--environment", type=Path, help="an environment with the wheel, instead of a new one")
    parser.add_argument("--folder", type=Path, help="keeps the folders of the pages there")
    parser.add_argument("--go-on", action="store_true", help="keeps what still holds of the result in --out")
    asked = parser.parse_args()
    pages = all_blocks()
    pages["README.md"].insert(0, demo())
    if asked.go_on and not asked.out:
        parser.error("--go-on goes on from the result in --out")
    if unknown := set(asked.pages) - set(pages):
        parser.error(f"no blocks in {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as made:
        place = (asked.folder or Path(made)).resolve()
        started = time.monotonic()
        environment = asked.environment.resolve() if asked.environment else installed(place / "environment")
        seconds = round(time.monotonic() - started)
        home = place / "home"
        home.mkdir(parents=True, exist_ok=True)
        variables = shell_of(environment, home)
        before = json.loads(asked.out.read_text()) if asked.go_on and asked.out.exists() else {"pages": {}}
        former = before["pages"]
        told = {
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "commit": commit(),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "installation s": before.get("installation s") if asked.environment else seconds,
        }
        results = {page: former[page] for page, blocks in pages.items() if stands(former.get(page), page, blocks)}
        for page in asked.pages or pages:
            if page not in results:
                results[page] = run_page(page, pages[page], place, variables)
            counts = Counter(block["result"] for one in results.values() for block in one["blocks"])
            if asked.out:
                whole = told | {
                    "counts": dict(counts),
                    "pages": {page: results[page] for page in pages if page in results},
                }
                asked.out.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
