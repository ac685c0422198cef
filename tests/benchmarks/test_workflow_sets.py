"""Public sets of surgical videos, over a few files in their authors' layout."""

import numpy as np
import pytest

from tests.helpers.benchmark_files import task

PHASES = ["Preparation", "CalotTriangleDissection", "ClippingCutting", "GallbladderDissection"]
PHASES += ["GallbladderPackaging", "CleaningCoagulation", "GallbladderRetraction"]
TOOLS = ["Grasper", "Bipolar", "Hook", "Scissors", "Clipper", "Irrigator", "SpecimenBag"]


def write_cholec80(root):
    """Eighty videos of seven seconds, a phase each, whose number is that of the tool; frames between are of phase 0."""
    for folder in ("phase_annotations", "tool_annotations"):
        (root / folder).mkdir()
    phases = "".join(f"{k}\t{PHASES[k // 25 if k % 25 == 0 else 0]}\n" for k in range(175))
    tools = "".join(f"{25 * k}\t" + "\t".join(str(int(k == j)) for j in range(7)) + "\n" for k in range(7))
    for number in range(1, 81):
        (root / f"phase_annotations/video{number:02d}-phase.txt").write_text(f"Frame\tPhase\n{phases}")
        (root / f"tool_annotations/video{number:02d}-tool.txt").write_text("\t".join(["Frame", *TOOLS]) + f"\n{tools}")


def test_cholec80_from_its_files_to_scores(tmp_path):
    write_cholec80(tmp_path)
    one = task("cholec80", tmp_path)
    assert [len(one.cases(part)) for part in ("fit", "validate", "test")] == [32, 8, 40]
    case = one.cases("test")[0]
    assert case.id == case.patient == "video41"
    truth = case.target.read()
    assert truth.frames.tolist() == list(range(7))
    assert truth.columns["phase"].tolist() == PHASES
    assert np.array_equal(np.stack([truth.columns[name] for name in TOOLS]), np.eye(7))
    assert case.images[0].files == (tmp_path / "videos/video41.mp4",)
    assert case.images[0].every == 25
    said = [{"phase": PHASES[min(k + 1, 6)], **{name: float(j == k) for j, name in enumerate(TOOLS)}} for k in range(7)]
    rows = one.score(case, one.accept(case, said), ["video_accuracy", "edit_score", "presence_ap"])
    found = {(row.metric, row.label): row.value for row in rows}
    assert found["video_accuracy", "all"] == pytest.approx(1 / 7)
    assert found["edit_score", "all"] == pytest.approx(6 / 7)  # one segment is missing, the last two are one
    assert all(found["presence_ap", name] == 1 for name in TOOLS)


@pytest.mark.slow
def test_the_film_phantom_shows_what_its_labels_say(tmp_path):
    from medimg_eval.phantoms import SurgeryFilms

    (case,) = SurgeryFilms(str(tmp_path), count=1).cases("test")
    truth = case.target.read()
    frames = np.stack(list(case.images[0].frames(truth.frames)))
    assert frames.shape[1:] == (3, 160, 192)
    bleeding = truth.columns["bleeding"].astype(bool)
    red = frames[:, 0].astype(float).mean((1, 2)) / frames[:, 1].astype(float).mean((1, 2))
    assert bleeding.any()
    assert red[bleeding].mean() > red[~bleeding].mean()
    assert truth.columns["phase"][0] == "insertion"
    assert set(truth.columns["phase"][truth.columns["snare"] == 1]) == {"resection"}
