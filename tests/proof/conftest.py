"""Worlds for proofs, and the fault matrix at the end of a run."""

import itertools
from contextlib import AsyncExitStack

import pytest
from support.proof_world import ProofWorld, patient_model

MATRIX = pytest.StashKey[dict]()


@pytest.fixture(autouse=True)
def _patient_model(monkeypatch):
    patient_model(monkeypatch)


@pytest.fixture
async def build(tmp_path):
    """``await build(people=2, reply={...})``: a world with settings of one's own, connected."""
    numbers = itertools.count()
    async with AsyncExitStack() as stack:

        async def make(**more):
            path = tmp_path / f"w{next(numbers)}"
            path.mkdir()
            world = await stack.enter_async_context(ProofWorld(path, **more))
            await world.up()
            return world

        yield make


@pytest.fixture
def matrix(request):
    """Where the fault matrix is written down: {(fault, moment): outcome}."""
    return request.config.stash.setdefault(MATRIX, {})


def pytest_terminal_summary(terminalreporter, config):
    """Print the fault matrix: what became of a question, by fault and moment."""
    table = config.stash.get(MATRIX, {})
    if not table:
        return
    faults = list(dict.fromkeys(fault for fault, _ in table))
    moments = list(dict.fromkeys(moment for _, moment in table))
    terminalreporter.section("fault matrix: fault x moment")
    widths = [max(len(m), *(len(table.get((f, m), "")) for f in faults)) for m in moments]
    first = max(map(len, faults))
    terminalreporter.line("  ".join([" " * first, *(m.ljust(w) for m, w in zip(moments, widths, strict=True))]))
    for fault in faults:
        cells = [table.get((fault, m), "").ljust(w) for m, w in zip(moments, widths, strict=True)]
        terminalreporter.line("  ".join([fault.ljust(first), *cells]))
