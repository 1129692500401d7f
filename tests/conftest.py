"""What every test leaves as it found it."""

import logging
import os

import pytest


@pytest.fixture(autouse=True)
def process_wide_state():
    """The root and meshai loggers' levels, and the umask."""
    loggers = [logging.getLogger(), logging.getLogger("meshai")]
    before = [(logger, logger.level, logger.disabled) for logger in loggers]
    umask = os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
    for logger, level, disabled in before:
        logger.setLevel(level)
        logger.disabled = disabled
