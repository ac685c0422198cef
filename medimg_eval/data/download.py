"""Fetching a dataset from the Hugging Face hub: only what is needed, resumed where it broke off, verified."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from medimg_eval.data.archives import Archive, in_words, require_space
from medimg_eval.errors import UsageError, UserError
from medimg_eval.trust import stays_inside

PARTS = ".download"
"""The folder below the root that holds files while they are incomplete, each named by its checksum."""

KEYS = {"hub", "files", "revision", "unpack", "then"}

BLOCK = 2**20

Say = Callable[[str], None]


class AccessError(UserError):
    """The hub does not let this user have the files."""


@dataclass(frozen=True)
class HubFiles:
    """The files of a hub dataset, `owner/name`, that a benchmark needs.

    In patterns of `files`, `*` also stands for `/`. The revision is a branch, tag or commit, the main branch when
    empty. Archives to unpack are unpacked beside themselves; `then` are steps that are left to the user.
    """

    hub: str
    files: tuple[str, ...]
    revision: str = ""
    unpack: tuple[Archive, ...] = ()
    then: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> HubFiles:
        """Download of `card.download`; UsageError for unknown or missing keys.

        `hub` and `files` are needed.
        """
        UsageError.refuse_unknown("task.card.download has no key", KEYS, *config)
        if not config.get("hub") or not config.get("files"):
            raise UsageError("task.card.download: expected `hub`, as owner/name, and `files`, a list of patterns")
        return cls(
            str(config["hub"]),
            tuple(_as_plain_list(config["files"])),
            str(config.get("revision") or ""),
            tuple(Archive.of(archive) for archive in _as_plain_list(config.get("unpack"))),
            tuple(_as_plain_list(config.get("then"))),
        )

    @property
    def page(self) -> str:
        """Where people read about it, and ask for access."""
        return f"https://huggingface.co/datasets/{self.hub}"


@dataclass(frozen=True)
class RemoteFile:
    """File of a hub listing: path and size in bytes.

    `sha256` is empty for small files, which the hub keeps in git; `blob`, the name that git gives it (the SHA-1 of its
    size and what it holds), is compared then.
    """

    path: str
    size: int
    sha256: str
    blob: str

    @property
    def checksum(self) -> str:
        """Checksum of its content."""
        return self.sha256 or self.blob

    def is_whole(self, path: Path) -> bool:
        """Whether a file has the size and the checksum."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        digest = hashlib.sha256() if self.sha256 else hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
        return digest.hexdigest() == self.checksum


@dataclass
class Fetched:
    """Download counts: transferred files and bytes, and present files."""

    files: int = 0
    size: int = 0
    present: int = 0


def fetch(wanted: HubFiles, root: Path, say: Say) -> Fetched:
    """Downloads files below a folder, resuming and verifying them.

    `say` is told what happens, a line at a time.

    Raises:
        AccessError: the dataset is gated or private, and the hub does not accept the user's token.
        UserError: huggingface_hub is not installed, there is no such dataset or file, the disk is too full, the
            transfer broke off, or a file is not what the hub says it is; the message names it.
    """
    from filelock import FileLock, Timeout

    with _explain_errors(wanted):
        revision, files = listing(wanted, say)
    say(f"{wanted.hub}, revision {revision[:12]}: {len(files)} files, {in_words(sum(file.size for file in files))}")
    if not sys.stderr.isatty():
        hub_module("utils").disable_progress_bars()
    (root / PARTS).mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / PARTS / "lock")
    try:
        with lock.acquire(timeout=0):
            done = _fetch_all(wanted, revision, files, root, say)
    except Timeout as error:
        raise UserError(f"{root}: another process is downloading into this folder; wait for it") from error
    (root / PARTS / "lock").unlink(missing_ok=True)
    with suppress(OSError):  # an incomplete file of something else is left there
        (root / PARTS).rmdir()
    for archive in wanted.unpack:
        archive.unpack(root, say)
    return done


def listing(wanted: HubFiles, say: Say) -> tuple[str, list[RemoteFile]]:
    """A revision's commit and wanted files, sorted by path.

    `say` is told of patterns that match none. Raises UserError where a file that is named is not there, no pattern
    matches any, or the hub gives a file a name outside of the folder.
    """
    api = hub_module().HfApi()
    commit = str(api.repo_info(wanted.hub, repo_type="dataset", revision=wanted.revision or None).sha)
    there = list(_list_tree(api, wanted, commit))
    unmet = [name for name in wanted.files if not any(fnmatchcase(file.path, name) for file in there)]
    named = [name for name in unmet if not set("*?[") & set(name)]
    if named or len(unmet) == len(wanted.files):
        raise UserError(
            f"{wanted.hub}: holds no file {(named or unmet)[0]!r} in revision {commit[:12]}; look for its present name "
            f"at {wanted.page}/tree/main, and set task.card.download.files"
        )
    for name in unmet:
        say(f"{wanted.hub}: no file is called {name}")
    files = {file.path: file for file in there if any(fnmatchcase(file.path, name) for name in wanted.files)}
    outside = next((path for path in files if not stays_inside(path)), None)
    if outside is not None:
        raise UserError(f"{wanted.hub}: names a file {outside!r}, which is outside of the folder; nothing is fetched")
    return commit, [files[path] for path in sorted(files)]


def _list_tree(api: Any, wanted: HubFiles, commit: str) -> Iterator[RemoteFile]:
    """The files of the folders in which patterns can match."""
    for folder, deep in _matching_folders(wanted.files).items():
        with suppress(hub_module("errors").EntryNotFoundError):  # no such folder: its patterns match nothing
            for item in api.list_repo_tree(
                wanted.hub, folder or None, recursive=deep, revision=commit, repo_type="dataset"
            ):
                if hasattr(item, "blob_id"):  # a file
                    yield RemoteFile(item.path, item.size, item.lfs.sha256 if item.lfs else "", item.blob_id)


