"""One part in a process of its own: ``python -m benchmarks.part NAME OUTPUT [options]``."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def run(name: str, output: Path, options: list[str]) -> None:
    """Run a part's ``main`` and write what it returns."""
    measured = importlib.import_module(f"benchmarks.bench_{name}").main(options)
    output.write_text(json.dumps(measured))


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
