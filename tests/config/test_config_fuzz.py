"""Whatever a file or a variable holds: a configuration, or mistakes that are well-formed lines. Nothing else."""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshai.config.example import example
from meshai.config.explain import all_keys
from meshai.config.loader import load_settings
from meshai.errors import ConfigError

# The same examples every time, however busy the machine is.
FUZZ = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
EXAMPLE = example()
SECTIONS = sorted({key.partition(".")[0] for key in all_keys()})
WORDS = st.sampled_from([*{part for key in all_keys() for part in key.split(".")}, "name", "api_key", "<<", "0", "x y"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def outcome(path, content, env=None):
    """Load; the mistakes' lines must name the file (or the environment) and something to do about it."""
    path.write_bytes(content)
    told, lines = (), []
    try:
        load_settings(path, env or {})
    except ConfigError as error:
        told, lines = error.mistakes, str(error).split("\n")
    for mistake, line in zip(told, lines, strict=True):
        assert line.startswith(("environment: ", f"{path}:"))
        assert line.isprintable()
        assert len(mistake.message) > 5
        assert not mistake.line or mistake.column


@FUZZ
@given(content=st.binary(max_size=300))
def test_any_bytes_are_answered(tmp_path_factory, content):
    outcome(tmp_path_factory.getbasetemp() / "bytes.yaml", content)


@FUZZ
@given(content=st.text(alphabet="ab:-#!&*[]{}'\"|>%@`,?\\ \n\t01.~<", max_size=60))
def test_any_punctuation_is_answered(tmp_path_factory, content):
    outcome(tmp_path_factory.getbasetemp() / "punctuation.yaml", content.encode())


@FUZZ
@given(data=st.dictionaries(st.sampled_from(SECTIONS), VALUES, max_size=4))
def test_any_values_are_answered(tmp_path_factory, data):
    outcome(tmp_path_factory.getbasetemp() / "values.yaml", yaml.safe_dump(data).encode())


@FUZZ
@given(at=st.integers(0, len(EXAMPLE)), cut=st.integers(0, 40), put=st.text(max_size=5))
def test_damaged_example_is_answered(tmp_path_factory, at, cut, put):
    damaged = EXAMPLE[:at] + put + EXAMPLE[at + cut :]
    outcome(tmp_path_factory.getbasetemp() / "damaged.yaml", damaged.encode("utf-8", "replace"))


@FUZZ
@given(
    env=st.dictionaries(
        st.lists(WORDS, min_size=1, max_size=5).map(lambda words: f"MESHAI_{'__'.join(words)}".upper()),
        st.text(max_size=20),
        max_size=3,
    )
)
def test_any_environment_is_answered(tmp_path_factory, env):
    env.pop("MESHAI_CONFIG", None)
    outcome(tmp_path_factory.getbasetemp() / "env.yaml", b"llm: {endpoints: 5}\nmemory: []\n", env)
    outcome(tmp_path_factory.getbasetemp() / "env.yaml", b"", env)
