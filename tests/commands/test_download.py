"""`download`: files of an open dataset, resumed, verified, and never outside of their folder."""

import hashlib
import json
import stat
import zipfile

import pytest
import yaml

from medimg_eval.commands.cli import start
from medimg_eval.data import archives, download
from medimg_eval.data.archives import Archive
from medimg_eval.data.download import AccessError, HubFiles, fetch
from medimg_eval.errors import UsageError, UserError
from tests.helpers.catalogue import png
from tests.helpers.hub_server import COMMIT, serving

LARGE = bytes(range(256)) * 200
RECORDS = json.dumps(
    [{"id": "1", "image": "a.png", "question": "Which?", "A": "x", "B": "y", "answer": "B"}],
).encode()
FILES = {
    "test.json": RECORDS,
    "data/large.bin": LARGE,
    "data/deep/part-0.parquet": b"zero" * 500,
    "data/deep/part-1.parquet": b"one",
    "other/unwanted.bin": b"x" * 3000,
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of one dataset, and a machine without a token."""
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    with serving(FILES) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


def wanted(*files, **more):
    return HubFiles.of({"hub": "owner/name", "files": list(files), **more})


def bring(root, *files, **more):
    """What came, and what was said of it."""
    said = []
    return fetch(wanted(*files, **more), root, said.append), said


def part_of(root, data):
    return root / download.PARTS / f"{hashlib.sha256(data).hexdigest()}.part"


def test_only_what_the_patterns_name_is_fetched_and_a_second_time_nothing(hub, tmp_path):
    root = tmp_path / "data"
    done, said = bring(root, "test.json", "data/deep/part-*.parquet")
    assert (done.files, done.size, done.present) == (3, len(RECORDS) + 2000 + 3, 0)
    assert said[0] == f"owner/name, revision {COMMIT[:12]}: 3 files, 2.0 KiB"
    there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert there == {"test.json", "data/deep/part-0.parquet", "data/deep/part-1.parquet"}
    assert all((root / path).read_bytes() == FILES[path] for path in there)
    assert not (root / download.PARTS).exists()
    hub.asked.clear()
    done, said = bring(root, "test.json", "data/deep/part-*.parquet")
    assert (done.files, done.size, done.present) == (0, 0, 3)
    assert not hub.sent


def test_only_the_folders_are_listed_in_which_a_pattern_can_match():
    folders = download._matching_folders(["test.json", "data/train.json", "data/deep/*.parquet", "a/b[0-9]/c.json"])
    assert folders == {"": False, "data": False, "data/deep": True, "a": True}
    assert download._matching_folders(["*/test-*.parquet"]) == {"": True}


def test_a_file_that_differs_is_named_and_replaced(hub, tmp_path):
    (tmp_path / "test.json").write_bytes(RECORDS.replace(b'"B"}', b'"A"}'))  # of the same size
    done, said = bring(tmp_path, "test.json")
    assert done.files == 1
    assert "test.json: differs from the hub's, and is replaced" in said
    assert (tmp_path / "test.json").read_bytes() == RECORDS


def test_what_a_killed_command_has_left_is_gone_on_with(hub, tmp_path):
    part = part_of(tmp_path, LARGE)
    part.parent.mkdir()
    part.write_bytes(LARGE[:30_000])
    done, _ = bring(tmp_path, "data/large.bin")
    assert hub.sent == [("data/large.bin", "bytes=30000-")]
    assert done.size == len(LARGE) - 30_000
    assert (tmp_path / "data/large.bin").read_bytes() == LARGE


def test_a_connection_that_breaks_is_gone_on_with_at_once(hub, tmp_path):
    hub.breaks["data/large.bin"] = [20_000]
    done, _ = bring(tmp_path, "data/large.bin")
    first, second = [span for _, span in hub.sent]
    assert first is None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 20_000
    assert (done.files, done.size) == (1, len(LARGE))
    assert (tmp_path / "data/large.bin").read_bytes() == LARGE


def test_a_transfer_that_ends_for_good_keeps_its_part_for_the_next_command(hub, tmp_path, monkeypatch):
    def ends(_url, stream, **_):
        stream.write(b"" if stream.tell() else LARGE[:5000])
        raise ConnectionResetError("connection reset by peer")

    with monkeypatch.context() as patched:
        patched.setattr("huggingface_hub.file_download.http_get", ends)
        with pytest.raises(UserError, match=r"data/large.bin: the transfer broke off \(connection reset by peer\)"):
            bring(tmp_path, "data/large.bin")
    assert part_of(tmp_path, LARGE).read_bytes() == LARGE[:5000]
    bring(tmp_path, "data/large.bin")
    assert hub.sent == [("data/large.bin", "bytes=5000-")]
    assert (tmp_path / "data/large.bin").read_bytes() == LARGE


def test_a_part_that_is_wrong_is_thrown_away_and_fetched_from_its_start(hub, tmp_path):
    part = part_of(tmp_path, LARGE)
    part.parent.mkdir()
    for left in (b"?" * 30_000, b"?" * (len(LARGE) + 5)):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(left)
        done, _ = bring(tmp_path, "data/large.bin")
        assert done.files == 1
        assert (tmp_path / "data/large.bin").read_bytes() == LARGE
        (tmp_path / "data/large.bin").unlink()
    assert [span for _, span in hub.sent] == ["bytes=30000-", None, None]


@pytest.mark.parametrize("name", ["data/large.bin", "test.json"])
def test_a_wrong_checksum_names_the_file_and_the_others_are_kept(name, hub, tmp_path):
    hub.lied[name] = bytes(len(FILES[name]))
    with pytest.raises(
        UserError, match=f"1 of 3 files do not have the checksum that the hub gives.*: {name}; the same"
    ):
        bring(tmp_path, "test.json", "data/large.bin", "data/deep/part-1.parquet")
    assert not (tmp_path / name).exists()
    assert (tmp_path / "data/deep/part-1.parquet").read_bytes() == b"one"
    hub.lied.clear()
    done, _ = bring(tmp_path, "test.json", "data/large.bin", "data/deep/part-1.parquet")
    assert (done.files, done.present) == (1, 2)


def test_a_gated_set_says_where_access_is_asked_for_and_comes_once_the_token_is_accepted(hub, tmp_path, monkeypatch):
    hub.opens_to = "hf_right"
    said = (
        "is gated, and the hub does not accept {}; ask for access at https://huggingface.co/datasets/owner/name, then"
    )
    with pytest.raises(AccessError, match=said.format("a user without a token")):
        bring(tmp_path, "test.json")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(AccessError, match=said.format("the token of this machine")):
        bring(tmp_path, "test.json")
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert bring(tmp_path, "test.json")[0].files == 1


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, AccessError, r"name to a user without a token"),
        (
            403,
            AccessError,
            r"file test.json: the hub does not accept a user without a token \(403\); run `hf auth login`",
        ),
        (500, UserError, r"file test.json: the hub answers 500; the same command goes on from here"),
    ],
)
def test_a_refusal_is_one_sentence(status, kind, said, hub, tmp_path):
    hub.said = (status, "RepoNotFound" if status == 401 else "")
    with pytest.raises(kind, match=said):
        bring(tmp_path, "test.json")


def test_names_that_are_not_there_are_told(hub, tmp_path):
    with pytest.raises(
        UserError, match=r"holds no file 'tset.json' in revision c0ffee000000; look for its present name"
    ):
        bring(tmp_path, "test.json", "tset.json")
    with pytest.raises(UserError, match=r"holds no file 'nowhere/\*.json'"):
        bring(tmp_path, "nowhere/*.json")
    assert "owner/name: no file is called nowhere/*.json" in bring(tmp_path, "test.json", "nowhere/*.json")[1]
    with pytest.raises(UserError, match="has no revision 'v9'"):
        bring(tmp_path, "test.json", revision="v9")
    with pytest.raises(AccessError, match="the hub shows no dataset owner/nobody to a user without a token"):
        fetch(HubFiles.of({"hub": "owner/nobody", "files": ["a"]}), tmp_path, print)
    with pytest.raises(UsageError, match="hub is 'a/b/c', expected owner/name"):
        fetch(HubFiles.of({"hub": "a/b/c", "files": ["a"]}), tmp_path, print)


def test_a_hub_that_is_away_is_one_sentence(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"owner/name: the hub cannot be reached \(.*HF_HUB_OFFLINE"):
        bring(tmp_path, "test.json")


def test_a_file_that_would_lie_outside_of_the_folder_is_refused(hub, tmp_path):
    hub.files = {"../evil.json": b"{}"}
    with pytest.raises(UserError, match="names a file '../evil.json', which is outside of the folder"):
        bring(tmp_path / "root", "*evil.json")
    assert not (tmp_path / "evil.json").exists()


def test_a_full_disk_is_told_before_anything_is_fetched(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: Free(40_000))
    with pytest.raises(
        UserError, match=r"what is missing of owner/name needs 50.0 KiB, and 39.1 KiB are free; make room"
    ):
        bring(tmp_path, "data/large.bin")
    assert not hub.sent
    part = part_of(tmp_path, LARGE)
    part.write_bytes(LARGE[:30_000])  # what is there already needs no more room
    assert bring(tmp_path, "data/large.bin")[0].files == 1


class Free:
    """What shutil.disk_usage returns."""

    def __init__(self, free):
        self.free = free


def test_two_commands_do_not_write_into_one_folder_at_once(hub, tmp_path):
    from filelock import FileLock

    (tmp_path / download.PARTS).mkdir()
    with (
        FileLock(tmp_path / download.PARTS / "lock"),
        pytest.raises(UserError, match="another process is downloading into this folder"),
    ):
        bring(tmp_path, "test.json")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hub": "a/b", "file": ["x"]}, "card.download has no key 'file'; did you mean 'files'"),
        ({"hub": "a/b"}, "expected `hub`, as owner/name, and `files`"),
        (
            {"hub": "a/b", "files": ["x"], "unpack": [{"zip": "x.zip", "srtip": "a/"}]},
            "no key 'srtip'; did you mean 'strip'",
        ),
        ({"hub": "a/b", "files": ["x"], "unpack": [{"strip": "a/"}]}, "`zip`, the archive's name, is not set"),
    ],
)
def test_a_card_that_cannot_be_meant_is_refused(config, said):
    with pytest.raises(UsageError, match=said):
        HubFiles.of(config)


def archive(path, members, **flags):
    """A zip file; flags are the modes of members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = flags.get(name, stat.S_IFREG | 0o644) << 16
            made.writestr(info, data)
    return path


def test_archives_are_unpacked_beside_themselves_and_only_what_is_missing(tmp_path):
    archive(tmp_path / "sub" / "a.zip", {"top/x.png": b"x", "top/y.png": b"yy", "z.png": b"zzz"})
    said = []
    Archive.of("sub/a.zip").unpack(tmp_path, said.append)
    assert (tmp_path / "sub/top/y.png").read_bytes() == b"yy"
    assert said == [f"sub/a.zip: 3 of 3 members unpacked below {tmp_path / 'sub'}"]
    (tmp_path / "sub/z.png").write_bytes(b"cut")
    (tmp_path / "sub/top/x.png").unlink()
    Archive.of("sub/a.zip").unpack(tmp_path, said.append)
    assert said[-1].startswith("sub/a.zip: 1 of 3")
    Archive.of({"zip": "sub/a.zip", "strip": "top/", "below": "imgs"}).unpack(tmp_path, said.append)
    assert {path.name for path in (tmp_path / "sub/imgs").iterdir()} == {"x.png", "y.png", "z.png"}


@pytest.mark.parametrize(
    "name", ["../x.png", "/etc/x.png", "a/../../x.png", "C:\\x.png", "..\\x.png", "\\\\host\\a\\x"]
)
def test_members_outside_of_the_folder_are_refused_and_nothing_is_written(name, tmp_path):
    root = tmp_path / "root"
    archive(root / "a.zip", {"good.png": b"x", name: b"x"})
    with pytest.raises(UserError, match=r"a.zip: member .* lies outside of the folder; it is not unpacked"):
        Archive("a.zip").unpack(root, print)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.zip"]


def test_a_prefix_that_is_taken_off_opens_no_way_out(tmp_path):
    archive(tmp_path / "a.zip", {f"top/{tmp_path}/evil.png": b"x"})
    with pytest.raises(UserError, match="lies outside of the folder"):
        Archive.of({"zip": "a.zip", "strip": "top/", "below": "imgs"}).unpack(tmp_path, print)
    assert not (tmp_path / "evil.png").exists()


def test_links_in_archives_are_refused(tmp_path):
    archive(tmp_path / "a.zip", {"link": b"/etc/passwd"}, link=stat.S_IFLNK | 0o777)
    with pytest.raises(UserError, match="member 'link' is a link"):
        Archive("a.zip").unpack(tmp_path, print)


def test_bombs_are_refused_whether_they_declare_what_they_hold_or_not(tmp_path, monkeypatch):
    bomb = archive(tmp_path / "a.zip", {"a.bin": bytes(5 * 2**20)})
    monkeypatch.setattr(archives, "MAX_RATIO", 100)
    with pytest.raises(UserError, match=r"declares 5,242,880 bytes in .* decompression bomb"):
        Archive("a.zip").unpack(tmp_path, print)
    monkeypatch.setattr(archives, "MAX_RATIO", 10**6)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: Free(2**20))
    with pytest.raises(UserError, match=r"what a.zip unpacks to needs 5.0 MiB, and 1.0 MiB are free"):
        Archive("a.zip").unpack(tmp_path, print)
    data = bomb.read_bytes()
    declared = (5 * 2**20).to_bytes(4, "little")
    bomb.write_bytes(data.replace(declared, (1000).to_bytes(4, "little")))
    with pytest.raises(UserError, match=r"a.zip: cannot be unpacked \(.*delete it, and run the same command again"):
        Archive("a.zip").unpack(tmp_path, print)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_damaged_archives_are_named(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no zip")
    with pytest.raises(UserError, match=r"a.zip: cannot be unpacked \(File is not a zip file\)"):
        Archive("a.zip").unpack(tmp_path, print)
    with pytest.raises(UserError, match="b.zip: cannot be unpacked"):
        Archive("b.zip").unpack(tmp_path, print)


def task(tmp_path, **card):
    """The folder for --config-dir with a task of questions that says so in its card."""
    config = {
        "_target_": "medimg_eval.tasks.QuestionTask",
        "name": "mine",
        "layout": {
            "_target_": "medimg_eval.data.layouts.Questions",
            "root": str(tmp_path / "there"),
            "records": {"test": "test.json"},
            "id": "id",
            "options": {"columns": ["A", "B"]},
            "answer": {"letter": "answer"},
            "images": "images/{image}",
        },
        "metrics": ["accuracy", "unanswered"],
        "splits": {"test": "test"},
        "card": {"description": "Mine.", "access": "open", **card},
    }
    path = tmp_path / "conf" / "task" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(config))
    return str(tmp_path / "conf")


