"""Degradations by modality: doses that rise with severity, physics by hand, scikit-image beside projections."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Condition, Image
from medimg_eval.degradations import DrawKey, conditions_on, degrade_image, find_degradation, read_suite, suite_names
from medimg_eval.degradations.sinograms import attenuation_of, changed_by, project, reconstruct
from medimg_eval.degradations.words import protected_spans, with_typos
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.question import Key, Question
from tests.degradations.test_degradations import projected_slow, suitable

KEY = DrawKey(0, "a")
UNEVEN = {"black_corner", "grey", "mri_ghosting", "mri_motion"}
"""Those whose published or drawn levels are no dose that rises throughout."""


@pytest.mark.parametrize("name", projected_slow(conditions_on("pixels", "samples", "frames") - UNEVEN))
def test_a_higher_severity_is_a_higher_dose(name):
    image = suitable(name)
    clean = image.array.astype(np.complex128)
    found = [
        degrade_image(image, Condition(name, severity), KEY).array.astype(np.complex128) for severity in range(1, 6)
    ]
    doses = [float(np.sqrt((np.abs(array - clean) ** 2).mean())) for array in found]
    assert all(less <= more + 1e-9 for less, more in pairwise(doses)), doses
    assert doses[-1] > 0


def test_every_degradation_but_words_of_earlier_versions_is_in_a_suite_or_alone():
    held = {member for name in suite_names() for member in read_suite(name)}
    alone = {"grey", "blur", "noise", "kvasir_x1_weak", "mri_gibbs", "mri_spikes", "negation"}
    assert conditions_on("pixels", "moves", "words", "samples", "frames") - held == alone


def disc(side=48, radius=16.0):
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    return np.where(np.hypot(rows, columns) < radius, 0.0, -1000.0)[..., None]


def test_projections_of_a_disc_are_its_chords_and_come_back():
    attenuation = (disc() + 1000) / 1000
    integrals = project(attenuation)[..., 0]
    bins = np.arange(integrals.shape[1]) - (integrals.shape[1] - 1) / 2
    chords = 2 * np.sqrt(np.maximum(16.0**2 - bins**2, 0))
    assert np.abs(integrals - chords)[:, np.abs(bins) < 13].max() < 1.6  # the disc is of pixels
    np.testing.assert_allclose(integrals.sum(axis=1), attenuation.sum(), rtol=1e-5)
    found = reconstruct(integrals[..., None], (48, 48))[..., 0]
    assert found[20:28, 20:28].mean() == pytest.approx(1, abs=0.01)
    assert np.abs(found[:4, :4]).max() < 0.05


def test_projections_equal_those_of_scikit_image():
    from scipy.ndimage import gaussian_filter
    from skimage.transform import radon

    picture = gaussian_filter(np.random.default_rng(0).random((49, 49)) * (disc(49, 14)[..., 0] > -500), 3)
    picture[picture < 1e-3] = 0  # theirs warns of what lies outside of its circle
    angles = np.arange(0, 180, 30)
    theirs = radon(picture, angles - 90, circle=True)  # theirs begin at the other axis
    ours = project(picture[..., None], len(angles))[..., 0]
    places = (ours.shape[1] - 1) / 2 + np.arange(49) - 24
    resampled = np.stack([np.interp(places, np.arange(ours.shape[1]), view) for view in ours], axis=1)
    np.testing.assert_allclose(resampled, theirs, atol=0.02 * theirs.max())  # both interpolate, each in its way


def test_unchanged_integrals_leave_the_image_as_it_is():
    np.testing.assert_allclose(changed_by(disc(), 1.0, lambda integrals: integrals), disc(), atol=1e-3)
    assert attenuation_of(np.array([-1000.0, 0, -3000])).tolist() == pytest.approx([0, 0.0192, 0])


def test_noise_of_a_tenth_of_the_photons_is_the_root_of_ten_larger():
    # Where counts are many, its variance in the middle of a disc goes as 1 / photons.
    scan = Image(np.repeat(disc(), 4, axis=2).astype(np.float32)[None], np.eye(4), modality="CT")
    spread = []
    for photons in (1e6, 1e5):
        condition = Condition("ct_low_dose", 1, {"photons": photons})
        noise = degrade_image(scan, condition, KEY).array[0] - scan.array[0]
        spread.append(noise[16:32, 16:32].std())
    assert spread[1] / spread[0] == pytest.approx(np.sqrt(10), rel=0.02)  # one draw for both


def test_thick_slices_are_means_and_thinner_ones_change_nothing():
    pixels = np.tile(np.array([0.0, 8, 0, 8, 0, 8, 0, 8]), (4, 4, 1))[None].astype(np.float32)
    scan = Image(pixels, np.eye(4), modality="CT")
    found = degrade_image(scan, Condition("ct_thick_slices", 1), KEY).array
    np.testing.assert_allclose(found, 4)
    wide = Image(pixels, np.diag([1, 1, 3.0, 1]), modality="CT")
    same = degrade_image(wide, Condition("ct_thick_slices", 2), KEY)
    np.testing.assert_array_equal(same.array, pixels)
    assert same.notes == ("condition ct_thick_slices-2 changes nothing here",)


def test_what_needs_hounsfield_units_refuses_pictures():
    grey = Image(np.zeros((1, 32, 32), np.uint8), np.eye(4), units="pixel")
    with pytest.raises(UsageError, match="ct_low_dose needs Hounsfield units"):
        degrade_image(grey, Condition("ct_low_dose", 1), KEY)
    with pytest.raises(CaseError, match="needs a body"):
        air = Image(np.full((1, 8, 8), -1000, np.int16), np.eye(4), modality="CT")
        degrade_image(air, Condition("ct_metal", 1), KEY)
    with pytest.raises(UsageError, match="is meant for films and clips"):
        degrade_image(grey, Condition("video_freeze", 1), KEY)


def test_echoes_are_shifted_by_decibels():
    # A slope of 12 dB over 60: 0.1 more or less at the ends, 0 in the middle row; black stays black.
    pixels = np.full((1, 5, 2), 0.5, np.float32)
    pixels[0, :, 1] = (0, 1, 0, 1, 0)
    found = degrade_image(Image(pixels, np.eye(4), units="pixel"), Condition("us_gain_slope", 4), KEY).array
    np.testing.assert_allclose(np.abs(found[0, [0, 4], 0] - 0.5), 0.1, atol=1e-6)
    assert found[0, 2, 0] == pytest.approx(0.5)
    assert found[0, 0, 1] == 0


def test_saturated_detectors_cut_off_what_absorbs_little():
    pixels = np.array([[[0.0, 0.1, 0.5, 1.0]]], np.float32)
    found = degrade_image(Image(pixels, np.eye(4), units="pixel"), Condition("xray_overexposure", 2), KEY).array
    np.testing.assert_allclose(found[0, 0], [np.log(2) / 4, np.log(2) / 4, 0.5, 1], rtol=1e-6)


def test_objects_of_a_severity_are_among_those_of_the_next():
    for name in ("he_pen", "he_fold", "us_shadow", "xray_detector_lines", "kspace_spikes", "kspace_undersampling"):
        image = suitable(name)
        hit = [degrade_image(image, Condition(name, severity), KEY).array != image.array for severity in range(1, 6)]
        assert all(not (less & ~more).any() for less, more in pairwise(hit)), name


def test_frames_that_are_dropped_show_the_one_before():
    places = np.arange(40)
    for severity in range(1, 6):
        found = find_degradation("video_dropped_frames")
        shown = found.apply(places, KEY.generator(found.name), **found.parameters(Condition(found.name, severity)))
        assert shown[0] == 0
        assert all(place in (here, before) for here, (before, place) in enumerate(pairwise(shown), start=1))
    rate = find_degradation("video_frame_rate").apply(np.array([5, 6, 7, 8, 9]), KEY.generator("x"), factor=2)
    assert rate.tolist() == [5, 5, 7, 7, 9]


def test_each_frame_of_a_clip_is_degraded_by_itself():
    clip = suitable("video_freeze")
    blurred = degrade_image(clip, Condition("gaussian_blur", 3), KEY).array
    frame = Image(clip.array[:, 4], clip.affine, units="pixel")
    np.testing.assert_array_equal(blurred[:, 4], degrade_image(frame, Condition("gaussian_blur", 3), KEY, 4).array)


# -- words

TEXTS = st.lists(
    st.sampled_from(
        ["the pleural effusion", " left", "no ", "12 mm ", "<image 1>", "? ", "CT ", "a", "isn't ", " A. ", "shown"]
    )
).map("".join)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(0, 99))
def test_typing_errors_touch_nothing_that_is_protected(text, seed):
    changed = with_typos(text, DrawKey(seed, "a").generator("typos"), 0.2)
    assert protected_spans(changed) == protected_spans(text)
    assert changed.strip() or not text.strip()


def test_typing_errors_are_as_many_as_stated():
    rng = np.random.default_rng(0)
    words = ["effusion", "pleural", "consolidation", "enlarged", "structure", "visible", "margin"]
    text = " ".join(rng.choice(words) for _ in range(3000))
    letters = sum(len(word) - 1 for word in text.split())
    for share in (0.02, 0.1, 0.2):
        changed = with_typos(text, KEY.generator("typos"), share)
        wrong = sum(left != right for left, right in zip(text.split(), changed.split(), strict=True))
        expected = 1 - np.mean([(1 - share) ** (len(word) - 1) for word in text.split()])
        assert wrong / 3000 == pytest.approx(expected, abs=0.03), letters


def reword(name, question, severity=1):
    found = find_degradation(name)
    return found.apply(question, KEY.generator(name), **found.parameters(Condition(name, severity)))


def test_the_right_letter_moves_with_its_text():
    options = {"A": "lung", "B": "liver", "C": "spleen", "D": "heart"}
    for severity in range(1, 6):
        reworded = reword("option_order", Question("Which?", "choice", options), severity)
        assert list(reworded.question.options) == list(options)
        assert reworded.question.options != options
        for letter, text in options.items():
            assert reworded.question.options[reworded.answer(Key(letter)).value] == text
        assert set(reworded.answer(Key(["A", "C"])).value) == {reworded.letters["A"], reworded.letters["C"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Is there an effusion?", "Is there no effusion?"),
        ("Are there any nodules?", "Are there no nodules?"),
        ("Is the heart enlarged?", "Is the heart not enlarged?"),
        ("Does the image show gas?", "Does the image not show gas?"),
    ],
)
def test_the_negated_twin_has_the_other_answer(text, expected):
    reworded = reword("negation", Question(text, "yes_no"))
    assert reworded.question.text == expected
    assert reworded.answer(Key("yes")).value == "no"


def test_what_cannot_be_negated_is_asked_as_published():
    for question in (Question("Is there no effusion?", "yes_no"), Question("Which organ?"), Question("Gas?", "yes_no")):
        reworded = reword("negation", question)
        assert (reworded.question, reworded.answer(Key("yes")).value) == (question, "yes")


def test_other_words_leave_marks_of_images_alone():
    question = Question("What is shown in <image 1>, CT of the chest?")
    assert reword("paraphrase", question, 5).question.text == (
        "What can be seen in <image 1>, computed tomography of the chest?"
    )
    careless = reword("letter_case", question, 5).question.text
    assert careless == "what  is  shown  in <image 1> CT  of  the  chest"
    assert reword("distractors", question, 3).question.text.endswith(question.text)
