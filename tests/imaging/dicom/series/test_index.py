"""The index of a tree: what it finds, that it looks at nothing twice, and that it survives what happens to files."""

import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.dicom.series import index as module
from medimg_eval.imaging.dicom.series.index import OLD_NAME, index_tree, naming
from medimg_eval.patients import patient_key

AXIAL, SAGITTAL = [1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, -1]
CT, DX, RTSTRUCT = (f"1.2.840.10008.5.1.4.1.1.{end}" for end in ("2", "1.1.1", "481.3"))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "user cache"))


@pytest.fixture
def kept_at(tmp_path):
    """Where the index lies."""
    return lambda: next((tmp_path / "user cache" / "index").glob("*.parquet"))


def write(path, patient="p1", study="1.2.3", series="1.2.3.4", sop_class=CT, **elements):
    """Writes a small file; None takes an element out."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = sop_class
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.PatientID, dataset.PatientName = patient, "Secret^Person"
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = study, series
    dataset.Modality = {CT: "CT", DX: "DX", RTSTRUCT: "RTSTRUCT"}[sop_class]
    if sop_class == CT:
        dataset.ImageOrientationPatient, dataset.ImagePositionPatient = AXIAL, [0, 0, 0]
        dataset.PixelSpacing = [0.5, 0.5]
    if sop_class != RTSTRUCT:
        dataset.Rows = dataset.Columns = 2
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 8, 8, 7, 0
        dataset.PixelData = bytes(4)
        dataset["PixelData"].VR = "OB"
    for name, value in elements.items():
        setattr(dataset, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def ct(folder, count=3, **elements):
    return [write(folder / f"{k}", ImagePositionPatient=[0, 0, 2.0 * k], **elements) for k in range(count)]


@pytest.fixture
def tree(tmp_path):
    """Two patients, a CT series each, one with a scout of another orientation, three X-rays in one series."""
    root = tmp_path / "tree"
    ct(root / "a", BodyPartExamined="CHEST")
    write(root / "a" / "scout.txt", ImageOrientationPatient=SAGITTAL, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    ct(root / "b" / "deep", patient="p2", study="1.2.9", series="1.2.9.1")
    for k, view in enumerate(("PA", "LL", "PA")):
        write(root / f"x{k}.png", "p2", "1.2.8", "1.2.8.1", DX, ViewPosition=view, ImageLaterality="L")
    write(root / "structures", "p2", "1.2.9", "1.2.9.2", RTSTRUCT)
    (root / "notes.txt").write_text("not DICOM at all, whatever the name")
    (root / "empty").touch()
    (root / ".hidden").write_bytes((root / "x0.png").read_bytes())
    return root


def opened(monkeypatch):
    """Counts the files that are opened."""
    names = []
    real = module.read_header
    monkeypatch.setattr(module, "read_header", lambda path: names.append(path.name) or real(path))
    return names


def test_each_image_is_a_row_with_what_its_tags_say(tree):
    index = index_tree(tree)
    found = [(s.modality, s.group, len(s.paths), s.view, s.body_part, s.localizer) for s in index.entries]
    assert found == [
        ("CT", 1, 3, "", "CHEST", False),
        ("CT", 2, 1, "", "", True),
        ("DX", 1, 1, "PA", "", False),
        ("DX", 2, 1, "LL", "", False),
        ("DX", 3, 1, "PA", "", False),
        ("CT", 1, 3, "", "", False),
        ("RTSTRUCT", 1, 1, "", "", False),
    ]
    first = index.entries[0]
    assert (first.patient, first.study, first.series, first.sop_class) == (patient_key("p1"), "1.2.3", "1.2.3.4", CT)
    assert (first.rows, first.columns, first.frames, first.spacing) == (2, 2, 1, (0.5, 0.5))
    assert first.orientation == tuple(AXIAL)
    assert first.paths == tuple(tree / "a" / str(k) for k in range(3))
    assert index.entries[2].laterality == "L"
    assert index.problems == {}


def test_series_are_found_by_their_tags(tree):
    index = index_tree(tree)
    assert len(index.series()) == 7
    assert len(index.series(modality="ct")) == 3
    assert len(index.series(modality=("CT", "RTSTRUCT"), patient="p2")) == 2
    assert len(index.series(modality="CT", localizer=False, rows=2)) == 2
    assert [s.paths[0].name for s in index.series(view={"LL"})] == ["x1.png"]
    assert len(index.series(spacing=(0.5, 0.5))) == 3
    assert index.series(modality="MR") == []
    with pytest.raises(UsageError, match="no field 'modalty'; did you mean 'modality'"):
        index.series(modalty="CT")


def test_a_second_call_opens_nothing_and_finds_the_same(tree, monkeypatch):
    first = index_tree(tree)
    assert first.opened == 13
    names = opened(monkeypatch)
    second = index_tree(tree)
    assert names == []
    assert second.opened == 0
    assert second.entries == first.entries


def test_only_what_changed_is_opened_again(tree, monkeypatch):
    index_tree(tree)
    names = opened(monkeypatch)
    # Another view, hence another group.
    write(tree / "a" / "1", ImagePositionPatient=[0, 0, 2], ImageOrientationPatient=SAGITTAL, Rows=7)
    write(tree / "a" / "3", ImagePositionPatient=[0, 0, 6])
    (tree / "x1.png").unlink()
    os.utime(tree / "notes.txt", (1, 1))
    index = index_tree(tree)
    assert sorted(names) == ["1", "3", "notes.txt"]
    assert index.opened == 3
    assert [path.name for path in index.entries[0].paths] == ["0", "2", "3"]
    assert [(s.rows, len(s.paths)) for s in index.series(patient="p1", localizer=False)] == [(2, 3), (7, 1)]
    assert [s.view for s in index.series(modality="DX")] == ["PA", "PA"]
    names.clear()
    assert index_tree(tree).entries == index.entries
    assert names == []


def test_a_tree_that_moves_is_looked_at_again(tree):
    before = index_tree(tree)
    moved = tree.rename(tree.with_name("elsewhere"))
    after = index_tree(moved)
    assert after.opened == 13
    assert [len(s.paths) for s in after.entries] == [len(s.paths) for s in before.entries]
    assert all(path.is_file() for s in after.entries for path in s.paths)


def test_a_damaged_index_is_built_again_and_that_is_logged(tree, kept_at, caplog):
    first = index_tree(tree)
    kept_at().write_bytes(kept_at().read_bytes()[:-40])
    with caplog.at_level(logging.WARNING):
        second = index_tree(tree)
    assert second.entries == first.entries
    assert second.opened == 13
    assert f"{kept_at()}: is damaged" in caplog.text
    assert index_tree(tree).opened == 0


def test_an_index_of_another_version_or_salt_is_built_again(tree, tmp_path, kept_at, monkeypatch):
    first = index_tree(tree)
    table = pq.read_table(kept_at())
    pq.write_table(table.replace_schema_metadata({"version": "0"}), kept_at())
    assert index_tree(tree).opened == 13
    (tmp_path / "salt").write_text("another one, of a lab")
    monkeypatch.setenv("MEDIMG_EVAL_SALT", str(tmp_path / "salt"))
    second = index_tree(tree)
    assert second.opened == 13
    assert not {one.patient for one in first.entries} & {one.patient for one in second.entries}
    assert [one.paths for one in first.entries] == [one.paths for one in second.entries]  # in the same order


def test_the_index_is_its_owners_alone_and_names_nobody(tree, tmp_path, kept_at):
    ct(tree / "c", patient="4711472", study="1.7", series="1.7.1", SeriesDescription="chest of Jane Doe")
    (tmp_path / "user cache" / "index").mkdir(mode=0o755, parents=True)
    (tree / OLD_NAME).write_bytes(b"an index of an earlier version")
    index = index_tree(tree)
    assert stat.S_IMODE(kept_at().stat().st_mode) == 0o600
    assert stat.S_IMODE(kept_at().parent.stat().st_mode) == 0o700
    stored = str(pq.read_table(kept_at()).to_pylist())
    assert not [word for word in ("4711472", "p1'", "Jane", "Secret", "chest of") if word in stored]
    assert not [path for path in tree.iterdir() if path.name.startswith(".medimg")]
    (found,) = index.series(patient=4711472, description=["Chest of jane doe"])
    assert index.series(patient=found.patient) == [found]
    assert naming(found.paths[0]) == {"patient": "4711472", "description": "chest of Jane Doe"}


@pytest.mark.parametrize("kept", [140, 200, 300, 500, -1])
def test_damaged_files_are_named_and_tried_again(tree, caplog, kept):
    whole = (tree / "a" / "2").read_bytes()
    (tree / "a" / "2").write_bytes(whole[:kept])
    with caplog.at_level(logging.WARNING):
        index = index_tree(tree)
    assert list(index.problems) == [tree / "a" / "2"]
    assert "a/2" in index.problems[tree / "a" / "2"]
    assert "1 files could not be read" in caplog.text
    assert index_tree(tree).opened == 1
    (tree / "a" / "2").write_bytes(whole)
    index = index_tree(tree)
    assert index.problems == {}
    assert len(index.entries[0].paths) == 3


@pytest.mark.parametrize(("name", "content"), [("0.dcm", b"words"), ("7.dcm", b""), ("a/9", b"words")])
def test_what_is_named_like_dicom_and_is_none_is_a_problem(tree, name, content):
    (tree / name).write_bytes(content)
    for _ in range(2):
        index = index_tree(tree)
        assert list(index.problems) == [tree / name]
        (one,) = (entry for entry in index.entries if tree / name in entry.paths)
        assert one.damaged == (not name.startswith("a/"))  # in a folder with a stack it is one of its slices


def test_a_cache_that_cannot_be_written_is_told(tree, monkeypatch, caplog):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tree / "x0.png"))  # a file: nothing can be written there
    assert index_tree(tree).opened == 13
    assert "cannot be written; every call will look at all files" in caplog.text
    assert index_tree(tree).opened == 13


def test_the_index_can_be_kept_elsewhere(tree, tmp_path):
    index_tree(tree, cache=tmp_path / "here")
    assert [path.suffix for path in (tmp_path / "here").iterdir()] == [".parquet"]
    assert stat.S_IMODE(next((tmp_path / "here").iterdir()).stat().st_mode) == 0o600
    assert index_tree(tree, cache=tmp_path / "here").opened == 0


def test_a_failed_write_leaves_no_file(tree, monkeypatch):
    def broken(table, where, **options):
        where.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", broken)
    index_tree(tree)
    assert [path.name for path in tree.iterdir() if path.name.startswith(".")] == [".hidden"]


def test_empty_series_uids_are_told_apart_by_patient_and_number(tmp_path):
    root = tmp_path / "tree"
    for patient in ("p1", "p2"):
        for number in (1, 2):
            for k in range(2):
                write(root / f"{patient}{number}{k}", patient, "", "", SeriesNumber=number,
                      ImagePositionPatient=[0, 0, k])  # fmt: skip
    index = index_tree(root)
    assert [(s.patient, s.number, s.group, len(s.paths)) for s in index.entries] == [
        (patient_key("p1"), "1", 1, 2), (patient_key("p2"), "1", 1, 2),
        (patient_key("p1"), "2", 2, 2), (patient_key("p2"), "2", 2, 2),
    ]  # fmt: skip


def test_a_series_uid_that_two_patients_share_is_two_series(tmp_path):
    ct(tmp_path / "tree" / "one", patient="p1")
    ct(tmp_path / "tree" / "two", patient="p2")
    assert [(s.patient, len(s.paths)) for s in index_tree(tmp_path / "tree").entries] == [
        (patient_key(name), 3) for name in ("p1", "p2")
    ]


def test_links_are_followed_once_and_odd_names_survive(tmp_path):
    root = tmp_path / "tree"
    ct(root / "ünïcode folder", 1)
    raw = os.path.join(os.fsencode(root), b"caf\xe9")  # noqa: PTH118 - a name that is not UTF-8
    with open(raw, "wb") as stream:  # noqa: PTH123
        stream.write((root / "ünïcode folder" / "0").read_bytes())
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "nowhere").symlink_to(tmp_path / "gone")
    first = index_tree(root)
    assert [len(s.paths) for s in first.entries] == [2]
    second = index_tree(root)
    assert second.opened == 0
    assert second.entries == first.entries
    assert all(path.is_file() for path in second.entries[0].paths)
    # Data that are fetched on demand lie there as links to nowhere: a series without them is no whole series.
    assert set(first.problems) == set(second.problems) == {root / "nowhere"}
    assert "nowhere: is a link to a file that is not there" in first.problems[root / "nowhere"]


def test_nothing_that_names_a_patient_is_printed_or_logged(tree, caplog):
    ct(tree / "c", patient="ID-4711", study="1.7", series="1.7.1", SeriesDescription="Secret^Person")
    with caplog.at_level(logging.DEBUG):
        index = index_tree(tree)
    told = repr(index) + repr(index.series()) + caplog.text
    assert "4711" not in told
    assert "Secret" not in told
    assert len(index.series(patient="ID-4711")) == 1


def test_a_folder_that_cannot_be_opened_is_named(tree, monkeypatch):
    real = os.scandir

    def guarded(folder):
        if str(folder).endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(CaseError, match=r"b/deep: cannot be opened \(Permission denied\)"):
        index_tree(tree)


def test_calls_at_the_same_time_leave_a_whole_index(tree, caplog):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index_tree(tree).entries, range(12)))
    assert all(entries == found[0] for entries in found)
    assert "damaged" not in caplog.text
    assert index_tree(tree).opened == 0
    assert [path.name for path in tree.glob(".*")] == [".hidden"]


@pytest.mark.parametrize("inside", [None, {}, {"a.txt": b"x", "b": b""}, {"cut.dcm": bytes(128) + b"DICM\2\0"}])
def test_a_tree_without_dicom_is_refused_by_name(tmp_path, inside):
    root = tmp_path / "tree"
    for name, data in (inside or {}).items():
        root.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    if inside == {}:
        root.mkdir()
    with pytest.raises(CaseError, match=f"{root}: (no such folder|holds no DICOM file)"):
        index_tree(root)
    assert not list(tmp_path.glob("user cache/index/*"))
