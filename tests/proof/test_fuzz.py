"""Whatever a node hands over: no exception, no line in the error log, no growth, and the bot still answers.

20 000 frames here; ``python -m benchmarks.bench_fuzz`` runs 100 000.
"""

import logging

import pytest
from support.fuzz_run import NODE, Fuzz
from support.station import Station

FRAMES = 10_000


@pytest.mark.parametrize("require_pki", [True, False], ids=["pki only", "everybody"])
async def test_no_frame_breaks_the_receive_path(tmp_path, caplog, require_pki):
    """M2, M10, M15, A11: from bytes through library, decoder, reception and inbox into a real database."""
    caplog.set_level(logging.ERROR)
    station = Station(tmp_path / "meshai.db", channels=[{"name": "bot"}], access={"require_pki": require_pki})
    station.link.node = NODE
    await station.start()
    try:
        fuzz = Fuzz(station, seed=20 + require_pki)
        await fuzz.run(FRAMES // 5)
        before = fuzz.weight()
        await fuzz.run(FRAMES)
        assert fuzz.errors == []
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
        assert fuzz.parsed > 0.85 * FRAMES, "most frames must get past protobuf"
        assert fuzz.values > 0.5 * FRAMES, "most frames must get past the decoder"
        await fuzz.check_tables()
        fuzz.check_growth(before)
        assert await fuzz.still_answers()
    finally:
        await station.stop()
