"""How small benchmarks end: what was found is printed, and written where the command line says."""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any


def write(found: dict[str, Any], **versions: str) -> None:
    """Prints what was found with the machine and the versions of peers; also into the file named first, if any."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), **versions}
    text = json.dumps({**found, "machine": machine}, indent=2)
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")
