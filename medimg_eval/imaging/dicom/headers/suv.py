"""Standardised uptake values: what the voxels of a PET image are multiplied by."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import CaseError

if TYPE_CHECKING:
    import pydicom

EARLY = timedelta(hours=1)
"""How long before the injection a dynamic scan may start."""

HALVINGS = 10.0
"""A tracer that halved more often than this between injection and scan points to a wrong date."""

LEAST_DOSE = 1e5
"""Doses below this many Bq were written in MBq or mCi: even a mouse is given a hundred times as much."""


def factor(dataset: pydicom.Dataset) -> float:
    """Says what turns a PET image's rescaled voxels into body-weight SUV, in g/ml.

    Follows the vendor-neutral recipe of QIBA: the dose decays from the injection to the moment the image was corrected
    to, which is the start of the series (`START`), the injection (`ADMIN`), or the middle of the frame (`NONE`, for
    which the factor holds for this slice only). Where the series time was set after the scan, by a later
    reconstruction, the start is worked out from the acquisition time. Philips counts have factors of their own.

    The header is that of one slice; of the earliest acquisition when the series covers several beds. Raises CaseError
    where something the factor needs is missing or contradicts itself; the message names it.
    """
    units = _element_text(dataset, "Units").upper()
    if units == "GML":
        kind = _element_text(dataset, "SUVType").upper() or "BW"
        if kind != "BW":
            raise _suv_error(dataset, f"its SUVs are of type {kind}, expected BW (body weight); read it without suv")
        return 1.0
    if units == "CNTS":
        total, activity = _philips_number(dataset, 0x1000), _philips_number(dataset, 0x1009)
        if total:
            return total
        if not activity:
            raise _suv_error(dataset, "Units is CNTS and the Philips factors (7053,1000) and (7053,1009) are missing")
        return activity * _per_becquerel(dataset)
    if units != "BQML":
        raise _suv_error(dataset, f"Units is {units or 'missing'}, expected BQML, CNTS or GML; read it without suv")
    return _per_becquerel(dataset)


def _per_becquerel(dataset: pydicom.Dataset) -> float:
    """SUV per Bq/ml: body weight in grams over remaining dose."""
    weight = _positive_number(dataset, "PatientWeight")
    if not 0 < weight < 700:
        raise _suv_error(dataset, "PatientWeight is missing or is not in kg")
    tracer = _tracer_sequence(dataset)
    dose = _positive_number(tracer, "RadionuclideTotalDose")
    if not dose > 0:
        raise _suv_error(dataset, "RadionuclideTotalDose is missing or zero")
    if dose < LEAST_DOSE:
        raise _suv_error(dataset, f"RadionuclideTotalDose is {dose:g}; expected Bq, such as 3.7e8")
    return weight * 1000.0 / (dose * _decayed_share(dataset, tracer))


def _decayed_share(dataset: pydicom.Dataset, tracer: pydicom.Dataset) -> float:
    """Share of dose left at the voxels' reference time."""
    correction = _decay_correction(dataset)
    if correction == "ADMIN":
        return 1.0
    half_life = _positive_number(tracer, "RadionuclideHalfLife")
    if not half_life > 0:
        raise _suv_error(dataset, "RadionuclideHalfLife is missing or zero")
    moment = _scan_start(dataset, half_life) if correction == "START" else _frame_middle(dataset, half_life)
    seconds = (moment - _injection_time(dataset, tracer, moment)).total_seconds()
    halvings = seconds / half_life
    if seconds < -EARLY.total_seconds() or halvings > HALVINGS:
        raise _suv_error(
            dataset,
            f"the scan starts {seconds / 3600:.1f} h after the injection, {halvings:.1f} half-lives; "
            "check RadiopharmaceuticalStartDateTime and the series' date and time",
        )
    return float(2.0**-halvings)


def _decay_correction(dataset: pydicom.Dataset) -> str:
    """DecayCorrection, once it agrees with CorrectedImage."""
    correction = _element_text(dataset, "DecayCorrection").upper()
    if correction not in ("START", "ADMIN", "NONE"):
        raise _suv_error(dataset, f"DecayCorrection is {correction or 'missing'}, expected START, ADMIN or NONE")
    corrected = dataset.get("CorrectedImage") or []
    done = {corrected} if isinstance(corrected, str) else set(corrected)
    if done and "ATTN" not in done:
        raise _suv_error(
            dataset, "CorrectedImage lacks ATTN, and SUVs need attenuation correction; read it without suv"
        )
    if done and ("DECY" in done) == (correction == "NONE"):
        raise _suv_error(
            dataset, f"DecayCorrection is {correction}, which CorrectedImage contradicts; mend one of them"
        )
    return correction


