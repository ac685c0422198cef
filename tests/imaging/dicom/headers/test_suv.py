"""SUV factors worked by hand: 70 kg, 350 MBq, a half-life of 100 minutes, and one half-life until the scan."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.suv import factor

HALF_LIFE = 6000.0
AT_INJECTION = 70_000 / 350e6
AT_SCAN = 2 * AT_INJECTION


def pet(**changes):
    """A header; `tracer__X` changes the tracer's element X, and None takes an element out."""
    tracer = Dataset()
    tracer.RadiopharmaceuticalStartTime = "090000"
    tracer.RadionuclideTotalDose = "350000000"
    tracer.RadionuclideHalfLife = str(HALF_LIFE)
    dataset = Dataset()
    dataset.filename = "slice.dcm"
    dataset.Units = "BQML"
    dataset.CorrectedImage = ["NORM", "DTIM", "ATTN", "SCAT", "DECY"]
    dataset.DecayCorrection = "START"
    dataset.PatientWeight = "70"
    dataset.SeriesDate = dataset.AcquisitionDate = "20200301"
    dataset.SeriesTime = "104000"
    dataset.AcquisitionTime = "105500"
    dataset.RadiopharmaceuticalInformationSequence = [tracer]
    for name, value in changes.items():
        owner, key = (tracer, name.removeprefix("tracer__")) if name.startswith("tracer__") else (dataset, name)
        if value is None:
            delattr(owner, key)
        else:
            setattr(owner, key, value)
    return dataset


def test_the_dose_decays_from_the_injection_to_the_start_of_the_series():
    assert factor(pet()) == pytest.approx(AT_SCAN)
    assert factor(pet(tracer__RadiopharmaceuticalStartTime="104000.000000")) == pytest.approx(AT_INJECTION)


def test_a_dose_already_corrected_to_the_injection_does_not_decay():
    assert factor(pet(DecayCorrection="ADMIN")) == pytest.approx(AT_INJECTION)
    assert factor(pet(DecayCorrection="ADMIN", SeriesTime=None, AcquisitionTime=None)) == pytest.approx(AT_INJECTION)


def test_uncorrected_voxels_speak_of_the_time_at_which_the_frame_reached_its_mean():
    plain = pet(DecayCorrection="NONE", CorrectedImage=["ATTN"], AcquisitionTime="104000", ActualFrameDuration="2")
    assert factor(plain) == pytest.approx(AT_SCAN)
    # A frame as long as the half-life: mean activity is (1 - 1/2) / ln 2 of the activity at its start.
    plain.ActualFrameDuration = str(int(HALF_LIFE * 1000))
    assert factor(plain) == pytest.approx(AT_SCAN / (0.5 / math.log(2)))


def test_a_stated_date_and_time_of_injection_wins_over_the_time_alone():
    dataset = pet(tracer__RadiopharmaceuticalStartDateTime="20200301072000.00+0100")
    assert factor(dataset) == pytest.approx(2 * AT_SCAN)
    long_lived = pet(
        tracer__RadiopharmaceuticalStartDateTime="20200226104000", tracer__RadionuclideHalfLife=str(4 * 86400.0)
    )
    assert factor(long_lived) == pytest.approx(AT_SCAN)


def test_an_injection_before_midnight_is_of_the_day_before():
    dataset = pet(tracer__RadiopharmaceuticalStartTime="230000", SeriesTime="004000", AcquisitionTime="004500")
    assert factor(dataset) == pytest.approx(AT_SCAN)


def test_a_dynamic_scan_may_start_before_the_injection():
    dataset = pet(tracer__RadiopharmaceuticalStartTime="104100")
    assert factor(dataset) == pytest.approx(AT_INJECTION * 2 ** (-60 / HALF_LIFE))


def test_a_series_time_set_after_the_scan_gives_way_to_the_acquisition():
    late = pet(SeriesTime="180000", AcquisitionTime="104000")
    assert factor(late) == pytest.approx(AT_SCAN)
    # The second bed was acquired 15 minutes into the scan; its frame's mean lies 915 s after the start.
    frame = 2
    second = pet(SeriesTime="180000", FrameReferenceTime="900000", ActualFrameDuration=str(frame))
    assert factor(second) == pytest.approx(AT_SCAN, rel=1e-6)
    private = pet(SeriesTime="180000")
    private.add_new((0x0009, 0x100D), "DT", "20200301104000.00")
    assert factor(private) == pytest.approx(AT_SCAN)


