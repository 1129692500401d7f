"""Run the measurements and print what was reached: ``python -m benchmarks [NAME ...] [--quick] [--locomo FILE]``.

Every part runs in a process of its own, one after the other. Options that the runner does not know go to the parts.
Writes benchmarks/results.json; parts that were not run keep their last figures there. Exit 1 when a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import machine, row, table

HERE = Path(__file__).parent
PARTS = ("start", "fill", "stream", "latency", "memory", "recall", "soak", "fuzz", "kill")
"""Quick ones first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts; the exit code."""
    options, rest = _parser().parse_known_args(argv)
    if options.quick:
        rest.append("--quick")
    wanted = options.names or available()
    if unknown := sorted(set(wanted) - set(available())):
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(available())}", file=sys.stderr)
        return 2
    missed = False
    for name in wanted:
        measured = measure(name, rest)
        print(table(f"{name} ({measured['took_s']:g} s)", measured["rows"]), end="\n\n", flush=True)
        missed |= any(one["ok"] is False for one in measured["rows"])
        _keep(options.output, name, measured)
    print(f"written to {options.output}")
    return int(missed)


def available() -> list[str]:
    """The parts there are."""
    return [name for name in PARTS if (HERE / f"bench_{name}.py").exists()]


def measure(name: str, options: Sequence[str]) -> dict[str, Any]:
    """One part in its own process: its rows and data, the machine and the time it took."""
    where = machine()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="meshai-bench-") as folder:
        output = Path(folder) / "result.json"
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.part", name, str(output), *options],
            cwd=HERE.parent, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if ended.returncode == 0:
            found: dict[str, Any] = json.loads(output.read_text())
        else:
            found = {"rows": [row(name, "runs", f"failed with exit code {ended.returncode}", ok=False)], "data": {}}
    if "rows" not in found:
        found = {"rows": _recall_rows(found), "data": found}
    return {**found, "machine": where, "took_s": round(time.perf_counter() - begun, 1), "options": list(options)}


def _recall_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Recall returns its own figures."""
    rows = []
    if "latency" in found:
        p95 = found["latency"]["p95_best_of_3_ms"]
        rows.append(row("recall, 100 000 messages, p95 (best of 3)", "<= 5 ms", f"{p95} ms", p95 <= 5))
    if "locomo" not in found:
        rows.append(row("recall of LoCoMo evidence", "R@10 >= 75", "give the file with --locomo FILE"))
        return rows
    own = found["locomo"]["search"]
    r10, near = own["r10"], own["evidence_1000"]
    rows.append(row("LoCoMo evidence among the first ten", ">= 75 %, aim 80", f"{r10:.1f} %", r10 >= 75))
    rows.append(row("LoCoMo evidence within 1 000 tokens", ">= 81 %, aim 88", f"{near:.1f} %", near >= 81))
    return rows


def _keep(path: Path, name: str, measured: dict[str, Any]) -> None:
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    kept[name] = {**measured, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="the smallest form of each: does it run?")
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
