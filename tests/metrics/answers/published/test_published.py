"""The benchmarks' own rules of extraction, with their faults: a rule that is silently improved fails here."""

import json
import math
import pickle
import warnings
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.answers.extraction import extract
from medimg_eval.metrics.answers.published.common import boxed_content, nearest, vqa_words
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.answers.rule_registry import rules

RULES = {
    "answer_tag",
    "answer_tag_regraded",
    "boxed",
    "chestagentbench",
    "chexbench",
    "deeptumorvqa",
    "deeptumorvqa_number",
    "deeptumorvqa_yes_no",
    "endobench",
    "kormedmcqa_v",
    "livexiv",
    "llava_med_closed",
    "lmms_eval",
    "medbookvqa",
    "medbookvqa_boxed",
    "medevalkit",
    "medevalkit_closed",
    "medevalkit_open",
    "medevalkit_yes_no",
    "medframeqa",
    "mediconfusion",
    "medq_bench",
    "medq_deg",
    "medxpertqa",
    "mme_sci",
    "mmmu",
    "mmmu_open",
    "multimedeval",
    "multimedeval_yes_no",
    "omnimedvqa",
    "pathmmu",
    "pmc_vqa",
    "probmed_yes_no",
    "seed_bench",
    "slake_lmms",
    "temmed_selection",
    "temmed_yes_no",
    "vlmevalkit",
    "vm14k",
}
"""Every rule that configs may name."""

FOUR = {"A": "normal", "B": "pleural effusion", "C": "consolidation", "D": "abnormal heart"}
TWO = {"A": "yes", "B": "no"}
SCANS = {"A": "CT", "B": "MRI", "C": "Ultrasound"}


def taken(rule, output, options=FOUR, question="What is shown?"):
    return extract("choice", output, options, rule=rule, question=question).value


def right(rule, output, answer, kind="yes_no"):
    return AnsweredQuestion(kind=kind, output=output, value=answer, rule=rule).credit


def each(*cases):
    return pytest.mark.parametrize(("output", "letter"), cases)


@each(
    ("B", "B"),
    ("(B) pleural effusion", "B"),
    ("**B**", "B"),
    ("The scan shows fluid. So: B.", "B"),
    # The one letter must be among the last four words: here it is the fifth from the end.
    ("B fits all of this", None),
    # Two letters, so neither; then the phrase.
    ("Not A or C. The answer is C", "C"),
    ("The answer is **d**, because A is wrong", "A"),  # one upper-case letter stands near the end
    ("The answer is **d**", "D"),
    # No end of word after the phrase.
    ("The correct answer is consolidation", "C"),
    ("The answer is bilateral opacities", "B"),
    ("The answer is a pleural effusion", "A"),
    ("b", None),
    ("pleural effusion", "B"),
    ("There is no pleural effusion", "B"),
    ("abnormal heart", None),  # "normal" and "abnormal heart" both occur
    ("normal", "A"),
    ("abnormal", "A"),
    ("pleural effusion" + " and more" * 20, None),  # longer than twice all options
    ("Cannot determine the answer: B", None),
    ("Failed to obtain answer via API", None),
    ("Z", None),
    ("Z normal", None),
    ("<think>A or C</think> B", "B"),
    ("<think> A or C </think> B", None),  # thinking counts
    ("", None),
)
def test_vlmevalkit_has_no_end_of_word_and_no_lower_case(output, letter):
    assert taken("vlmevalkit", output) == letter


@each(
    ("B fits all of this", "B"),  # anywhere, where VLMEvalKit's later rule wants it near the end
    ("A polyp is seen", "A"),
    ("Not A or C. The answer is C", None),
    ("The answer is consolidation", "C"),  # by its text
    ("pleural effusion" + " and more" * 20, "B"),
    ("Z", None),
    ("Cannot determine the answer: B", None),
    ("Failed to obtain answer via API", None),
    ("", None),
)
def test_endobenchs_fork_takes_a_letter_wherever_it_stands(output, letter):
    assert taken("endobench", output) == letter


def test_vlmevalkit_knows_no_fifth_letter_after_its_phrase():
    options = FOUR | {"E": "fracture"}
    assert taken("vlmevalkit", "The answer is E, as A and B are not seen here at all, nor C", options) is None
    assert taken("vlmevalkit", "The answer is D, as A and B are not seen here at all, nor C", options) == "D"