def test_the_command_says_what_came_and_what_to_run_next_and_that_is_right(hub, tmp_path, capsys):
    hub.files["images.zip"] = archive(tmp_path / "images.zip", {"a.png": png(1)}).read_bytes()
    source = {"hub": "owner/name", "files": ["test.json", "images.zip"], "then": ["Look at them."]}
    conf = task(tmp_path, download={**source, "unpack": [{"zip": "images.zip", "below": "images"}]})
    assert start(["download", "--config-dir", conf, "task=mine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    size = len(RECORDS) + len(hub.files["images.zip"])
    assert lines[-3:] == [
        f"{tmp_path / 'there'}: 2 files fetched, {size} bytes; 0 were there",
        "left to do: Look at them.",
        "next: python -m medimg_eval check task=mine",
    ]
    assert start(["check", "--config-dir", conf, "task=mine"]) == 0
    assert "test: 1 question;" in capsys.readouterr().out
    away = tmp_path / "away"
    assert start(["download", "--config-dir", conf, "task=mine", f"root={away}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"check task=mine task.layout.root={away}")
    assert (away / "images" / "a.png").is_file()


def test_the_command_prints_the_steps_where_it_cannot_fetch(hub, tmp_path, capsys):
    conf = task(tmp_path, access="credentialed", download=["Sign the agreement.", "Put test.json here."])
    assert start(["download", "--config-dir", conf, "task=mine"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["to get it (credentialed):", "  Sign the agreement.", "  Put test.json here."]
    assert "task 'mine' is not fetched for you (credentialed); see the steps above" in err


def test_the_command_says_how_a_gated_set_is_got_and_ends_with_1(hub, tmp_path, capsys):
    hub.opens_to = "hf_right"
    conf = task(tmp_path, access="gated", download={"hub": "owner/name", "files": ["test.json"]})
    assert start(["download", "--config-dir", conf, "task=mine"]) == 1
    out, err = capsys.readouterr()
    assert "to get it: python -m medimg_eval download task=mine (from owner/name, gated)" in out
    assert "medimg_eval: owner/name is gated" in err
    assert "run `hf auth login`" in err


def test_the_command_needs_a_task_that_has_a_folder(capsys):
    assert start(["download"]) == 2
    assert "no task is named; add task=NAME" in capsys.readouterr().err
    assert start(["download", "task=brain_tissue"]) == 1
    assert "task 'brain_tissue' is not fetched for you" in capsys.readouterr().err
