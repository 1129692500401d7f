"""A running daemon without a radio."""

import pytest
from support.station import Station


@pytest.fixture
async def station(tmp_path):
    made = Station(tmp_path / "meshai.db")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def start_station(tmp_path):
    """``await start_station(reply={...})``: a station with other settings."""
    stations = []

    async def start(**sections):
        stations.append(Station(tmp_path / f"meshai{len(stations)}.db", **sections))
        await stations[-1].start()
        return stations[-1]

    yield start
    for made in stations:
        await made.stop()
