"""The one place that decides whether what a task holds may go to another machine, and notes what went where."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from medimg_eval.case import Case
from medimg_eval.case_index import any_images
from medimg_eval.errors import LeaveError
from medimg_eval.evidence import JUDGE
from medimg_eval.models.base import Model, is_here
from medimg_eval.tasks.base import MayLeave, Task, permission

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evaluation.run import Run

Sent = dict[str, Any]
"""What may be sent: `to` which host, by which `role` and `name`, `what`, on whose `permission`."""

TRACKED = ("scores", "command line", "console")
"""What trackers send: W&B takes the last two by itself."""


class Data(Protocol):
    """Whose data it is about; a task is one."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def may_leave(self) -> MayLeave:
        """Permission that its card states."""


def permitted_by(card: MayLeave, said: MayLeave) -> str:
    """Source of permission to send data: "card", "command line" or ""; a `no` always holds."""
    if "no" in (card, said):
        return ""
    if card == "yes":
        return "card"
    return "command line" if said == "yes" else ""


def permit(data: Data, said: Any, role: str, name: str, asked: Any, what: Sequence[str]) -> list[Sent]:
    """Returns what would leave this machine, one entry per server; none for what stays.

    `said` is `may_leave=` of the command, None where nothing is said. What is asked, of a `role` such as `model` or
    `judge`, is a model or a logger of Lightning's; `what` is sent to it, such as `images`.

    Raises:
        LeaveError: it may not leave.
        UsageError: `said`, or the card, is none of yes, no and ask.
    """
    card, permission_ = data.may_leave, permission(said, "may_leave")
    by = permitted_by(card, permission_)
    to = list(dict.fromkeys(_list_hosts(asked)))
    if to and not by:
        would = f"{role} {name!r} would send {', '.join(what)} to {', '.join(to)}"
        if card == "no":
            why = "its data may not leave this machine (may_leave: no in its card)"
            raise LeaveError(f"task {data.name!r}: {why}, and {would}; name one on this machine", mend="")
        if permission_ == "no":
            raise LeaveError(f"task {data.name!r}: may_leave=no, and {would}; name one on this machine", mend="")
        raise LeaveError(
            f"task {data.name!r}: nothing says that its data may leave this machine (may_leave: ask in its card, or no "
            f"word of it), and {would}; if their terms allow that, add may_leave=yes",
            mend="may_leave=yes",
        )
    return [{"to": host, "role": role, "name": name, "what": list(what), "permission": by} for host in to]


def note_sent(run: Run, sent: Sequence[Sent], trials: int) -> None:
    """Notes in the manifest, before sending, what of how many cases goes where."""
    before = run.manifest.get("sent", [])
    new = [entry for sent_entry in sent if (entry := {**sent_entry, "trials": trials}) not in before]
    if new:
        run.note(sent=[*before, *new])


def permit_model(task: Task, said: Any, name: str, model: Any, cases: Sequence[Case]) -> list[Sent]:
    """`permit` for the asked model and its partners, as patients."""
    pictures = any_images(cases) and getattr(model, "reads_images", True)
    contents = ["images"] if pictures and task.shows_images else []
    sent = permit(task, said, "model", name, model, [*contents, "questions"])
    for role, partner in task.partners.items():
        sent += permit(task, said, role, str(getattr(partner, "model", role)), partner, ["questions", "answers"])
    return sent


def permit_trackers(task: Task, said: Any, trackers: Sequence[Any]) -> list[Sent]:
    """`permit` of the trackers that a run is reported to."""
    return [
        sent for tracker in trackers for sent in permit(task, said, "tracker", type(tracker).__name__, tracker, TRACKED)
    ]


def permit_judge(task: Task, said: Any, name: str, judge: Any) -> list[Sent]:
    """`permit` of the judge of a task's answers."""
    contents = {what for need in task.requirements() if need.provider == JUDGE for what in task.shows(need)}
    return permit(task, said, "judge", name, judge, sorted(contents, key=("images", "questions", "answers").index))


def permit_providers(task: Task, said: Any, providers: Mapping[str, ModelSpec]) -> list[Sent]:
    """`permit` for providers: annotators, networks, extractors."""
    sent: list[Sent] = []
    for need in {need.provider: need for need in task.requirements() if need.provider != JUDGE}.values():
        role = "extractor" if need.kind == "features" else "annotator"
        sent += permit(task, said, role, need.provider, providers[need.provider].model, task.shows(need))
    return sent


def _list_hosts(asked: Any) -> Iterator[str]:
    """Hosts that receive data from a logger or model."""
    kinds = {kind.__name__ for kind in type(asked).__mro__}
    if "Logger" in kinds:
        yield from _tracker_hosts(asked, kinds)
        return
    waiting, visited = [asked], set()
    while waiting:
        item = waiting.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        if item is asked or isinstance(item, Model):
            if getattr(item, "remote", False):
                urls = [getattr(item, "base_url", ""), *getattr(item, "further_urls", ())]
                named = [urlsplit(str(url)).hostname or f"where {type(item).__name__} sends it" for url in urls]
                yield from (host for host in named if len(named) == 1 or not is_here(host))
            waiting += vars(item).values() if hasattr(item, "__dict__") else ()
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += item
        elif callable(getattr(type(item), "children", None)):  # what torch keeps modules in
            waiting += item.children()


def _tracker_hosts(logger: Any, kinds: set[str]) -> Iterator[str]:
    """Server of a logger; unknown ones count as remote."""
    if kinds & {"CSVLogger", "TensorBoardLogger", "DummyLogger"}:
        return
    url = type(logger).__name__
    if "WandbLogger" in kinds:
        mode = vars(logger).get("_wandb_init", {}).get("mode") or os.environ.get("WANDB_MODE", "")
        if vars(logger).get("_offline") or mode in ("offline", "dryrun", "disabled"):
            return
        url = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    elif "MLFlowLogger" in kinds:
        url = str(vars(logger).get("_tracking_uri", ""))
        if urlsplit(url).scheme in ("", "file", "sqlite") and not url.startswith("databricks"):
            return
    host = urlsplit(url).hostname or url
    if not is_here(host):
        yield host