@each(
    ("B", "B"),
    ("A nodule is seen, so (B)", "A"),  # the start beats all
    ("I see it. Option C", "C"),  # the end comes next
    ("The answer is B and not D or so", "D"),  # after a phrase the farthest first mention
    ("Answer is (B) rather than (C) here", "C"),
    ("Between (B) and (C) first, then (B) again", "B"),
    ("It may be B. or (C) as said", "C"),  # brackets rank above a full stop
    ("It may be C: or B. as said", "B"),
    ("It may be B) or C: as said", "C"),
    ("It may be B or C) as said", "C"),
    ("Because of Doppler", "D"),  # any capital, the last of them
    ("consolidation", None),  # no option's text
    ("답은 C 입니다", "C"),
    ("", None),
)
def test_lmms_eval_ranks_formats_and_knows_no_texts(output, letter):
    assert taken("lmms_eval", output) == letter


@each(
    ("(A) is unlike (B)", "B"),
    ("A is unlike B here", "B"),
    ("A (C) B", "C"),
    ("B.", "B"),
    ("A large pleural effusion is seen on the right side", "A"),  # the article
    ("There is a consolidation and no pleural effusion at all", "B"),  # the last text, denied or not
    # "normal" begins after "abnormal heart" does.
    ("This is surely an abnormal heart in my view", "A"),
)
def test_mmmu_takes_the_last_mention(output, letter):
    assert taken("mmmu", output) == letter


def test_mmmu_draws_where_it_finds_nothing_the_same_each_time_and_each_option_as_often():
    drawn = [taken("mmmu", f"I cannot tell {number}", question=f"Question {number}?") for number in range(2000)]
    assert drawn == [taken("mmmu", f"I cannot tell {number}", question=f"Question {number}?") for number in range(2000)]
    counts = Counter(drawn)
    assert set(counts) == set(FOUR)
    # Four standard deviations of a binomial with n = 2000, p = 1/4 are 77.
    assert all(abs(count - 500) < 77 for count in counts.values())
    # Five words are too few for a text to count.
    assert len({taken("mmmu", "a consolidation", question=str(number)) for number in range(50)}) == 4
    assert taken("mmmu", "", {}) is None


def test_pathmmu_knows_a_text_up_to_its_first_closing_bracket():
    options = {"A": "left (lower) lobe", "B": "right lung"}
    assert taken("pathmmu", "what I see is the left (lower margin", options) == "A"
    assert taken("pathmmu", "what I see is the right lung", options) == "B"
    assert taken("mmmu", "what I see is the left (lower) lobe", options) == "A"


@each(
    ("B", "B"),
    ("b. Pleural effusion", "B"),
    ("The answer is C", "C"),
    ("c\n\nbecause of the shadow", "C"),
    ("Because of the shadow\n\nD. abnormal heart", "D"),
    ("So $\\boxed{C}$ it is", "C"),
    ("\\boxed{A} and then \\boxed{D}", "D"),
    ("I thought of A, but <answer>D</answer>", "D"),
    ("**Answer:**c", "C"),
    ("The final answer is B. I am sure", "B"),
    ("pleural effusion", "B"),
    ("There is no consolidation", "C"),
    ("", "A"),
)
def test_medevalkit_always_answers(output, letter):
    assert taken("medevalkit", output) == letter


def test_medevalkit_compares_what_is_no_letter_as_a_text():
    # "(b)" shares a b with "b. mri" alone.
    assert taken("medevalkit", "(B)", SCANS) == "B"
    assert taken("medevalkit", "(B)", FOUR) == "D"
    # A colon leaves " c", which is no letter; ": c" is most like "a. ct".
    assert taken("medevalkit", "The answer is: C", SCANS) == "A"
    # "boxed" without a box leaves "none", which is most like "c. ultrasound".
    assert taken("medevalkit", "The boxed region shows B", SCANS) == "C"
    assert taken("medevalkit", "I cannot tell") in FOUR
    assert taken("medevalkit", "B", {}) is None


@each(
    ("Yes", "yes"),
    ("no.", "no"),
    ("Answer: yes", "yes"),
    ("\\boxed{No}", "no"),
    ("<answer>yes</answer> and no more", "yes"),
    ("Yes, there is a nodule", None),  # no is in nodule
    ("The study is normal", "no"),
    ("I cannot determine it", "no"),
    ("yes or no", None),
    ("Present", None),
    ("The boxed region: yes", None),  # "boxed" without a box leaves "None"
    ("", None),
)
def test_medevalkit_finds_no_inside_normal(output, letter):
    assert taken("medevalkit_yes_no", output, {}) == letter


