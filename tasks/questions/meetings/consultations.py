"""Courses of agents that work together: experts are called in, report to one that sums up, and agree or revise."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from medimg_eval.metrics.answers import last_object
from medimg_eval.question import Message
from medimg_eval.tasks.questions.meetings.meeting import Course, Meeting, Speech, meeting_course

_EXPERT = re.compile(r'(Expert (?:\w+ ?){1,5}):\s*\n?"""(.*?)"""', re.DOTALL)
_FINAL = re.compile(r'FINAL\s+ANSWER:\s*"""(.*?)"""', re.DOTALL | re.IGNORECASE)


@meeting_course(texts="meta begin expert heard unclear last", settings="rounds")
def meta_prompting(meeting: Meeting) -> Course:
    """One agent calls experts, who remember nothing, one after the other until it gives a final answer.

    Source: methods/MetaPrompting of MedMASLab, after Suzgun & Kalai 2024; no expert runs programs.
    """
    rounds, said = meeting.number("rounds"), ""
    talk: tuple[Message, ...] = ()
    text = meeting.say("begin")
    for number in range(1, rounds + 1):
        text = f"ROUND {number}:\n\n{text}{meeting.say('last') if number == rounds else ''}"
        (said,) = yield [Speech("meta", text, meeting.say("meta"), talk)]
        talk += (Message("user", (text,)), Message("assistant", (said,)))
        if calls := _EXPERT.findall(said):
            replies = yield [
                Speech(name.strip(), instruction.strip(), meeting.say("expert", name=name.strip()))
                for name, instruction in calls
            ]
            told = "\n\n".join(
                f'{name.strip()}\'s output:\n"""\n{reply}\n"""' for (name, _), reply in zip(calls, replies, strict=True)
            )
            text = meeting.say("heard", outputs=told)
        elif final := _FINAL.search(said):
            return final[1].strip()
        else:
            text = meeting.say("unclear")
    final = _FINAL.search(said)
    return final[1].strip() if final else said


@meeting_course(
    texts="classify sort analyst analyse weigher weigh insight summer sum voter vote advise revise answer",
    settings="question_fields option_fields rounds",
)
def medagents(meeting: Meeting) -> Course:
    """Fields are named, experts of each analyse, a report is summed up and revised until all vote for it.

    Source: methods/MedAgents of MedMASLab, after MedAgents (Tang et al. 2024).
    """
    kinds = ("question", "option") if meeting.options else ("question",)
    named = yield [
        Speech(
            f"classifier of {kind}s",
            meeting.say("sort", kind=kind, count=meeting.number(f"{kind}_fields")),
            meeting.say("classify"),
        )
        for kind in kinds
    ]
    fields = {kind: _fields_in(text, meeting.number(f"{kind}_fields")) for kind, text in zip(kinds, named, strict=True)}
    analyses = yield [
        Speech(field, meeting.say("analyse", field=field), meeting.say("analyst", field=field))
        for field in fields["question"]
    ]
    insights = _told_insights(meeting, fields["question"], analyses)
    if meeting.options:
        weighed = yield [
            Speech(field, meeting.say("weigh", field=field, insights=insights), meeting.say("weigher", field=field))
            for field in fields["option"]
        ]
        insights += _told_insights(meeting, fields["option"], weighed)
    (report,) = yield [Speech("summer", meeting.say("sum", insights=insights), meeting.say("summer"))]
    voters = [field for kind in kinds for field in fields[kind]]
    for _ in range(meeting.number("rounds")):
        votes = yield [
            Speech(field, meeting.say("vote", field=field, report=report), meeting.say("voter", field=field))
            for field in voters
        ]
        against = [
            field for field, vote in zip(voters, votes, strict=True) if re.search(r"\bno\b", vote, re.IGNORECASE)
        ]
        if not against:
            break
        advice = yield [
            Speech(field, meeting.say("advise", field=field, report=report), meeting.say("voter", field=field))
            for field in against
        ]
        told = _told_insights(meeting, against, advice)
        (report,) = yield [Speech("summer", meeting.say("revise", report=report, insights=told), meeting.say("summer"))]
    (said,) = yield [Speech("decider", meeting.say("answer", report=report))]
    return said


def _fields_in(text: str, count: int) -> list[str]:
    """Fields of medicine, parted by `|` after the last colon; general medicine where none is named."""
    named = [field.strip() for field in text.rsplit(":", 1)[-1].split("|") if field.strip()]
    return list(dict.fromkeys(named))[:count] or ["General Medicine"]


def _told_insights(meeting: Meeting, fields: Sequence[str], texts: Sequence[str]) -> str:
    return "".join(meeting.say("insight", field=field, text=text) for field, text in zip(fields, texts, strict=True))


@meeting_course(texts="opinion opine opined sum summer review reviewed decide", settings="members rounds")
def colacare(meeting: Meeting) -> Course:
    """Doctors of fixed fields give opinions, one sums them up, all review it; without agreement once more.

    Source: methods/ColaCare of MedMASLab, after ColaCare (Wang et al. 2025).
    """
    members, decision = meeting.members, ""
    for number in range(1, meeting.number("rounds") + 1):
        roles = [meeting.say("opinion", role=member["role"], round=number) for member in members]
        opinions = yield [
            Speech(member["name"], meeting.say("opine"), role) for member, role in zip(members, roles, strict=True)
        ]
        told = "".join(
            meeting.say("opined", role=member["role"], text=text)
            for member, text in zip(members, opinions, strict=True)
        )
        (summed,) = yield [Speech("coordinator", meeting.say("sum", opinions=told), meeting.say("summer"), shows=False)]
        reviews = yield [
            Speech(member["name"], meeting.say("review", own=own, summed=summed), role)
            for member, role, own in zip(members, roles, opinions, strict=True)
        ]
        told = "".join(
            meeting.say("reviewed", role=member["role"], text=text)
            for member, text in zip(members, reviews, strict=True)
        )
        text = meeting.say("decide", summed=summed, reviews=told, round=number)
        (decision,) = yield [Speech("coordinator", text, meeting.say("summer"), shows=False)]
        if all(_agrees(review) for review in reviews):
            break
    return str((last_object(decision) or {}).get("answer", decision))


def _agrees(review: str) -> bool:
    """Whether a review in JSON says that it agrees; one that says nothing does not."""
    said = (last_object(review) or {}).get("agree")
    return said is True or str(said).strip().lower() in ("yes", "true")


@meeting_course(
    texts="triage specialist consult context lead summer reviewer review last", settings="pool specialists rounds"
)
def mdteamgpt(meeting: Meeting) -> Course:
    """A triage calls specialists, who speak alone in rounds that one sums up, until a reviewer finds agreement.

    Source: methods/MDTeamGPT of MedMASLab, without its memory of earlier cases; images are shown in the first round.
    """
    pool = [str(name) for name in meeting.settings["pool"]]
    (called,) = yield [Speech("triage", meeting.say("triage", pool=", ".join(pool)), shows=False)]
    roles = _called_specialists(called, pool, meeting.number("specialists"))
    rounds, summaries, reviewed = meeting.number("rounds"), list[str](), ""
    for number in range(rounds):
        context = "".join(meeting.say("context", text=text) for text in summaries[-2:])
        texts = yield [
            Speech(
                role,
                meeting.say("consult", context=context, round=number + 1),
                meeting.say("specialist", role=role),
                shows=not number,
            )
            for role in roles
        ]
        told = "\n\n".join(f"**{role}**: {text}" for role, text in zip(roles, texts, strict=True))
        (summary,) = yield [Speech("lead", meeting.say("lead", opinions=told), meeting.say("summer"), shows=False)]
        summaries.append(summary)
        name = "last" if number == rounds - 1 else "review"
        (reviewed,) = yield [
            Speech("reviewer", meeting.say(name, summary=summary), meeting.say("reviewer"), shows=False)
        ]
        if re.search(r"STATUS\W+CONVERGED", reviewed, re.IGNORECASE):
            break
    return re.split(r"FINAL_ANSWER:", reviewed, flags=re.IGNORECASE)[-1].strip()


def _called_specialists(said: str, pool: Sequence[str], least: int) -> list[str]:
    """Specialists that a triage names, of those there are; filled up to so many from the front of the pool."""
    held = (last_object(said) or {}).get("selected_roles", ())
    named = [str(name).strip().lower() for name in held] if isinstance(held, list) else []
    called = [name for name in pool if name.lower() in named]
    return [*called, *(name for name in pool if name not in called)][: max(len(called), least)]


@meeting_course(
    texts=(
        "grade grader single recruit recruiter expert opine talk choose ask asked final moderator decide "
        "teams lead deliver assist answer review reviewer"
    ),
    settings="experts turns teams clinicians",
)
def mdagents(meeting: Meeting) -> Course:
    """One agent answers what is easy; for harder questions experts talk with each other, for the hardest teams report.

    Source: methods/MDAgents of MedMASLab, after MDAgents (Kim et al. 2024).
    """
    (graded,) = yield [Speech("grader", meeting.say("grade"), meeting.say("grader"))]
    level = re.search(r"basic|1\)|intermediate|2\)|advanced|3\)", graded, re.IGNORECASE)
    name = level[0].lower() if level else "intermediate"
    if name in ("basic", "1)"):
        (said,) = yield [Speech("expert", meeting.question, meeting.say("single"))]
        return said
    return (yield from (_ask_teams(meeting) if name in ("advanced", "3)") else _ask_experts(meeting)))


def _ask_experts(meeting: Meeting) -> Course:
    """Experts that are recruited give opinions, talk with each other in turns, and answer; one decides by majority."""
    (recruited,) = yield [
        Speech("recruiter", meeting.say("recruit", count=meeting.number("experts")), meeting.say("recruiter"))
    ]
    experts = _recruited(recruited, meeting.number("experts"))
    roles = [meeting.say("expert", name=name, does=does) for name, does in experts]
    talks: list[tuple[Message, ...]] = [()] * len(experts)

    def speak(
        indices: Sequence[int], texts: Sequence[str]
    ) -> Generator[Sequence[Speech], Sequence[str], Sequence[str]]:
        said = yield [
            Speech(experts[index][0], text, roles[index], talks[index])
            for index, text in zip(indices, texts, strict=True)
        ]
        for index, text, reply in zip(indices, texts, said, strict=True):
            talks[index] = (*talks[index], Message("user", (text,)), Message("assistant", (reply,)))
        return said

    everyone = range(len(experts))
    opinions = yield from speak(everyone, [meeting.say("opine")] * len(experts))
    heard = "".join(f"({name}): {text}\n" for (name, _), text in zip(experts, opinions, strict=True))
    listed = "".join(f"Agent {number}: {name} - {does}\n" for number, (name, does) in enumerate(experts, 1))
    is_done = False
    for _ in range(meeting.number("turns")):
        wishes = yield from speak(everyone, [meeting.say("talk", heard=heard)] * len(experts))
        eager = [index for index in everyone if "yes" in wishes[index].lower()]
        is_done = not eager
        if is_done:
            break
        chosen = yield from speak(eager, [meeting.say("choose", experts=listed)] * len(eager))
        pairs = [
            (index, int(number) - 1)
            for index, text in zip(eager, chosen, strict=True)
            for number in dict.fromkeys(re.findall(r"\d+", text))
            if 0 < int(number) <= len(experts)
        ]
        heard = ""
        for index, other in pairs:
            (said,) = yield from speak([index], [meeting.say("ask", name=experts[other][0], number=other + 1)])
            heard += meeting.say("asked", name=experts[index][0], other=experts[other][0], text=said)
    finals = opinions if is_done else (yield from speak(everyone, [meeting.say("final")] * len(experts)))
    told = "".join(f"({name}): {text}\n" for (name, _), text in zip(experts, finals, strict=True))
    (decision,) = yield [Speech("moderator", meeting.say("decide", answers=told), meeting.say("moderator"))]
    return decision


def _recruited(text: str, count: int) -> list[tuple[str, str]]:
    """Name and task of experts on lines such as "1. Cardiologist - Looks after hearts. - Hierarchy: Independent"."""
    lines = re.findall(r"^\W*\d+[.)]\W*([^-\n]+?)\s+-\s+([^\n]*)", text, re.MULTILINE)
    experts = [
        (name.strip(" *").lower(), re.split(r"\s+-\s+Hierarchy", does)[0].strip().lower()) for name, does in lines
    ]
    general = [(f"general physician {number}", "sees all patients first") for number in range(1, count + 1)]
    return list(dict(experts).items())[:count] or general


def _ask_teams(meeting: Meeting) -> Course:
    """Teams of a lead and assistants investigate and report; one decides over all reports."""
    text = meeting.say("teams", teams=meeting.number("teams"), clinicians=meeting.number("clinicians"))
    (planned,) = yield [Speech("recruiter", text, meeting.say("recruiter"))]
    teams = _planned_teams(planned, meeting.number("teams"), meeting.number("clinicians"))
    orders = yield [
        Speech(
            members[0],
            meeting.say("deliver", members=", ".join(members[1:])),
            meeting.say("lead", name=members[0], goal=goal),
        )
        for goal, members in teams
    ]
    assistants = [(place, name) for place, (_, members) in enumerate(teams) for name in members[1:]]
    found: dict[int, str] = {}
    if assistants:
        texts = yield [
            Speech(
                name, meeting.say("assist", order=orders[place]), meeting.say("lead", name=name, goal=teams[place][0])
            )
            for place, name in assistants
        ]
        for (place, name), text in zip(assistants, texts, strict=True):
            found[place] = f"{found.get(place, '')}[{name}]\n{text}\n"
    reports = yield [
        Speech(
            members[0],
            meeting.say("answer", found=found.get(place, "")),
            meeting.say("lead", name=members[0], goal=goal),
        )
        for place, (goal, members) in enumerate(teams)
    ]
    told = "".join(f"{goal}\n{text}\n\n" for (goal, _), text in zip(teams, reports, strict=True))
    (decision,) = yield [Speech("decider", meeting.say("review", reports=told), meeting.say("reviewer"))]
    return decision


def _planned_teams(text: str, teams: int, clinicians: int) -> list[tuple[str, list[str]]]:
    """Goal and members of teams in JSON, `{teams: [{goal, members: [name]}]}`; a general one where there are none."""
    held = (last_object(text) or {}).get("teams", ())
    planned: list[tuple[str, list[str]]] = []
    for team in held if isinstance(held, list) else ():
        members = team.get("members", ()) if isinstance(team, Mapping) else ()
        names = [_member_name(member) for member in members] if isinstance(members, list) else []
        if names:
            planned.append((str(team.get("goal", "")), names[:clinicians]))
    return planned[:teams] or [("to answer the question", [f"physician {number + 1}" for number in range(clinicians)])]


def _member_name(member: Any) -> str:
    return str(member.get("role", member.get("name", ""))) if isinstance(member, Mapping) else str(member)
