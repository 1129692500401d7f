"""Fixtures of the configuration tests."""

import pytest

from meshai.config.loader import load_settings
from meshai.errors import ConfigError


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a file (mode 0600), load it with the given environment."""
    monkeypatch.chdir(tmp_path)

    def loading(content, /, **env):
        path = tmp_path / "config.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o600)
        return load_settings("config.yaml", env)

    return loading


@pytest.fixture
def mistakes(load):
    """The lines a wrong configuration is answered with."""

    def failing(content, /, **env):
        with pytest.raises(ConfigError) as caught:
            load(content, **env)
        assert caught.value.exit_code == 2
        return str(caught.value).split("\n")

    return failing