def test_medevalkit_compares_short_answers_whatever_the_case():
    assert right("medevalkit_closed", "CT.", "ct", "open") == 1
    assert right("medevalkit_closed", "ct", "CT", "open") == 1
    assert right("medevalkit_closed", "It is CT", "CT", "open") == 0
    assert right("medevalkit_closed", "Answer: CT", "CT", "open") == 0  # a blank stays before it
    assert right("medevalkit_open", "Lung", "lung", "open") == 1
    assert right("medevalkit_open", "Lung.", "lung", "open") == 0
    assert right("medevalkit_open", "\\boxed{Lung}", "lung", "open") == 1
    assert taken("medevalkit_open", "") is None
    assert taken("medevalkit_closed", " . ") is None


@each(
    ("B", "B"),
    ("C. Ultrasound", "C"),
    ("MRI", "B"),  # 1 of 1 word, brevity exp(1 - 2/1)
    ("A", None),  # an article, and nothing is left
    ("A. CT", "A"),
    # "b ct": of "ct" 1 of 2 words, of "b mri" 1 of 2 words: equal, and the first wins.
    ("B CT", "A"),
    ("I cannot tell", None),
    ("", None),
)
def test_multimedeval_drops_the_article_that_is_option_a(output, letter):
    assert taken("multimedeval", output, SCANS) == letter


def test_multimedeval_counts_not_as_no_and_both_as_right():
    assert taken("multimedeval_yes_no", "Yes, it is", {}) == "yes"
    assert taken("multimedeval_yes_no", "It is not seen.", {}) == "no"
    assert taken("multimedeval_yes_no", "Normal", {}) is None
    assert right("multimedeval_yes_no", "yes or no", "yes") == right("multimedeval_yes_no", "yes or no", "no") == 1


def test_omnimedvqa_compares_the_whole_output_with_the_texts():
    assert taken("omnimedvqa", "B", {"A": "Brain", "B": "Heart"}) == "A"  # 2 * 1 / 6 against 0
    assert taken("omnimedvqa", "B", SCANS) is None  # no option holds a B
    assert taken("omnimedvqa", "The scan is an MRI", SCANS) == "B"  # 2 * 3 / 21; CT and Ultrasound fare worse
    assert taken("omnimedvqa", "I cannot tell") in FOUR
    assert taken("omnimedvqa", "", SCANS) is None


def test_pmc_vqa_takes_the_shortest_option_that_holds_the_last_character():
    options = {"A": "Transverse colon", "B": "Aorta"}
    assert taken("pmc_vqa", "The Answer is: B", options) == "B"
    assert taken("pmc_vqa", "The Answer is: A", options) == "B"  # 2/9 for " B:Aorta" against 2/20
    assert taken("pmc_vqa", "A", {"A": "Aorta", "B": "Vein"}) == "A"
    assert taken("pmc_vqa", "A.", options) is None
    assert taken("pmc_vqa", "", options) is None


@each(
    ("B", "B"),
    ("Therefore, among A through D, the answer is C. Not D", "C"),
    ("Among A through D, the answer is (B).", "B"),
    ("Option A is wrong, so the answer is B", "B"),
    ("A biopsy shows C", "A"),  # the article
    ("From A through D I understand it is B", "B"),
    ("b", None),
    ("Because of fluid", None),
    ("", None),
)
def test_medxpertqa_takes_the_first_letter_that_is_a_word(output, letter):
    assert taken("medxpertqa", output) == letter


def test_medxpertqa_takes_i_for_an_option_of_ten():
    ten = dict.fromkeys("ABCDEFGHIJ", "text")
    assert taken("medxpertqa", "I think B", ten) == "I"
    assert taken("medxpertqa", "I think B") == "B"


@each(
    ("\\boxed{C} or \\boxed{D}", "C"),
    ("\\boxed{G}, Answer: B", "B"),
    ("A first. Answer: A\nAnswer: B", "B"),
    ("Answer: Cardiomegaly (B)", "C"),
    ("final answer B", "B"),
    ("(A) or (B)", "B"),
    ("A. and then C.", "A"),  # full stops around the reply go first
    ("B", None),
    ("It is clear that there is no consolidation", "C"),
    ("no consolidation", None),  # too few words
    ("", None),
)
def test_medframeqa_takes_any_capital_after_answer(output, letter):
    assert taken("medframeqa", output) == letter


