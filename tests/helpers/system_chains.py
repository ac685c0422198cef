"""Commands of published systems, run one after the other as they stand over files in their authors' form."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from medimg_eval.api.listing import published_systems
from medimg_eval.commands.cli import start
from medimg_eval.tasks import Task
from tests.helpers.benchmark_files import config

COMMANDS = sorted({line for system in published_systems().values() for line in system["commands"]})

QUICK = ("trainer.accelerator=cpu", "num_workers=0")
EPOCH = ("trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "batch_size=2")
NETWORK = "test_resnet"
"""A network of timm that is fitted in a second."""


class Chains(dict[tuple[str, ...], Callable]):
    """Lines of commands -> the function that writes their files, and gives each line its further words."""

    def add(self, *lines: str) -> Callable[[Callable], Callable]:
        """Registers the function below, of a folder and of pytest's request, for these lines, in their order.

        It returns the words that all lines get, or a list of such lists, one for each line.
        """
        assert set(lines) <= set(COMMANDS), f"{set(lines) - set(COMMANDS)}: no command of configs/systems.yaml"
        return lambda function: self.setdefault(lines, function)

    @property
    def names(self) -> list[str]:
        """What tests of them are called."""
        return [function.__name__.strip("_") for function in self.values()]

    @property
    def lines(self) -> set[str]:
        """All commands that are run."""
        return {line for lines in self for line in lines}


def key_of(word: str) -> str:
    """What a word of a command sets: `task.name=x`, `+task.name=x` and `~task.name` set the same."""
    return word.lstrip("+~").partition("=")[0]


def any_number(name: str, key: str = "task") -> list[str]:
    """Words that let a task go on with fewer cases than are published."""
    return [f"~{key}.expected"] if config(name).get("expected") else []


def write_classes(benchmark: Task, folder: Path) -> None:
    """Writes the right classes as probabilities, a file for each case; those that are not known have 0."""
    for case in benchmark.cases("test"):
        path = folder / f"{case.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: float(value == 1) for name, value in case.target.read().values.items()}))


@pytest.fixture
def run_chain(tmp_path, monkeypatch, capsys, request):
    """Runs the commands of a chain in a new folder, over the files that its function writes."""

    def run(chains: Chains, lines: tuple[str, ...]) -> None:
        monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
        further = chains[lines](tmp_path, request)
        monkeypatch.chdir(tmp_path)
        run_lines(lines, further, capsys)

    return run


def run_lines(lines: Sequence[str], further: Sequence, capsys) -> list[str]:
    """Runs commands in the present folder; returns what each of them printed.

    Args:
        lines: as configs/systems.yaml has them.
        further: words in the place of those with the same key, for all lines or one list for each.
        capsys: of pytest.
    """
    printed = []
    for place, line in enumerate(lines):
        more = further[place] if further and not isinstance(further[0], str) else further
        replaced = {key_of(word) for word in more}
        code = start([*(word for word in shlex.split(line) if key_of(word) not in replaced), *more])
        shown = capsys.readouterr()
        undefined = "no case has a value" in shown.err  # of what a few cases leave
        assert code == 0 or undefined, f"{line}\n...{shown.err[-3000:]}"
        if not line.startswith(("fit ", "test ", "export ", "readers real")):
            assert re.search(r"\d\.\d", shown.out), f"{line}\n{shown.out}"  # a table of numbers
        printed.append(shown.out)
    manifests = [json.loads(path.read_text()) for path in Path().rglob("manifest.json")]
    assert manifests or not any(line.startswith(("fit ", "test ")) for line in lines)
    assert {manifest["status"] for manifest in manifests if "status" in manifest} <= {"finished"}
    assert not any(manifest.get("failed_cases") for manifest in manifests)
    return printed
