"""The models of GREEN, language models that were trained to count the errors of a report: judges of reports."""

from __future__ import annotations

from tempfile import NamedTemporaryFile

from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM

TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{{ '<|assistant|>\n' + eos_token + '\n<|assistant|>\n' }}"
)
"""How a conversation is put to them: the turns, an empty answer, and the mark of the answer that is to come.

The empty answer is no mistake here: the authors' program asks so, and so came their numbers about.
"""


class GreenModel(HuggingFaceVLM):
    """GREEN checkpoint, asked by its authors' conversation.

    What is given to `chat_template` replaces those. Arguments are those of `HuggingFaceVLM`.
    """

    def _load(self) -> None:
        """Loads the checkpoint with a template for its turns."""
        if self.model is not None or self.chat_template is not None:
            super()._load()
            return
        with NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as file:
            file.write(TEMPLATE)
            file.flush()
            self.chat_template = file.name
            try:
                super()._load()
            finally:
                self.chat_template = None