def test_medframeqa_knows_a_text_up_to_its_first_full_stop():
    options = {"A": "Mass. Benign in all views", "B": "Cyst"}
    assert taken("medframeqa", "what is seen here is a mass", options) == "A"


@each(
    ("(B)", "B"),
    ("The choice is (A) or (B)", "A"),
    ("(G)", None),
)
def test_chexbench_takes_the_first_letter_in_brackets(output, letter):
    assert taken("chexbench", output) == letter


def test_chexbench_draws_where_no_letter_is_in_brackets():
    assert {taken("chexbench", "B", question=str(number)) for number in range(60)} == set(FOUR)


@each(
    ("A", "A"),
    ("B:", "B"),
    ("B.", "B"),
    ('The answer is ("A").', "A"),
    ('A")', "A"),
    ("It is\nB", "B"),
    ("A nodule", "A"),
    ("(B)", None),
    ("**B**", None),
    ("B,", None),
    ("b", None),
    ("A or B", None),
    ("yes", None),
    ("", None),
)
def test_mediconfusion_knows_no_letter_in_brackets(output, letter):
    assert taken("mediconfusion", output, TWO) == letter


@each(
    ("B", "B"),
    ("b. Moderate", "B"),
    ("The answer is (C)", "C"),
    # The steps for "answer is" are dead code: the first letter alone counts.
    ("Unlike B, a blurred edge suggests C. The answer is C", "B"),
    ("There is a blur, so the answer is C", "A"),
    ("Edema", None),
    ("E", None),
    ("", None),
)
def test_medq_bench_takes_the_first_letter_alone(output, letter):
    assert taken("medq_bench", output) == letter


def test_medq_deg_knows_a_fifth_letter():
    assert taken("medq_deg", "E", FOUR | {"E": "noise"}) == "E"
    assert taken("medq_bench", "E", FOUR | {"E": "noise"}) is None


@each(
    ("B", "B"),
    ("b", "B"),
    ("B. pleural effusion", "B"),
    ("Because of fluid", "B"),
    ("The answer is B", "B"),
    ("Answer: In view of fluid, B", None),  # the first capital after the first is I
    ("answer: Doppler, so B", "D"),
    ("A: the answer is B", "B"),
    ("answer", None),
    ("(B)", None),
    ("", None),
)
def test_livexiv_takes_the_first_capital_after_the_first_character(output, letter):
    assert taken("livexiv", output) == letter


@each(("B", "B"), (" B)", "B"), ("Both lungs", "B"), ("b", None), ("(B)", None), ("The answer is B", None), ("", None))
def test_seed_bench_takes_the_first_character(output, letter):
    assert taken("seed_bench", output) == letter


@each(
    ("b", "B"),
    ("B) text", "B"),
    ("B: text", "B"),
    ("A nodule is seen", "A"),
    ("I think B", "I"),  # wrong, and counted
    ("The answer is B", None),  # left out of the denominator
    ("**B**", None),
    ("B, C", None),
    ("", None),
)
def test_chestagentbench_reads_the_begin_of_the_reply(output, letter):
    assert taken("chestagentbench", output) == letter


@each(
    ("My answer is B", "B"),
    ("My answer is C, and then my answer is **A**.", "A"),
    ("My answer is **C.**", "C"),
    ("My answer is [C]", None),
    ("My answer is option B", None),
    ("My answer is D", None),
    ("B", None),
)
def test_temmed_selection_wants_its_sentence(output, letter):
    assert taken("temmed_selection", output, SCANS) == letter


@each(
    ("c", "C"),
    ("<think>A or D?</think> C", "C"),
    ("<think>so B, and then", None),
    ("Answer: C", "A"),
    ("Based on the scan, C", "B"),
    ("It is a shadow: C", "A"),
    ("The option is C.", "C"),
    ("E", None),
    ("", None),
)
def test_deeptumorvqa_takes_the_first_character(output, letter):
    assert taken("deeptumorvqa", output) == letter


