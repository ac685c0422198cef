"""What reads numbers in remarks."""

from pathlib import Path

from medimg_eval.models.annotators import TextAnnotator

WORDS = ("no", "one", "two", "three", "four", "five")


class NumberWords(TextAnnotator):
    """Reads the first number that is written as a word; notes each text that it is shown."""

    preferred_batch = 2

    def __init__(self, log):
        self.log = log

    def annotate(self, texts):
        with Path(self.log).open("a") as stream:
            stream.writelines(f"{text}\n" for text in texts)
        return [{"number": next((WORDS.index(word) for word in text.split() if word in WORDS), None)} for text in texts]
