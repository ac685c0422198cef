"""How a series is named to people: its number, its description where that can name nobody, and plain facts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.headers.volume_facts import acquired

_WORDS = """
    abd abdo abdomen abdominal acquisition adc addome after aif angio angiography ankle ant anterior ao aorta aortic
    ap apex arch arm arms art arteria arterial arteriell arterielle arteriosa artery asl atlas avec aw ax axi axial
    axiale axis background basal basale base bassin becken before bh bilat bilateral bladder blade bold bolus bone
    both bowel brain bravo breast breath breathhold brust bw c ca calcium cardiac carotid cbf cbv ce cerebral
    cervical chest cine cm coil con contrast contraste contrasto cor coronal coronale coronary corrected crane
    cranial csf csi cspine ct cta ctp cube cut d dce deep delay delayed derived dest dicom diff diffusion dir direct
    dirs dixon dl dose dti dual dwi dyn dynamic e early ecg ech echo echoes elbow encefalo enhanced ep ep2d epi
    equilibrium exp expiration f fa face fase fast fat fb feet femur ffe fid field fieldmap fiesta fil fine first
    flair flash flip fmri foie follow foot fov fph free fs fsat fse full fused g gated gd ge gr gradient grase gre
    hals hand hard haste head heart hf high hip hr hrct hx i iac ida image images in inf inferior injection inphase
    insp inspiration inv inversion inversionrecovery ir ischemia iso isotropic k kernel kidney knee knochen kontrast
    kv la large lat late lateral lava leber left leg lge liver loc localiser localizer long low lower lspine lumbar
    lung lunge lungs mag magnetization magnitude map mask mb mean med mediastinum medic mid min mip mit mm mmhg moco
    molli mosaic motion mpr mprage mr mra mrcp mri ms mtc mtt multi multiband multiphase myo n nativ native
    nativphase nc neck nephrographic niere no non noncontrast none norm normal o obl oblique of off ohne on opp
    opposed orbit orbits out outofphase p pa pancreas par parallel parotid pc pe pelvis perf perfusion pet ph phase
    plain planar plane plus pons portal portale portalvenoes portalvenous portovenous positioning post posterior
    poumon pre prep primary prone prostate proton pulmonary pv pv1 pw pwi quick r ra rachis radial raw re real recon
    reconstruction ref reference reformat reg renal repeat res rest resting right routine rs rt rv sa sag sagittal
    sagittale sans scan schaedel scout se sense sequence series sfov short shoulder side sin single sinus skull slab
    slice slices small smart smooth snapshot soft space spaet spair spgr spin spine spiral spl spleen splenic spleno
    src ssfp ssfse standard star state static std stir stress stroke sup superior supine survey surview swi t tardia
    tardiva tardive te test tfe tfl thick thigh thin thoracic thorax tir tirm tissue tof topogram torace tr tra
    trace trans transversal transverse truefisp trufi tse tspine ttp tumor tumour turbo twist u ultra und unenhanced
    upper uro urogram v ve vein veineuse ven venoes venosa venous vessel vibe view vol volume w water wb weichteil
    weighted whole wholebody wi with without wo wrist x xd y z zoom
"""

_KNOWN = frozenset(_WORDS.split())
"""Words of protocols in small letters. A description of other words may hold a name, and is not shown."""

_TOKEN = re.compile(r"[a-z]{0,3}\d{1,4}[a-z]{0,3}")
"""Numbers of a protocol, such as `b30f`, `t1w`, `1000`, `3mm`; longer ones may be dates or a person's."""


def shown_description(text: str) -> str:
    """Series description, if all words are protocol terms; else ""."""
    words = re.findall(r"[^\W\d_]+\d*[^\W\d_]*|\d+[^\W\d_]*", text.lower())
    all_known = all(word in _KNOWN or _TOKEN.fullmatch(word) for word in words)
    return re.sub(r"\s+", " ", text).strip() if words and all_known and len(text) <= 64 and text.isprintable() else ""


def told(header: Header) -> list[str]:
    """Words distinguishing a series: kernel, contrast medium."""
    kernel = header.facts.get("kernel", b"").decode("latin-1").strip(" \0").replace("\\", " ")
    contrast = header.facts.get("contrast", b"").strip(b" \0").upper() not in (b"", b"NONE", b"NO")
    return [
        *([f"kernel {kernel}"] if re.fullmatch(r"[\w .+/-]{1,32}", kernel) else []),
        *(["contrast medium"] if contrast else []),
    ]


def numbers(firsts: Sequence[Header]) -> list[str]:
    """Choice numbers of series, by a header of each.

    A series is chosen by its SeriesNumber, with `/1`, `/2`, ... where it makes several images; where one is missing,
    two series share one, or all are of one, they are counted from 1.
    """
    stated = [header.series_number.strip() for header in firsts]
    owners: dict[str, set[tuple[str, str]]] = {}
    for number, header in zip(stated, firsts, strict=True):
        owners.setdefault(number, set()).add((header.study_uid, header.series_uid))
    shared = len(owners) == 1 or any(len(series) > 1 for series in owners.values())
    if shared or not all(number.isdecimal() for number in stated):
        return [str(number) for number in range(1, len(firsts) + 1)]
    return [
        number if stated.count(number) == 1 else f"{number}/{stated[: index + 1].count(number)}"
        for index, number in enumerate(stated)
    ]


def began(headers: Sequence[Header]) -> float | None:
    """Acquisition start of a series, in seconds; None where unstated."""
    return min((moment for header in headers if (moment := acquired(header)) is not None), default=None)
