import logging
import subprocess
import sys

import pytest
from pydantic import SecretStr

from meshai.clock import SystemClock
from meshai.config.model import Endpoint, Llm, Memory, Settings, Tuning
from meshai.errors import MissingError, UsageError
from meshai.llm.keys import keys_for, scrub
from meshai.llm.places import leaves_house, shown
from meshai.llm.registry import open_model, open_summarizer


def endpoint(url="http://127.0.0.1:1/v1", name="a", **more):
    return Endpoint(name=name, base_url=url, model="m", **more)


def values(endpoints, environ):
    return [key.get_secret_value() for key in keys_for(endpoints, environ)]


def test_key_from_settings_comes_before_the_environment():
    assert values([endpoint(api_key="mine")], {"LLM_API_KEY": "shared"}) == ["mine"]


def test_key_file_may_end_with_a_newline(tmp_path):
    path = tmp_path / "key"
    path.write_text("  sk-file\r\n")
    path.chmod(0o600)
    assert values([endpoint(api_key_file=str(path))], {}) == ["sk-file"]


def test_readable_key_file_is_warned_about(tmp_path, caplog):
    path = tmp_path / "key"
    path.write_text("sk-file")
    path.chmod(0o644)
    keys_for([endpoint(api_key_file=str(path))], {})
    assert "chmod 600" in caplog.text
    assert "sk-file" not in caplog.text


def test_missing_key_file_is_named(tmp_path):
    with pytest.raises(MissingError, match="nowhere"):
        keys_for([endpoint(api_key_file=str(tmp_path / "nowhere"))], {})


@pytest.mark.parametrize(("content", "key"), [("sk-cred\n", "sk-cred"), ("", ""), ("\n", "")])
def test_systemd_credential_may_be_empty(tmp_path, content, key):
    (tmp_path / "llm_api_key").write_text(content)
    assert values([endpoint()], {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == [key]


def test_shared_key_goes_to_the_cloud_only():
    cloud, local = endpoint("https://api.example.com/v1"), endpoint(name="b")
    other = endpoint("https://other.example.org/v1", name="c")
    assert values([local, cloud, other, cloud], {"LLM_API_KEY": "k"}) == ["", "k", "", "k"]


@pytest.mark.parametrize("bad", ["sk one two", "sk\nsecond", "schlüssel"])
def test_what_is_no_key_is_refused_without_being_shown(bad):
    with pytest.raises(UsageError) as caught:
        keys_for([endpoint()], {"LLM_API_KEY": bad})
    assert bad not in str(caught.value)


def test_scrub_removes_the_key_and_leaves_the_rest():
    assert scrub("bad key sk-1!", SecretStr("sk-1")) == "bad key ***!"
    assert scrub("text", SecretStr("")) == "text"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "localhost",
        "192.168.1.5",
        "10.0.0.2",
        "[fd00::1]",
        "pi",
        "pi.local",
        "llm.lan",
        "100.100.1.2",
    ],
)
def test_private_hosts_stay_in_the_house(host):
    assert not leaves_house(f"http://{host}:8080/v1")


@pytest.mark.parametrize(
    "host", ["api.openai.com", "8.8.8.8", "[2606:4700::1111]", "local.example.com", "10.0.0.2.nip.io"]
)
def test_public_hosts_leave_the_house(host):
    assert leaves_house(f"https://{host}/v1")


def test_shown_address_has_no_secrets():
    assert shown("https://user:pw@host.example:99/v1?key=abc") == "https://host.example:99/v1"


def test_no_endpoints_means_the_offline_answerer():
    assert open_model(Settings(llm=Llm(endpoints=[])), clock=SystemClock()).is_offline


def test_address_that_is_none_is_told():
    settings = Settings(llm=Llm(endpoints=[endpoint("http://host:port/v1")]))
    with pytest.raises(UsageError, match="base_url of a"):
        open_model(settings, clock=SystemClock())


async def test_summarizer_is_the_replying_model_unless_named():
    settings = Settings()
    model = open_model(settings, clock=SystemClock())
    assert open_summarizer(settings, model, clock=SystemClock()) is model


async def test_named_summarizer_shares_the_slots():
    settings = Settings(memory=Memory(model="small"))
    model = open_model(settings, clock=SystemClock())
    summarizer = open_summarizer(settings, model, clock=SystemClock())
    assert summarizer.label == "small @ local"
    assert summarizer.slots is model.slots


@pytest.mark.parametrize(("url", "has_key"), [("http://127.0.0.1:1/v1", False), ("https://api.example.com/v1", True)])
async def test_key_of_the_replies_goes_to_no_other_summarizer(url, has_key):
    llm = Llm(endpoints=[endpoint("https://api.example.com/v1", api_key="k")])
    settings = Settings(llm=llm, memory=Memory(tuning=Tuning(base_url=url)))
    model = open_model(settings, clock=SystemClock())
    entry = open_summarizer(settings, model, clock=SystemClock()).status()["endpoints"][0]
    assert (entry["base_url"], entry["key"], entry["name"]) == (url, has_key, "summarizer")


def test_choosing_a_model_loads_no_heavy_library():
    code = (
        "import sys; from meshai.config.model import Settings; from meshai.clock import SystemClock\n"
        "from meshai.llm.registry import open_model; open_model(Settings(), clock=SystemClock())\n"
        "print(sorted({'openai', 'httpx2', 'anyio'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_libraries_log_nothing_below_a_warning(make, server):
    make(server)._seats[0].client._wire._build()
    assert logging.getLogger("openai").getEffectiveLevel() == logging.WARNING
