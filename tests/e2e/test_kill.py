"""The kill benchmark in small: ``kill -9`` while ten people talk with a real ``meshai run``."""

import pytest

from benchmarks.bench_kill import play


@pytest.mark.timeout(150)
async def test_kills_lose_and_double_nothing(tmp_path):
    verdict = await play(tmp_path, kills=6, seed=4)
    assert verdict["complaints"] == []
    assert (verdict["lost"], verdict["incomplete"], verdict["doubled"]) == (0, 0, 0)
    assert verdict["answered"] > 0
    assert (verdict["errors"], verdict["exit"], verdict["verify"]) == ([], 0, "hold")
