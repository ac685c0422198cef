"""The benchmarks' own rules of taking an answer from an output, so that published numbers can be reproduced.

Each rule does what its authors' released code does, its faults included: its docstring says whose it is, where it is
weak, and what becomes of outputs in which it finds nothing. The rules are written anew, from what that code does. A
config names its benchmark's rule as `authors: {extraction: NAME}`; `extraction=authors` uses it, and `extraction=NAME`
uses any. Our own rule is `medimg_eval.metrics.answers.extraction`.

A rule takes (output, options, question, more) and returns the answer or None. Where the published scoring is looser
than equality, the answer is a text that equals every right answer which that scoring accepts.
"""

from medimg_eval.metrics.answers.published.harnesses import (
    lmms_eval,
    medevalkit,
    medevalkit_closed,
    medevalkit_open,
    medevalkit_yes_no,
    mmmu,
    multimedeval,
    multimedeval_yes_no,
    pathmmu,
    vlmevalkit,
)
from medimg_eval.metrics.answers.published.marked import (
    answer_tag,
    answer_tag_regraded,
    boxed,
    kormedmcqa_v,
    medbookvqa,
    medbookvqa_boxed,
    mme_sci,
    vm14k,
)
from medimg_eval.metrics.answers.published.option_letters import (
    chestagentbench,
    chexbench,
    deeptumorvqa,
    deeptumorvqa_number,
    deeptumorvqa_yes_no,
    livexiv,
    medframeqa,
    mediconfusion,
    medq_bench,
    medq_deg,
    medxpertqa,
    omnimedvqa,
    pmc_vqa,
    seed_bench,
    temmed_selection,
)
from medimg_eval.metrics.answers.published.words import (
    llava_med_closed,
    mmmu_open,
    probmed_yes_no,
    slake_lmms,
    temmed_yes_no,
)

__all__ = [
    "answer_tag",
    "answer_tag_regraded",
    "boxed",
    "chestagentbench",
    "chexbench",
    "deeptumorvqa",
    "deeptumorvqa_number",
    "deeptumorvqa_yes_no",
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
]