def _scan_start(dataset: pydicom.Dataset, half_life: float) -> datetime:
    """When the scan started: what START corrects to."""
    stated = _parse_moment(_element_text(dataset, "DecayCorrectionDateTime"))
    if stated is not None:
        return stated
    series, acquired = _date_and_time(dataset, "Series"), _acquisition_time(dataset)
    if series is not None and (acquired is None or series <= acquired):
        return series
    if acquired is None:
        raise _suv_error(dataset, "SeriesDate and SeriesTime are missing, and so are the acquisition's")
    own = _private_value(dataset, 0x0009, 0x100D)  # General Electric's
    stated = _parse_moment(
        own.decode("ascii", "replace").strip(" \0") if isinstance(own, bytes) else str(own or "").strip()
    )
    if stated is not None:
        return stated
    # The frame's reference time is counted from the start to the moment its mean activity is reached.
    reference, duration = (
        _positive_number(dataset, "FrameReferenceTime"),
        _positive_number(dataset, "ActualFrameDuration"),
    )
    if not (reference > 0 and duration > 0):
        return acquired
    return acquired + timedelta(seconds=_mean_time(duration / 1000, half_life) - reference / 1000)


def _frame_middle(dataset: pydicom.Dataset, half_life: float) -> datetime:
    """When a frame's activity was its mean: what uncorrected voxels speak of."""
    acquired, duration = _acquisition_time(dataset), _positive_number(dataset, "ActualFrameDuration")
    if acquired is None or not duration > 0:
        raise _suv_error(dataset, "AcquisitionTime or ActualFrameDuration is missing, and DecayCorrection is NONE")
    return acquired + timedelta(seconds=_mean_time(duration / 1000, half_life))


def _mean_time(duration: float, half_life: float) -> float:
    """Seconds into a frame when activity equals its mean."""
    decay = math.log(2) / half_life
    return math.log(decay * duration / -math.expm1(-decay * duration)) / decay


def _injection_time(dataset: pydicom.Dataset, tracer: pydicom.Dataset, moment: datetime) -> datetime:
    stated = _parse_moment(_element_text(tracer, "RadiopharmaceuticalStartDateTime"))
    if stated is not None:
        return stated
    time = _element_text(tracer, "RadiopharmaceuticalStartTime")
    injected = _parse_moment(moment.strftime("%Y%m%d") + time) if time else None
    if injected is None:
        raise _suv_error(dataset, "RadiopharmaceuticalStartDateTime and RadiopharmaceuticalStartTime are missing")
    # A time without a date is of the day that puts the injection before the scan.
    return injected - timedelta(days=1) if injected - moment > EARLY else injected


def _acquisition_time(dataset: pydicom.Dataset) -> datetime | None:
    return _parse_moment(_element_text(dataset, "AcquisitionDateTime")) or _date_and_time(dataset, "Acquisition")


def _date_and_time(dataset: pydicom.Dataset, of: str) -> datetime | None:
    day = _element_text(dataset, f"{of}Date") or _element_text(dataset, "SeriesDate")
    time = _element_text(dataset, f"{of}Time")
    return _parse_moment(day + time) if day and time else None


def _parse_moment(text: str) -> datetime | None:
    """Parses YYYYMMDDHHMM[SS[.ffffff]], ignoring time zones."""
    stated = re.fullmatch(r"(\d{12})(\d{2})?(\.\d+)?([+-]\d{4})?", text)
    if stated is None:
        return None
    minutes, seconds, fraction, _ = stated.groups()
    try:
        time = datetime.strptime(minutes + (seconds or "00"), "%Y%m%d%H%M%S")  # noqa: DTZ007 - no zone is stated
    except ValueError:
        return None
    return time + timedelta(seconds=float(fraction or 0))


def _tracer_sequence(dataset: pydicom.Dataset) -> pydicom.Dataset:
    sequence = dataset.get("RadiopharmaceuticalInformationSequence")
    if not sequence:
        raise _suv_error(dataset, "RadiopharmaceuticalInformationSequence is missing")
    return sequence[0]


def _philips_number(dataset: pydicom.Dataset, element: int) -> float:
    return _as_float(_private_value(dataset, 0x7053, element))


def _private_value(dataset: pydicom.Dataset, group: int, element: int) -> Any:
    element_ = dataset.get((group, element))
    return None if element_ is None else element_.value


def _positive_number(dataset: pydicom.Dataset, name: str) -> float:
    return _as_float(dataset.get(name))


def _as_float(value: Any) -> float:
    """Number, or 0.0 for missing: no needed number is zero."""
    try:
        number = float(value.decode("ascii").strip(" \0") if isinstance(value, bytes) else value)
    except (TypeError, ValueError, UnicodeDecodeError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _element_text(dataset: pydicom.Dataset, name: str) -> str:
    value = dataset.get(name)
    return "" if value is None else str(value).strip()


def _suv_error(dataset: pydicom.Dataset, problem: str) -> CaseError:
    return CaseError(f"{getattr(dataset, 'filename', None) or 'PET header'}: cannot be turned into SUV: {problem}")
