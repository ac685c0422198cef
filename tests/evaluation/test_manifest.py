"""The manifest's fields are documented where they are declared, and the page of runs says the same."""

import ast
from pathlib import Path
from typing import get_type_hints

from medimg_eval.evaluation import manifest

ROOT = Path(__file__).parents[2]


def test_the_page_of_runs_has_a_row_for_each_field_of_the_manifest():
    tree = ast.parse(Path(manifest.__file__).read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Manifest")
    said = {field.target.id: sentence.value.value for field, sentence in zip(body[1::2], body[2::2], strict=True)}
    assert list(said) == list(get_type_hints(manifest.Manifest))
    page = (ROOT / "docs" / "start" / "runs.md").read_text(encoding="utf-8")
    assert [
        line for line in page.splitlines() if line in {f"| `{name}` | {text} |" for name, text in said.items()}
    ] == [f"| `{name}` | {text} |" for name, text in said.items()]
