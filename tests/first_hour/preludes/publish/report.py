"""A run of a task, and where figures go."""

from pathlib import Path

import medimg_eval as me

folder = next(Path("runs").rglob("manifest.json")).parent
task, paper = me.load_task("brain_tissue"), Path("paper")