def test_a_stated_moment_of_correction_is_taken_at_its_word():
    assert factor(pet(DecayCorrectionDateTime="20200301122000")) == pytest.approx(2 * AT_SCAN)


def test_voxels_that_are_suv_already_stay():
    assert factor(pet(Units="GML")) == 1.0
    assert factor(pet(Units="GML", SUVType="BW", PatientWeight=None)) == 1.0


def test_philips_counts_have_factors_of_their_own():
    direct = pet(Units="CNTS", PatientWeight=None)
    direct.add_new((0x7053, 0x1000), "DS", "0.000587")
    assert factor(direct) == pytest.approx(0.000587)
    activity = pet(Units="CNTS")
    activity.add_new((0x7053, 0x1000), "DS", "0")
    activity.add_new((0x7053, 0x1009), "UN", b"1.5 ")
    assert factor(activity) == pytest.approx(1.5 * AT_SCAN)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"PatientWeight": None}, "PatientWeight is missing"),
        ({"PatientWeight": "70000"}, "PatientWeight is missing or is not in kg"),
        ({"tracer__RadionuclideTotalDose": None}, "RadionuclideTotalDose is missing"),
        ({"tracer__RadionuclideTotalDose": "350"}, "RadionuclideTotalDose is 350; expected Bq"),
        ({"tracer__RadionuclideHalfLife": None}, "RadionuclideHalfLife is missing"),
        ({"tracer__RadiopharmaceuticalStartTime": None}, "RadiopharmaceuticalStartTime are missing"),
        ({"tracer__RadiopharmaceuticalStartTime": "09"}, "RadiopharmaceuticalStartTime are missing"),
        ({"RadiopharmaceuticalInformationSequence": None}, "RadiopharmaceuticalInformationSequence is missing"),
        ({"DecayCorrection": None}, "DecayCorrection is missing"),
        ({"CorrectedImage": ["DECY"]}, "lacks ATTN"),
        ({"CorrectedImage": ["ATTN"]}, "CorrectedImage contradicts"),
        ({"CorrectedImage": "ATTN"}, "CorrectedImage contradicts"),
        ({"Units": "CNTS"}, "(7053,1000)"),
        ({"Units": "PROPCNTS"}, "Units is PROPCNTS"),
        ({"Units": None}, "Units is missing"),
        ({"Units": "GML", "SUVType": "LBM"}, "type LBM"),
        ({"SeriesTime": None, "AcquisitionTime": None}, "SeriesTime are missing"),
        ({"DecayCorrection": "NONE", "CorrectedImage": ["ATTN"]}, "ActualFrameDuration is missing"),
        ({"tracer__RadiopharmaceuticalStartDateTime": "20190301100000"}, "half-lives"),
        ({"tracer__RadiopharmaceuticalStartDateTime": "20200302100000"}, "half-lives"),
    ],
)
def test_what_is_missing_is_named(changes, words):
    with pytest.raises(CaseError) as error:
        factor(pet(**changes))
    assert "slice.dcm: cannot be turned into SUV" in str(error.value)
    assert words in str(error.value)
    assert "20200301" not in str(error.value)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 86399), st.integers(0, 8 * 3600), st.floats(3, 200), st.floats(1e6, 1e9), st.floats(3600, 100000))
def test_the_factor_is_the_formula_at_any_time_of_day(injected, waited, weight, dose, half_life):
    def clock(seconds):
        return f"{seconds // 3600 % 24:02d}{seconds // 60 % 60:02d}{seconds % 60:02d}"

    dataset = pet(
        PatientWeight=f"{weight:.6f}",
        SeriesTime=clock(injected + waited),
        AcquisitionTime=None,
        tracer__RadiopharmaceuticalStartTime=clock(injected),
        tracer__RadionuclideTotalDose=f"{dose:.3f}",
        tracer__RadionuclideHalfLife=f"{half_life:.4f}",
    )
    assert factor(dataset) == pytest.approx(weight * 1000 / (dose * math.exp(-math.log(2) * waited / half_life)), 1e-5)
