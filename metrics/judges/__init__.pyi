from .green import green_score as green_score, read_green as read_green
from .verdicts import reader as reader, sentences as sentences, verdict_reader as verdict_reader
from .rubric import balanced_agreement as balanced_agreement, rubric_score as rubric_score
from .ballots import (
    Ballot as Ballot,
    joint_verdict as joint_verdict,
    jury_verdict as jury_verdict,
    read_ballots as read_ballots,
    write_ballots as write_ballots,
)
from .thought_steps import (
    rationale_steps as rationale_steps,
    read_step_labels as read_step_labels,
    reasoning_steps as reasoning_steps,
)
