"""Classifiers of reports and of their sentences, as transformers has them: RadBERT-CT, SRR-BERT, and others alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from medimg_eval.errors import UsageError, UserError, import_optional
from medimg_eval.metrics.reports import Taxonomy
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import encoded, pretrained, tokenizer_of

LONGEST = 512
"""Tokens that are read at most; a model with fewer places reads as many as it has."""

UNNAMED = re.compile(r"LABEL_\d+")
"""What transformers calls labels that nobody named."""

_NUMBERING = re.compile(r"(?:(?<=^)|(?<=[\s.!?;:]))\(?\d{1,2}[.)](?!\d)\s*")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[a-z\]_][.!?])(?=[A-Z])|\n+")

_CLASSIFIER = Weights(
    argument="weights",
    what="config.json and model.safetensors (or pytorch_model.bin) of a sequence classifier",
    source="the repository on the Hugging Face hub that the config names",
    licence="see the repository's card",
    files=("config.json", "model.safetensors|pytorch_model.bin"),
)
_VOCABULARY = Weights(
    argument="vocabulary",
    what="vocab.txt, the tokenizer of the classifier",
    source="microsoft/BiomedVLP-CXR-BERT-general on the Hugging Face hub, for SRR-BERT",
    licence="MIT",
    files=("vocab.txt",),
)


_PUNKT = Weights(
    argument="punkt",
    what="abbrev_types.txt, collocations.tab, ortho_context.tab and sent_starters.txt of Punkt for English",
    source="NLTK's data (tokenizers/punkt_tab/english)",
    licence="see NLTK's data",
    files=("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"),
    on_hub=False,
)


class ReportClassifier(TextAnnotator):
    """Labels of a report whose probability exceeds a threshold: label -> 1.

    A report that was read in part has `cut`; an empty one has no label. Probabilities are the sigmoid of the
    classifier's outputs.

    Args:
        weights: a folder as transformers saves a classifier, or `owner/name` of the hub's cache.
        taxonomy: names the labels where the classifier does not, in the order of its outputs: a name of
            `configs/class_lists`, or a YAML file.
        none: the label of a report without any other, which is no output of the classifier; "" for no such label.
        unit: what is classified: the report, or each of its sentences, whose labels are united.
        threshold: in [0, 1].

    Raises:
        UsageError: the unit or the threshold is invalid.
    """

    needs: ClassVar[Sequence[Weights]] = (_CLASSIFIER,)

    def __init__(
        self,
        weights: str | None = None,
        taxonomy: str = "",
        none: str = "",
        unit: Literal["report", "sentence"] = "report",
        threshold: float = 0.5,
        device: str = "auto",
        preferred_batch: int = 16,
    ) -> None:
        if unit not in ("report", "sentence"):
            raise UsageError(f"unit of an annotator is {unit!r}; expected report or sentence")
        if not 0 <= threshold <= 1:
            raise UsageError(f"threshold of an annotator is {threshold!r}; expected a number from 0 to 1")
        self.weights, self.taxonomy, self.none = weights, taxonomy, none
        self.unit, self.threshold = unit, threshold
        self.device, self.preferred_batch = device, preferred_batch

    def annotate(self, texts: Sequence[str]) -> Sequence[dict[str, Any]]:
        """Reads a batch; raises UserError where the weights cannot be used."""
        parts = [self._parts(text) for text in texts]
        flat = [part for some in parts for part in some]
        read: list[tuple[set[str], bool]] = []
        for start in range(0, len(flat), self.preferred_batch):
            read += self._labels(flat[start : start + self.preferred_batch])
        annotations, position = [], 0
        for some in parts:
            own = read[position : position + len(some)]
            position += len(some)
            labels = {label for labels, _ in own for label in labels}
            none = [self.none] if own and self.none else []
            statements: dict[str, Any] = dict.fromkeys(sorted(labels) or none, 1)
            annotations.append({**statements, "cut": True} if any(cut for _, cut in own) else statements)
        return annotations

    def _parts(self, text: str) -> list[str]:
        """Parts of a report to classify: none of an empty one."""
        if self.unit == "sentence":
            return sentences(text)
        return [text] if text.strip() else []

    def _labels(self, texts: Sequence[str]) -> list[tuple[set[str], bool]]:
        import torch

        model, tokenizer, names = self._loaded
        longest = min(LONGEST, int(getattr(model.config, "max_position_embeddings", LONGEST)))
        inputs, cut = encoded(tokenizer, texts, longest, model.device)
        with torch.inference_mode():
            above = (torch.sigmoid(model(**inputs).logits.float()) > self.threshold).tolist()
        return [
            ({name for name, yes in zip(names, row, strict=True) if yes}, long)
            for row, long in zip(above, cut, strict=True)
        ]

    def _tokenizer(self) -> Any:
        return tokenizer_of(self.find(self.needs[0]))

    @cached_property
    def _loaded(self) -> tuple[Any, Any, list[str]]:
        folder = self.find(self.needs[0])
        model = pretrained("AutoModelForSequenceClassification", folder, "classifier")
        return model.to(self.on).eval(), self._tokenizer(), self._names(model.config, str(folder))

    def _names(self, config: Any, place: str) -> list[str]:
        """Label names by output, of the config or else the taxonomy."""
        own: Mapping[int, str] = config.id2label
        names = [str(own[number]) for number in range(len(own))]
        if not all(UNNAMED.fullmatch(name) for name in names):
            return names
        if not self.taxonomy:
            raise UserError(f"{place}: names none of its {len(names)} labels; set annotators.{self.name}.taxonomy")
        labels = [label for label in Taxonomy.load(self.taxonomy).labels if label != self.none]
        if len(labels) != len(names):
            raise UserError(f"{place}: has {len(names)} labels, and taxonomy {self.taxonomy} {len(labels)}")
        return labels


class SrrBert(ReportClassifier):
    """SRR-BERT: findings of all sentences, optionally with statuses.

    A finding with status is "Edema (Present)"; findings are united over the report. Delbrouck et al. 2025. Its
    tokenizer is that of another repository.

    Args:
        vocabulary: the folder or repository that holds the tokenizer's `vocab.txt`.
        unit: as of `ReportClassifier`; or `radeval`, sentences as RadEval splits reports into, which takes NLTK.
        punkt: the folder of NLTK's `punkt_tab` for English, where the unit is `radeval`.
    """

    needs: ClassVar[Sequence[Weights]] = (_CLASSIFIER, _VOCABULARY)
    file_arguments: ClassVar[tuple[str, ...]] = ("weights", "vocabulary", "punkt")

    def __init__(
        self,
        weights: str | None = None,
        vocabulary: str | None = "microsoft/BiomedVLP-CXR-BERT-general",
        unit: Literal["report", "sentence", "radeval"] = "sentence",
        punkt: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(weights, unit="sentence" if unit == "radeval" else unit, **settings)
        self.vocabulary, self.punkt, self.as_radeval = vocabulary, punkt, unit == "radeval"

    def check_ready(self) -> None:
        """Raises UserError where weights, or for RadEval's sentences NLTK, are missing."""
        super().check_ready()
        if self.as_radeval:
            self.find(_PUNKT)
            import_optional("nltk.tokenize.punkt")

    @property
    def revision(self) -> str:
        """Identity of weights and of the sentence splitter, if not ours."""
        return super().revision + (", sentences by RadEval with NLTK's Punkt" if self.as_radeval else "")

    def _parts(self, text: str) -> list[str]:
        if not self.as_radeval:
            return super()._parts(text)
        return radeval_sentences(text, self._punkt) if text.strip() else []

    @cached_property
    def _punkt(self) -> Any:
        return punkt_of(self.find(_PUNKT))

    def _tokenizer(self) -> Any:
        return tokenizer_of(self.find(_VOCABULARY))


