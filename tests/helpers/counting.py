"""A model that writes down each time that it is made, and each question that it is asked."""

from pathlib import Path

from medimg_eval.models import VisionLanguageModel


class Counted(VisionLanguageModel):
    """Replies `A` to choices and `yes` to others."""

    file_arguments = ()
    preferred_batch = 4

    def __init__(self, log):
        self.log = Path(log)
        self._note("made")

    def generate(self, prompts, decoding):
        for prompt in prompts:
            self._note(f"asked {prompt.case_id}")
        return ["A" if "A" in prompt.options else "yes" for prompt in prompts]

    def _note(self, line):
        with self.log.open("a") as stream:
            stream.write(f"{line}\n")
