"""CheXbert: 14 observations of a chest X-ray's report, and the similarity of two reports by its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from medimg_eval.errors import UserError, import_optional
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.reports import CHEXPERT_14
from medimg_eval.models.annotators.base import Annotator, PairAnnotator, TextAnnotator
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import encoded, in_one_line, pretrained, tokenizer_of

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 512
"""Word pieces that it reads, the two at the ends among them."""

FILE = "chexbert.pth"

STATES = 4
"""Classes of every observation but No Finding, which is there or not."""

DIGITS = 6
"""What is kept of a similarity: the rest depends on what else is in the batch."""

_CHECKPOINT = Weights(
    argument="weights",
    what="chexbert.pth, the published checkpoint with `model_state_dict`",
    source="StanfordAIMI/RRG_scorers on the Hugging Face hub",
    licence="that of stanfordmlgroup/CheXbert (LICENSE.pdf): research, commercial use restricted",
    files=(FILE,),
)
_VOCABULARY = Weights(
    argument="vocabulary",
    what="config.json and vocab.txt of bert-base-uncased",
    source="google-bert/bert-base-uncased on the Hugging Face hub",
    licence="Apache-2.0",
    files=("config.json", "vocab.txt"),
)


class _CheXbertModel(Annotator):
    """The network, loaded when it is first asked.

    Args:
        weights: the checkpoint: a file, a folder that holds `chexbert.pth`, or `owner/name:file` of the hub's cache.
        vocabulary: the folder or repository that holds BERT's `config.json` and `vocab.txt`.
        device: "auto" takes a GPU where there is one.
        preferred_batch: texts at once.
    """

    needs: ClassVar[Sequence[Weights]] = (_CHECKPOINT, _VOCABULARY)
    file_arguments: ClassVar[tuple[str, ...]] = ("weights", "vocabulary")

    def __init__(
        self,
        weights: str | None = "StanfordAIMI/RRG_scorers:chexbert.pth",
        vocabulary: str | None = "google-bert/bert-base-uncased",
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.weights, self.vocabulary = weights, vocabulary
        self.device, self.preferred_batch = device, preferred_batch

    def vectors(self, texts: Sequence[str]) -> tuple[Tensor, list[bool]]:
        """Returns first vectors of the last layer (text, feature); texts cut."""
        import torch

        network, tokenizer = self._loaded
        inputs, cut = encoded(tokenizer, [" ".join(text.split()) for text in texts], LONGEST, network["bert"].device)
        with torch.inference_mode():
            return network["bert"](**inputs).last_hidden_state[:, 0], cut

    def states(self, vectors: Tensor) -> list[list[int]]:
        """Returns the class of each observation, in the order of `CHEXPERT_14`: (text, observation)."""
        import torch

        with torch.inference_mode():
            heads = self._loaded[0]["linear_heads"]
            return torch.stack([head(vectors).argmax(dim=1) for head in heads], dim=1).tolist()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        folder, file = self.find(_VOCABULARY), self.find(_CHECKPOINT)
        network = _load_network(folder, _read_parameters(file / FILE if file.is_dir() else file), file)
        return network.to(self.on).eval(), tokenizer_of(folder)


class CheXbert(_CheXbertModel, TextAnnotator):
    """CheXbert's 14 observations: 0 blank, 1 positive, 2 negative, 3 uncertain.

    No Finding is 1 or 0. An empty text is not read: all is blank; `cut` stands beside them where only a part was read.
    Smit et al. 2020; the network is BERT base with a linear layer for each observation.
    """

    def annotate(self, texts: Sequence[str]) -> Sequence[dict[str, Any]]:
        """Reads a batch; raises UserError where the weights cannot be used."""
        written = [text for text in texts if text.strip()]
        vectors, cut = self.vectors(written) if written else (None, [])
        read = iter(zip([] if vectors is None else self.states(vectors), cut, strict=True))
        annotations = []
        for text in texts:
            states, long = next(read) if text.strip() else ([0] * len(CHEXPERT_14), False)
            annotations.append({**dict(zip(CHEXPERT_14, states, strict=True)), **_cut_mark(long)})
        return annotations


class CheXbertSimilarity(_CheXbertModel, PairAnnotator):
    """Similarity of reports: `cosine` in [-1, 1]; `cut` for truncated ones.

    An empty text is not read, and has 0 with any other.
    """

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> Sequence[dict[str, Any]]:
        """Compares a batch; raises UserError where the weights cannot be used."""
        from torch.nn.functional import cosine_similarity

        written = [pair for pair in pairs if all(text.strip() for text in pair)]
        if not written:
            return [{"cosine": 0.0} for _ in pairs]
        vectors, cut = self.vectors([text for pair in written for text in pair])
        cosines = cosine_similarity(vectors[0::2].double(), vectors[1::2].double()).clamp(-1, 1).tolist()
        read = iter(zip(cosines, cut[0::2], cut[1::2], strict=True))
        similarities = []
        for pair in pairs:
            cosine, *long = next(read) if all(text.strip() for text in pair) else (0.0, False)
            similarities.append({"cosine": round(cosine, DIGITS), **_cut_mark(any(long))})
        return similarities


def _cut_mark(long: bool) -> dict[str, bool]:
    return {"cut": True} if long else {}


def _read_parameters(file: Path) -> Mapping[str, Any]:
    """The checkpoint's tensors, named as without the wrapper for several GPUs."""
    import torch

    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
        state = saved["model_state_dict"]
        return {str(name).removeprefix("module."): tensor for name, tensor in state.items()}
    except Exception as error:  # a file can be anything
        message = in_one_line(error)
        raise UserError(f"{file}: is no CheXbert checkpoint with `model_state_dict` ({message})") from error


def _load_network(folder: Path, state: Mapping[str, Any], file: Path) -> Any:
    from torch import nn

    transformers = import_optional("transformers")
    config = pretrained("AutoConfig", folder, "encoder")
    heads = [nn.Linear(config.hidden_size, STATES) for _ in CHEXPERT_14[:-1]]
    heads.append(nn.Linear(config.hidden_size, 2))
    network = nn.ModuleDict({"bert": transformers.BertModel(config), "linear_heads": nn.ModuleList(heads)})
    try:
        mismatch = network.load_state_dict(state, strict=False)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(f"{file}: does not fit the BERT of {folder} ({reason})") from error
    # Some versions of transformers stored the numbers of positions, which are no parameters.
    strange = [name for name in mismatch.unexpected_keys if not name.endswith("position_ids")]
    if mismatch.missing_keys or strange:
        complaint = (
            f"lacks {mismatch.missing_keys[0]}"
            if mismatch.missing_keys
            else f"holds {strange[0]}, which CheXbert has not"
        )
        raise UserError(f"{file}: {complaint}; expected bert.* and linear_heads.0 to linear_heads.13")
    return network