def _fetch_all(wanted: HubFiles, revision: str, files: Sequence[RemoteFile], root: Path, say: Say) -> Fetched:
    missing = [file for file in files if not file.is_whole(root / file.path)]
    done = Fetched(present=len(files) - len(missing))
    if done.present:
        say(f"{done.present} of {len(files)} files are there already, and are whole")
    begun = [_part_path(root, file) for file in missing]
    needed = sum(file.size for file in missing) - sum(part.stat().st_size for part in begun if part.is_file())
    require_space(root, needed, f"what is missing of {wanted.hub}")
    wrong = []
    for file in missing:
        if (root / file.path).exists():
            say(f"{file.path}: differs from the hub's, and is replaced")
        with _explain_errors(wanted, file.path):
            came, complete = _fetch_file(wanted, revision, file, root)
        done.size += came
        done.files += complete
        if complete:
            say(f"{file.path}: {in_words(file.size)}, checksum right")
        else:
            wrong.append(file)
            say(f"{file.path}: does not have the checksum {file.checksum} that the hub gives")
    if wrong:
        names = ", ".join(file.path for file in wrong)
        raise UserError(
            f"{wanted.hub}: {len(wrong)} of {len(files)} files do not have the checksum that the hub gives, and were "
            f"thrown away: {names}; the same command fetches them again"
        )
    return done


def _fetch_file(wanted: HubFiles, revision: str, file: RemoteFile, root: Path) -> tuple[int, bool]:
    """Downloads and verifies one file; returns its bytes and validity."""
    part, target = _part_path(root, file), root / file.path
    came = 0
    while True:
        held = part.stat().st_size if part.exists() else 0
        if held > file.size:
            part.unlink()
            held = 0
        _continue_transfer(wanted, revision, file, part)
        came += file.size - held
        if file.is_whole(part):
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
            return came, True
        part.unlink()
        if not held:
            return came, False  # what began with a part of an earlier command is fetched once more, from its start


def _continue_transfer(wanted: HubFiles, revision: str, file: RemoteFile, part: Path) -> None:
    """Resumes a partial file while more of it arrives."""
    hub = hub_module()
    url = hub.hf_hub_url(wanted.hub, file.path, repo_type="dataset", revision=revision, endpoint=hub.HfApi().endpoint)
    headers = {**hub_module("utils").build_hf_headers(), "Accept-Encoding": "identity"}
    while True:
        with part.open("ab") as stream:
            held = stream.tell()
            try:
                hub_module("file_download").http_get(
                    url,
                    stream,
                    resume_size=held,
                    headers=headers,
                    expected_size=file.size,
                    displayed_filename=file.path,
                )
            except _transfer_errors():
                stream.flush()
                if part.stat().st_size <= held:
                    raise
            else:
                return


def _part_path(root: Path, file: RemoteFile) -> Path:
    return root / PARTS / f"{file.checksum}.part"


def _matching_folders(patterns: Sequence[str]) -> dict[str, bool]:
    """Folders where patterns can match, and whether recursively."""
    depths: dict[str, bool] = {}
    for pattern in patterns:
        fixed = min((pattern.index(sign) for sign in "*?[" if sign in pattern), default=len(pattern))
        folder = pattern[:fixed].rpartition("/")[0]
        depths[folder] = depths.get(folder, False) or fixed < len(pattern)
    return depths


def hub_module(part: str = "") -> Any:
    """The library, or a module of it."""
    return importlib.import_module(f"huggingface_hub.{part}" if part else "huggingface_hub")


def _transfer_errors() -> tuple[type[BaseException], ...]:
    """Errors of transfers: the HTTP library's and the system's."""
    return (OSError, *hub_module("errors").HfHubHTTPError.__bases__)


@contextmanager
def _explain_errors(wanted: HubFiles, file: str = "") -> Iterator[None]:
    """Turns what the hub and the network say into sentences."""
    errors = hub_module("errors")
    what = f"{wanted.hub}, file {file}" if file else wanted.hub
    try:
        yield
    except errors.GatedRepoError as error:
        raise AccessError(
            f"{wanted.hub} is gated, and the hub does not accept {_token()}; ask for access at {wanted.page}, then run "
            "`hf auth login` and the same command again"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise AccessError(
            f"the hub shows no dataset {wanted.hub} to {_token()}; look at {wanted.page}, and where it is private run "
            "`hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"{wanted.hub}: has no revision {wanted.revision!r}; set task.card.download.revision"
        ) from error
    except errors.HFValidationError as error:
        raise UsageError(f"task.card.download.hub is {wanted.hub!r}, expected owner/name") from error
    except errors.HfHubHTTPError as error:
        code = getattr(error.response, "status_code", None)
        if code in (401, 403):
            message = f"the hub does not accept {_token()} ({code}); run `hf auth login` and the same command again"
            raise AccessError(f"{what}: {message}") from error
        raise UserError(f"{what}: the hub answers {code}; the same command goes on from here") from error
    except _transfer_errors() as error:
        message = " ".join(str(error).split()) or type(error).__name__
        fault = "the transfer broke off" if file else "the hub cannot be reached"
        raise UserError(f"{what}: {fault} ({message}); the same command goes on from here") from error


def _token() -> str:
    return "the token of this machine" if hub_module().get_token() else "a user without a token"


def _as_plain_list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