@each(
    ("Yes.", "yes"),
    ("Normal liver", "no"),
    ("There is no doubt: yes", "yes"),
    ("<think>yes</think> It is: no", "no"),
    ("Present", None),
)
def test_deeptumorvqa_reads_normal_as_no(output, letter):
    assert taken("deeptumorvqa_yes_no", output, {}) == letter


def test_deeptumorvqa_takes_the_first_number():
    assert taken("deeptumorvqa_number", "Segment 4 measures 12.5 cm") == 4.0
    assert taken("deeptumorvqa_number", "<think>7</think> about -12.5 HU") == -12.5
    assert taken("deeptumorvqa_number", "1,200") == 1.0
    assert taken("deeptumorvqa_number", "none") is None


@each(
    ("\\boxed{B}", "B"),
    ("\\boxed{A}, no: $\\boxed{ c }$", "C"),
    ("\\boxed{B. pleural effusion}", "B"),
    ("\\boxed{Consolidation}", "C"),
    ("\\boxed{(B)}", None),
    ("\\boxed{\\text{B}}", None),
    ("\\boxed{B", None),
    ("B", None),
)
def test_boxed_takes_the_option_in_the_last_box(output, letter):
    assert taken("boxed", output) == letter


def test_a_text_that_is_another_option_s_letter_makes_both_right():
    options = {"A": "B", "B": "A", "C": "C"}
    pair = AnsweredQuestion(kind="choice", output="<answer>B</answer>", value="A", options=options, rule="answer_tag")
    assert pair.credit == 1
    assert taken("answer_tag", "<answer>B</answer>", options) == "B"
    assert taken("answer_tag", "<answer>B</answer>", options) != "C"
    assert taken("answer_tag", "C", options) == "C"


def test_boxed_without_options_compares_whatever_the_case():
    assert right("boxed", "\\boxed{Yes}", "yes") == 1
    assert right("boxed", "\\boxed{Left {upper} Lobe}", "left {upper} lobe", "open") == 1
    assert right("boxed", "Yes", "yes") == 0
    assert boxed_content("\\boxed{a{b}c} d") == "a{b}c"


@each((" B\n", "B"), ("B.", None), ("B. pleural effusion", None), ("b", None), ("\\boxed{B}", None), ("", None))
def test_medbookvqa_wants_the_letter_and_nothing_else(output, letter):
    assert taken("medbookvqa", output) == letter


@each(
    ("\\boxed{A} or \\boxed{B}", "B"),
    ("\\boxed{C. consolidation}", "C"),
    ("\\boxed{C.consolidation}", None),
    ("\\boxed{\\text{B}}", None),
    ("B", "B"),
    ("B. pleural effusion", "B"),
    ("The answer is B", None),
)
def test_medbookvqa_reads_the_reply_where_there_is_no_box(output, letter):
    assert taken("medbookvqa_boxed", output) == letter


@each(
    ('{"정답": "B"}', "B"),
    ('{"정답": "A"} is the form. {"answer": "c"}', "C"),
    ('```json\n{"정답": "A"}\n``` or {"정답": "B"}', "A"),
    ("{'answer': 'D'}", "D"),
    ("{'answer': '\\d D'}", "D"),
    ('{"answer": "So B"}', "B"),
    ('{"answer": null} \\boxed{d}', "D"),
    ('{"final": {"answer": "A"}}', None),
    ('[THINK]{"answer": "A"}[/THINK] {"note": 1}', None),
    ('<think>{"answer": "A"}</think>', "A"),
    ("B", None),
    ("", None),
)
def test_kormedmcqa_v_takes_the_last_json(output, letter):
    assert taken("kormedmcqa_v", output) == letter


def test_kormedmcqa_v_finds_a_letter_inside_a_word():
    output = '{"answer": "The best is C"}'
    assert taken("kormedmcqa_v", output, FOUR | {"E": "fracture"}) == "E"
    assert taken("kormedmcqa_v", output) == "B"


@each(
    ('{"answer": "B"}', "B"),
    ('```json\n{"answer": "b"}\n```', "B"),
    ('The answer: {"answer": "B"}', None),
    ('{"answer": "B. text"}', None),
    ('{"answer": ["B"]}', None),
    ('["B"]', None),
    ("B", None),
    ("", None),
)
def test_vm14k_wants_json_and_nothing_else(output, letter):
    assert taken("vm14k", output) == letter


