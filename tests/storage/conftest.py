from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from meshai.storage.database import Database


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "meshai.db")
    yield database
    await database.close()
