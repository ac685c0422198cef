"""A model of text that labels reports by words it looks for, and can go wrong in the ways that models do."""

import json
import re
from pathlib import Path

from medimg_eval.errors import CaseError
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Turn, Usage

WORDS = {"Edema": "edema", "Fracture": "fracture", "Ødem": "ødem"}


class ReadsReports(VisionLanguageModel):
    """Writes `stated` of a word in the report, `denied` of one behind "no", else `silent`.

    Args:
        values: what it writes for stated, denied and silent, by their first letters.
        spoil: word -> reply, whatever is asked, of reports that hold the word.
        refuse: a word of reports that it does not take.
        log: file that gets a line for each prompt.
    """

    file_arguments = ()
    pace_arguments = ("log",)
    preferred_batch = 3

    def __init__(self, values=None, spoil=None, refuse="", log=None):
        self.values = dict(values or {"s": 1, "d": 2, "n": -1})
        self.spoil, self.refuse, self.log = dict(spoil or {}), refuse, log

    def generate(self, prompts, decoding):
        if self.refuse and any(self.refuse in self.report(prompt.text) for prompt in prompts):
            raise CaseError(f"the model takes no {self.refuse}")
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as stream:
                stream.write("asked\n" * len(prompts))
        return [
            Turn(self.reply(prompt.text), finish="stop", usage=Usage(input=len(prompt.text), output=7, seconds=0.5))
            for prompt in prompts
        ]

    def report(self, text):
        return re.findall(r"<<<(.*?)>>>", text, re.DOTALL)[-1]

    def reply(self, text):
        report = self.report(text)
        spoiled = next((reply for word, reply in self.spoil.items() if word in report), None)
        if spoiled is not None:
            return spoiled
        if "anew" in text:
            return report.replace(" again", "")
        if question := re.search(r"Question: .*?(\w+)\??\n", text):
            return str(self.value(question[1], report))
        names = re.findall(r"^- (\w+)", text, re.MULTILINE)
        return "Here it is:\n```json\n" + json.dumps({name: self.value(name, report) for name in names}) + "\n```"

    def value(self, name, report):
        word = WORDS[name] if name in WORDS else name.lower()
        said = report.lower()
        if f"no {word}" in said or f"intet {word}" in said:
            return self.values["d"]
        return self.values["s"] if word in said else self.values["n"]