@each(
    ("<think>A?</think><answer>B</answer>", "B"),
    ("<answer> c. Consolidation </answer>", "C"),
    ("<answer>Consolidation</answer>", "C"),
    ("<answer>B</answer> no, <answer>C</answer>", "B"),
    ("<answer>B.</answer>", None),
    ("<answer>(B)</answer>", None),
    ("B", "B"),
    ("The answer is B", None),
    ("", None),
)
def test_answer_tag_takes_the_first_tag(output, letter):
    assert taken("answer_tag", output) == letter


@each(
    ("<answer>B</answer> no, <answer>C\nas I said</answer>", "C"),
    ("The answer is B", "B"),
    ("The answer is B.", None),
    ("Answer: A\nAnswer: B\nThank you", "B"),
    ("The answer is: B", "B"),
    ("So what it is: B", "B"),
    ("<answer></answer>", None),
    ("<answer>B", "B"),
    ("pleural effusion", "B"),
)
def test_answer_tag_regraded_looks_for_more(output, letter):
    assert taken("answer_tag_regraded", output) == letter


@each(
    ("\\boxed{B}", "B"),
    ("\\boxed{B} or \\boxed{C}", None),  # one answer up to the last brace
    ("Final Answer: B.", "B"),
    ("最终答案：C", "C"),
    ("Final Answer: B, for there is fluid", None),
    ("Réponse finale : B", None),
    ("Respuesta final: B", None),
    ("最終答え: B", None),
    ("B", "B"),
    ("", None),
)
def test_mme_sci_knows_no_mark_in_french_spanish_or_japanese(output, letter):
    assert taken("mme_sci", output) == letter


def test_mme_sci_without_options_gives_the_text():
    assert right("mme_sci", "So it is.\nFinal Answer: 42 N", "42 n", "open") == 1


@each(
    ("Yes", "yes"), ("no, ", "no"), (" no", None), ("Not present", "no"), ("Normal", "no"), ("It is", None), ("", None)
)
def test_temmed_yes_no_reads_the_begin(output, letter):
    assert taken("temmed_yes_no", output, {}) == letter


@each(
    ("Yes, it is", "yes"),
    ("yes", "yes"),
    ("YES.", "yes"),
    ("yes it is", None),
    ("Not present", "no"),
    ("no.", "no"),
    ("It is not", None),
    ("Normal", "no"),
    ("", None),
)
def test_probmed_reads_the_case(output, letter):
    assert taken("probmed_yes_no", output, {}) == letter


def test_probmed_counts_a_reply_with_both_as_right():
    both = "No. Yes, there is"
    assert right("probmed_yes_no", both, "yes") == right("probmed_yes_no", both, "no") == 1


@pytest.mark.parametrize(
    ("output", "answer", "credit"),
    [
        ("Yes", "yes", 1),
        ("No.", "no", 1),
        ("Normal study", "no", 1),
        ("I do not know", "no", 1),
        ("Yes, a nodule", "no", 1),  # right either way
        ("Yes, a nodule", "yes", 1),
        ("None", "no", 0),  # is 0
        ("Axial", "axial", 0),  # neither yes nor no
        ("It is not sagittal but axial", "Axial", 1),
        ("", "no", 0),
    ],
)
def test_llava_med_finds_answers_inside_words(output, answer, credit):
    assert right("llava_med_closed", output, answer) == credit


@pytest.mark.parametrize(
    ("output", "answer", "credit"),
    [
        ("Yes.", "yes", 1),
        ("True", "Yes", 1),
        ("是的。", "是", 1),
        ("没有", "no", 1),
        ("正常", "yes", 1),
        ("异常", "否", 1),
        ("X-Ray", "x ray", 1),
        ("Left lung (lower lobe)", "left lung", 1),
        ("肺（左）", "肺", 1),
        ("The left lung", "Left Lung", 0),
        ("Yes, it is", "Yes", 0),
        ("(yes)", "yes", 0),
        ("", "yes", 0),
    ],
)
def test_slake_of_lmms_eval_wants_equal_words(output, answer, credit):
    assert right("slake_lmms", output, answer, "open") == credit


