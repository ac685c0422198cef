"""RadGraph: reads entities and relations in reports, with the weights of RadGraph, RadGraph-XL or Modern RadGraph-XL.

The models are loaded from their published archives by code of our own, which computes what the `radgraph` package does:
that one carries a copy of AllenNLP, fetches from the network when a model is made, and does not run on transformers 5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from medimg_eval.errors import UserError
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.annotators.radgraph.archive import encoder_of, read_archive, read_settings
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import pretrained

SOURCE = "the model hub, StanfordAIMI/RRG_scorers"
LICENCE = "none stated with the file; it was trained on reports under PhysioNet's credentialed terms"

ENCODER = ("config.json", "tokenizer.json|vocab.txt", "tokenizer_config.json|config.json")
"""Files of an encoder's repository; some have no `tokenizer_config.json` and need none."""


def _archive_weights(file: str) -> Weights:
    return Weights("weights", f"StanfordAIMI/RRG_scorers:{file}", SOURCE, LICENCE)


class RadGraph(TextAnnotator):
    """RadGraph 1.0 (Jain et al. 2021), the model that RadCliQ takes.

    Args:
        weights: its archive, as it is or unpacked into a folder.
        encoder: folder or repository of the hub with `config.json` and the tokenizer of the transformer that it was
            trained from; None for the one that the archive names. Its weights are not needed.
        device: `auto`, or a torch device such as `cuda:1`.
    """

    preferred_batch = 16
    file_arguments: ClassVar[tuple[str, ...]] = ("weights", "encoder")
    archive: ClassVar[Weights] = _archive_weights("radgraph.tar.gz")
    dataset: ClassVar[str] = "radgraph"

    def __init__(self, weights: str | None = None, encoder: str | None = None, device: str = "auto") -> None:
        self.weights, self.device = weights, device
        self._given = encoder

    @property
    def needs(self) -> tuple[Weights, ...]:  # type: ignore[override]  # what an archive needs stands in it
        """Archive and, once there, its encoder's configuration and tokenizer."""
        try:
            self.find(self.archive)
        except UserError:
            return (self.archive,)
        named = self.encoder
        what = f"config.json and the tokenizer of {named}, which the archive's encoder was trained from"
        return (self.archive, Weights("encoder", what, f"the model hub, {named}", "see there", ENCODER))

    @property
    def encoder(self) -> str:
        """Path of the encoder's configuration; UserError where the archive is missing."""
        return self._given or self._named

    @cached_property
    def _named(self) -> str:
        return encoder_of(read_settings(self.find(self.archive)))

    def annotate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Reads texts, one at a time; one without a word has no entities.

        Returns:
            Annotations as RadGraph publishes them, with `text` and `entities`.

        Raises:
            UserError: the archive or its encoder cannot be loaded.
        """
        return [self._annotation(self.split(text)) for text in texts]

    def split(self, text: str) -> list[str]:
        """Returns words as in training: split at blanks and punctuation."""
        return re.sub(r"([/,:.!?()])", r" \1 ", text).split()

    def _annotation(self, words: Sequence[str]) -> dict[str, Any]:
        graph = self._network.read(words) if words else None
        numbered = list(enumerate(graph.entities, start=1)) if graph else []
        numbers = {(first, last): str(number) for number, (first, last, _) in numbered}
        entities: dict[str, dict[str, Any]] = {
            str(number): {
                "tokens": " ".join(words[first : last + 1]),
                "label": label,
                "start_ix": first,
                "end_ix": last,
                "relations": [],
            }
            for number, (first, last, label) in numbered
        }
        for first, second, kind in graph.relations if graph else ():
            if first in numbers and second in numbers:
                entities[numbers[first]]["relations"].append([kind, numbers[second]])
        return {"text": " ".join(words), "entities": entities}

    @cached_property
    def _network(self) -> Any:
        from medimg_eval.models.annotators.radgraph.network import Network

        archive, folder = (self.find(need) for need in self.needs)
        config, tokenizer = (pretrained(kind, folder, "encoder") for kind in ("AutoConfig", "AutoTokenizer"))
        try:
            return Network(read_archive(archive), config, tokenizer, self.dataset, self.on)
        except KeyError as error:
            raise UserError(f"{archive}: holds no {error}; expected the archive of a RadGraph model") from error


class RadGraphXL(RadGraph):
    """RadGraph-XL (Delbrouck et al. 2024), trained on further examinations.

    Arguments as of `RadGraph`.
    """

    archive: ClassVar[Weights] = _archive_weights("radgraph-xl.tar.gz")
    dataset: ClassVar[str] = "radgraph-xl"

    def split(self, text: str) -> list[str]:
        """Returns words as in training: runs of alphanumerics or signs.

        Escapes that some data sets leave in texts are blanks, and a few runs of signs are taken apart.
        """
        for escape, blanks in (("\\n", "  "), ("\\f", "  "), ("\\u2122", " " * 6), ("\n", " "), ('\\"', "``")):
            text = text.replace(escape, blanks)
        joined = " ".join(re.findall(r"\w+|[^\w\s]+", text))
        for run, apart in ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )")):
            joined = joined.replace(run, apart)
        return joined.split()


class ModernRadGraphXL(RadGraphXL):
    """Modern RadGraph-XL: the same reports, another encoder.

    Arguments as of `RadGraph`.
    """

    archive: ClassVar[Weights] = _archive_weights("modern-radgraph-xl.tar.gz")
    dataset: ClassVar[str] = "modern-radgraph-xl"