def sentences(text: str) -> list[str]:
    """Splits a report into sentences, without the numbers of a list.

    "1.Stable.2.No effusion" has two; decimals such as 3.5 stay whole. Each ends as it does in the text.
    """
    bare = _NUMBERING.sub("\n", text)
    parts = [" ".join(part.split()) for part in _END.split(bare)]
    return [part for part in parts if any(sign.isalnum() for sign in part)]


_RADEVAL = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"\A\s*\d+\.(?!\d)\s*", ""),
        (r"(?<=\w)\.\d+\.(?!\d)\s*", ". "),
        (r"(?<=\w)\d+\.(?!\d)\s*", ". "),
        (r"(?<=\w)\s+\d+\.(?!\d)\s*", ". "),
        (r"(?<=[.!?])\s*\d+\.(?!\d)\s*", " "),
        (r"\.(?=[A-Z])", ". "),
    )
)
"""What RadEval puts in the place of numbers of lists, one after the other: of a number at the beginning nothing, of
"word.2.", "word2." and "word 2." a full stop, of ". 2." a blank; a blank behind a full stop before a capital."""


def radeval_sentences(text: str, punkt: Any) -> list[str]:
    """Splits a nonblank report into sentences as RadEval's SRR-BERT does, to the character."""
    for pattern, put in _RADEVAL:
        text = pattern.sub(put, text)
    if not text.strip().endswith((".", "!", "?")):
        text = text.strip() + "."
    return list(punkt.tokenize(text))


def punkt_of(folder: Path) -> Any:
    """Returns NLTK's sentence tokenizer of a `punkt_tab` folder; UserError if unusable."""
    module = import_optional("nltk.tokenize.punkt")
    tokenizer, parameters = module.PunktSentenceTokenizer(), module.PunktParameters()
    try:
        # Read here, since NLTK's own reader refuses folders outside its data.
        lines = {name: (folder / name).read_text("utf-8").splitlines() for name in _PUNKT.files}
        parameters.abbrev_types = set(lines["abbrev_types.txt"])
        parameters.sent_starters = set(lines["sent_starters.txt"])
        parameters.collocations = {tuple(line.split("\t")) for line in lines["collocations.tab"]}
        for word, context in (line.split("\t") for line in lines["ortho_context.tab"]):
            parameters.ortho_context[word] = int(context)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot be read as Punkt's parameters of NLTK's punkt_tab: {error}") from error
    tokenizer._params = parameters  # noqa: SLF001 - as NLTK's own loader sets them
    return tokenizer