@pytest.mark.parametrize(
    ("output", "answer", "credit"),
    [
        ("The answer is 3.14159", "3.14", 1),
        ("There are 1,200 cells", "1200", 1),
        ("x = 1.5e3", "1500", 1),
        ("5 mm", "5", 1),
        ("It is 5", "6", 0),
        ("There is no fracture", "fracture", 1),
        ("The fracture is not what this is", "fracture", 0),  # only what follows the last "is"
        ("hyperplasia", "plasia", 1),
        ("a", "a", 1),
        ("banana", "a", 0),  # a single letter needs a blank beside it
        ("Cyst", "cyst", 1),  # no mark, so the whole reply counts
        ("This is a cyst", "is", 0),
        ("", "fracture", 0),
    ],
)
def test_mmmu_open_finds_the_answer_in_the_tail(output, answer, credit):
    assert right("mmmu_open", output, answer, "open") == credit


def test_mmmu_open_takes_any_of_several_right_answers():
    assert right("mmmu_open", "It is a cyst", ["mass", "cyst"], "open") == 1


def test_words_of_the_vqa_challenge():
    assert vqa_words("The left, lower lobe") == "left lower lobe"
    assert vqa_words("x-ray") == "x ray"
    assert vqa_words("x-ray - chest") == "xray chest"
    assert vqa_words("None of TWO. 1,200 or 2.5") == "0 of 2 1200 or 2.5"
    assert vqa_words("no. " * 40).split().count("no.") == 8  # only 32 full stops go


def test_similarity_is_a_naive_ratio_of_matching_blocks():
    # "abcd" and "bcde" share the block bcd: 2 * 3 / 8; "xbxcx" shares b and c: 2 * 2 / 9.
    assert nearest("bcde", {"A": "xbxcx", "B": "abcd"}) == "B"
    assert nearest("bcde", {"A": "abcd", "B": "abcd"}) == "A"
    assert nearest("zzz", {"A": "abcd"}) is None


def test_a_lenient_answer_is_stored_as_its_text():
    answer = taken("slake_lmms", "The LEFT lung", {})
    assert json.loads(json.dumps(answer)) == "the left lung"
    assert pickle.loads(pickle.dumps(answer)) == answer == "The left lung"
    assert answer != "right lung"
    assert answer != 3
    assert hash(answer) == hash("the left lung")


def test_every_rule_names_its_source_and_what_becomes_of_the_rest():
    package = "medimg_eval.metrics.answers.published."
    ours = {name: rule for name, rule in rules().items() if rule.function.__module__.startswith(package)}
    assert ours.keys() == set(RULES)
    for name, rule in ours.items():
        assert rule.source
        assert rule.definition.startswith("Takes ")
        assert rule.function.__name__ == name
        assert any(word in rule.function.__doc__ for word in ("None", "Always answers", "As `", "drawn")), name


SCRAPS = st.sampled_from(
    [
        "A",
        "B.",
        "(C)",
        "d",
        "Yes",
        "no",
        "The answer is",
        "Answer:",
        "\\boxed{",
        "}",
        "{",
        '{"answer": "A"}',
        "<answer>",
    ]
)
SIGNS = st.sampled_from(
    ["</answer>", "<think>", "\n", "\n\n", "1,2.5e3", "=", "是", "```json", "My answer is", "[THINK]"]
)


@settings(deadline=None, max_examples=25)
@given(st.one_of(st.text(max_size=60), st.lists(SCRAPS | SIGNS, max_size=12).map(" ".join)))
def test_every_rule_reads_anything_and_reads_it_the_same_again(output):
    for name in RULES:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            value = taken(name, output)
        if isinstance(value, float):
            assert math.isfinite(value)
        else:
            assert value is None or isinstance(value, str)
        assert repr(taken(name, output)) == repr(value)
        if not output.strip():
            assert value is None or name in {"mmmu", "pathmmu", "chexbench", "medevalkit", "omnimedvqa", "pmc_vqa"}


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text("abcdefg ", min_size=2, max_size=8), min_size=2, max_size=5))
def test_a_bare_letter_of_an_option_is_that_option(texts):
    letters = {"vlmevalkit", "lmms_eval", "mmmu", "medevalkit", "medxpertqa", "mediconfusion", "medq_deg", "livexiv"}
    letters |= {"seed_bench", "medbookvqa", "medbookvqa_boxed", "answer_tag", "answer_tag_regraded", "mme_sci"}
    options = dict(zip("ABCDE", texts, strict=False))
    for name in letters:
        for letter in options:
            assert taken(name, letter, options) == letter, name
