"""Series whose files were compressed by gzip: read as the files in them, and named by their own names."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from damaging import require_result_or_name
from dicom_fixtures import Grid, ramp, require_equal, write_series

from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging import identify
from medimg_eval.imaging.reading import read


def pack(paths):
    for path in paths:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return [path.with_name(path.name + ".gz") for path in paths]


@pytest.mark.parametrize("some", [6, 3])
def test_compressed_files_are_read_as_what_is_in_them(tmp_path, some):
    paths = write_series(tmp_path / "deep", ramp(), shuffle=None)
    packed = pack(paths[:some])
    assert identify(packed[0]) == identify(tmp_path) == "dicom"
    assert require_equal(tmp_path, ramp(), Grid()).notes == ()
    np.testing.assert_array_equal(read(packed[:3]).array[0], ramp()[:3].transpose(2, 1, 0))
    assert not list(Path(tempfile.gettempdir()).glob("dicom-*/**/*.dcm"))


def test_an_error_names_the_compressed_file(tmp_path):
    packed = pack(write_series(tmp_path, ramp(), shuffle=None))
    packed[2].write_bytes(packed[2].read_bytes()[:-30])
    with pytest.raises(CaseError, match=f"^{packed[2]}: is cut short or damaged"):
        read(tmp_path)
    packed[2].write_bytes(gzip.compress(gzip.decompress(packed[1].read_bytes())[:700]))
    with pytest.raises(CaseError, match=f"^{packed[2]}: is "):
        read(tmp_path)
    packed[2].unlink()
    with pytest.raises(CaseError, match="1 slice seems missing") as caught:
        read(tmp_path)
    assert str(packed[1]) in str(caught.value)


def test_a_file_that_is_there_in_both_forms_is_named(tmp_path):
    paths = write_series(tmp_path, ramp(), shuffle=None)
    (tmp_path / f"{paths[0].name}.gz").write_bytes(gzip.compress(paths[0].read_bytes()))
    with pytest.raises(CaseError, match=r"IM0000\.dcm\.gz: is there a second time, not compressed"):
        read(tmp_path)


def test_check_says_what_compressed_files_are(tmp_path):
    packed = pack(write_series(tmp_path, ramp(), shuffle=None))
    (one,) = describe.describe(tmp_path)
    assert one.kind == "DICOM CT series of 6 files"
    assert one.path == tmp_path
    (one,) = describe.describe(packed[0])
    assert (one.path, one.readable) == (packed[0], True)


def test_damaged_compressed_files_are_read_or_named(tmp_path):
    packed = pack(write_series(tmp_path / "deep", ramp(), shuffle=None))
    require_result_or_name(packed[2], lambda _: read(tmp_path), 60, head=1500)
