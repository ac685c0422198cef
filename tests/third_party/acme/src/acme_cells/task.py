"""The family: what is asked, how an answer is judged, and what is shown of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from acme_cells.counts import Count, CountFiles, content_of
from acme_cells.metrics import CountPair
from medimg_eval.case import Prompt
from medimg_eval.codecs import Codec
from medimg_eval.errors import CaseError
from medimg_eval.evidence import EMPTY, Subject
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.panels import Extracted, Panel
from medimg_eval.tasks import Task
from medimg_eval.tasks.base import NOBODY


@dataclass(frozen=True, kw_only=True)
class CellCountTask(Task):
    """Cells to be counted; counts of more than `most` are refused."""

    most: int = 1000

    capability: ClassVar[str] = "count_cells"
    codec: ClassVar[Codec] = CountFiles()
    judges: ClassVar[frozenset] = frozenset({"cell count"})
    noun: ClassVar[str] = "fields"
    output: ClassVar[str] = "numbers of cells"

    def prompt(self, case, images):
        return Prompt(case.id, images)

    def accept(self, case, answer, *, what="prediction"):
        if not isinstance(answer, Count) or answer.cells > self.most:
            raise CaseError(f"case {case.id!r}: the {what} is {answer}, expected at most {self.most} cells")
        return answer

    def subjects(self, need, cases, predictions, evidence):
        for case in cases:
            if need.kind == "features":
                (field,) = case.images
                yield Subject(f"{case.id}/picture", content_of(field.path), lambda field=field: field)
                continue
            said = self._read(predictions.get(case.id))
            remarks = {f"reference/{case.id}": case.target.read().remark, case.id: getattr(said, "remark", None)}
            for owner, text in remarks.items():
                if text is not None:
                    yield Subject(owner, text, lambda text=text: text, len(text))

    def score(self, case, prediction, metrics=None, context=EMPTY):
        owners = {"reference": f"reference/{case.id}", "remark": case.id, "picture": f"{case.id}/picture"}
        pair = CountPair(
            case.target.read(),
            self._read(prediction),
            lambda provider, part: context.evidence.of(provider, owners[part]),
        )
        names = self.case_metrics if metrics is None else metrics
        return [LabelScore("cells", name, parse(name)[0].function(pair), "present") for name in names]

    def worst(self, case, context=EMPTY):
        return [LabelScore("cells", name, parse(name)[0].worst, "failed") for name in self.case_metrics]

    def signature(self, provenance: Mapping[str, str] = NOBODY):
        asked = dict.fromkeys(need.provider for need in self.requirements())
        return "; ".join(["cells of any size", *(f"{who}: {provenance[who]}" for who in asked if who in provenance)])

    def panels(self, case):
        images = [panel for panel in super().panels(case) if panel.kind == "image"]
        return [*images, Panel("text", "Counted by hand", lambda: str(case.target.read()))]

    def answer_panels(self, case, prediction):
        answer = self._read(prediction)
        return [
            Panel("extraction", "Counted", lambda: Extracted(str(answer), "as it was given")),
            Panel("alone", "Bright pixels", lambda: np.float32(case.images[0].read().array[:1] > 100)),
        ]

    def _read(self, prediction):
        return self.codec.read(prediction) if isinstance(prediction, Path) else prediction
