"""Cleaners of reports and profiles: values of the authors' own code on the same sentences, and properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.registry import required
from medimg_eval.metrics.text.profiles import CLEANERS, PROFILES, cleaned, cleaner, profile, r2gen_iu, r2gen_mimic
from medimg_eval.metrics.text.texts import cleaned_of, texts_of

FEW = settings(deadline=None, max_examples=30)
REPORT = st.text(alphabet="aB1. 2_\n,-", max_size=40)


@pytest.mark.parametrize(
    ("report", "iu", "mimic"),
    [
        ("The heart is normal. No effusion.", "the heart is normal . no effusion .", None),
        ("1. Small effusion. 2. No change.", "small effusion . no change .", None),
        ("1.Stable.2.No effusion", "1stable2no effusion .", None),
        ("Size 3.5-cm; T-9, <4 mm!", "size 35-cm t-9 4 mm .", None),
        ("Clear..\nCompare with ____.", "clear\ncompare with  .", "clear . compare with  ."),
        ("No  change .... Stable", "no  change . stable .", "no change . stable ."),
        ("\"Stable\" 'left' a/b \\ c [d] {e} (f) @ = >", "stable left ab  c d e f    .", None),
        ("right #1 ~ 2$ | `x`", "right #1 ~ 2$ | `x` .", None),
        ("", " .", None),
        ("...", " .", None),
        ("右肺结节。", "右肺结节。 .", None),
    ],
)
def test_reports_are_cleaned_as_r2gens_own_code_cleans_them(report, iu, mimic):
    """Golden: R2Gen's two cleaners, run on these reports."""
    assert r2gen_iu(report) == iu
    assert r2gen_mimic(report) == (iu if mimic is None else mimic)


@pytest.mark.parametrize("name", CLEANERS)
@given(REPORT)
@FEW
def test_a_cleaned_text_has_single_blanks_and_only_an_empty_one_is_empty(name, report):
    found = cleaned(report, name)
    assert found == " ".join(found.split())
    assert found == found.lower()
    assert bool(found) == bool(report.strip())
    assert not set(found) & set(',?;*!%^&_+()":<=>@[]{}')


def test_what_a_model_of_r2gen_wrote_stays_as_it_is():
    for text in ("the heart is normal . no effusion .", "lungs are clear . 3 cm nodule"):
        assert cleaned(text, "r2gen_mimic").removesuffix(" .") == text.removesuffix(" .")


def test_metrics_of_words_see_cleaned_texts_and_an_empty_answer_stays_empty():
    made = AnsweredQuestion("report", "Clear LUNGS!", ["1. Clear lungs.", "Lungs."], clean="r2gen_iu")
    assert texts_of(made) == ("Clear LUNGS!", ("1. Clear lungs.", "Lungs."))
    assert cleaned_of(made) == ("clear lungs .", ("clear lungs .", "lungs ."))
    assert cleaned_of(AnsweredQuestion("report", " ", ["Clear."], clean="r2gen_mimic")) == ("", ("clear .",))
    assert cleaned_of(AnsweredQuestion("report", "Clear LUNGS!", ["Lungs."])) == ("Clear LUNGS!", ("Lungs.",))


def test_cleaners_and_profiles_that_there_are_not_are_told_with_the_nearest():
    with pytest.raises(UsageError, match="got 'r2gen'; did you mean 'r2gen_iu'"):
        cleaner("r2gen")
    with pytest.raises(UsageError, match="got 'sacrebleu'; did you mean 'sacrebleu-13a'"):
        profile("sacrebleu")
    with pytest.raises(UsageError, match="cleaner of reports is invalid"):
        cleaned_of(AnsweredQuestion("report", "a", "b", clean="none"))


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_names_metrics_and_a_cleaner_that_there_are(name):
    assert {"coco", "radeval", "r2gen", "sacrebleu-13a"} <= set(PROFILES)
    found = profile(name)
    assert found.clean in ("", *CLEANERS)
    for one in found.metrics:
        assert not required(one)
