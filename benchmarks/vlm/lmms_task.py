"""What lmms-eval is to ask, and where it finds the model: another harness around the same `plain.Plain`."""

from pathlib import Path
from typing import Any

TASK = """\
task: organs
dataset_path: json
dataset_kwargs: {data_files: {test: DATA/test.json}}
test_split: test
output_type: generate_until
doc_to_messages: !function lmms_task.messages
doc_to_text: text
doc_to_target: answer
process_results: !function lmms_task.judge
generation_kwargs: {max_new_tokens: 16}
metric_list: [{metric: accuracy, aggregation: mean, higher_is_better: true}]
"""


def register(folder: Path, data: Path) -> None:
    """Writes the task, and the entry point that lmms-eval finds the model by."""
    (folder / "organs.yaml").write_text(TASK.replace("DATA", str(data)), encoding="utf-8")
    package = folder / "organs-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: organs\nVersion: 1.0\n", encoding="utf-8")
    (package / "entry_points.txt").write_text("[lmms_eval.models]\nplain = lmms_task:manifest\n", encoding="utf-8")


def manifest() -> Any:
    """What the entry point names."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("plain", chat_class_path="lmms_model.Plainly")


def messages(document: dict[str, Any]) -> list[dict[str, Any]]:
    """One question as a chat."""
    from PIL import Image

    image = Image.open(document["file"]).convert("RGB")
    content = [{"type": "image", "url": image}, {"type": "text", "text": document["text"]}]
    return [{"role": "user", "content": content}]


def judge(document: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Whether the answer begins with the right letter."""
    return {"accuracy": float(results[0].strip()[:1] == document["answer"])}
