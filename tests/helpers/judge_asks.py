"""What a judge would be asked about one stored answer."""

from medimg_eval.evidence import Evidence


def judge_prompts(task, case, packed):
    """The questions to a judge about an answer, each with its prompt; those that need none are left out."""
    return [
        (task.judge_questions[need.topic], subject.read()[0])
        for need in task.requirements()
        if need.kind == "verdict"
        for subject in task.subjects(need, [case], {case.id: packed}, Evidence())
        if not subject.needless
    ]
