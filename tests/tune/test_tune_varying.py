"""What can be varied: checked as flags of serve are, refused by name."""

from __future__ import annotations

import pytest

from anychip.bench.tune.command import replaced, words_of
from anychip.bench.tune.varying import asked_values, variables
from anychip.config import ConfigError, ServeConfig, bare_environment

CHOSEN = {"max_running_requests": 64, "chunked_prefill_size": 1024}


def varied(asked, window=20, **given):
    config = ServeConfig(**given)
    resolved = {**CHOSEN, **{key: given[key] for key in CHOSEN if key in given}}
    return variables(asked_values(asked, config), config, window, resolved)


def test_two_flags_are_always_varied() -> None:
    running, chunk = varied({})
    assert (running.flag, running.base) == ("--max-running-requests", "64")
    assert running.values == ("1", "2", "4", "8", "16")
    assert (chunk.flag, chunk.base, chunk.values) == ("--chunked-prefill-size", "1024", ("512",))


def test_512_and_1024_stay_among_the_chunks() -> None:
    assert varied({"chunked-prefill-size": "256"})[1].values == ("256", "512")
    assert varied({}, chunked_prefill_size=2048)[1].values == ("512", "1024")


def test_other_flags_are_added_where_they_are_asked_for() -> None:
    asked = {"--page-size": "16,64", "disable_radix_cache": "true", "schedule-policy": "lpm"}
    found = {each.flag: each for each in varied(asked)}
    assert found["--page-size"].values == ("16", "64")
    assert found["--page-size"].base == "default"
    assert found["--disable-radix-cache"].values == ("true",)
    assert found["--disable-radix-cache"].base == "false"
    assert found["--schedule-policy"].base == "fcfs"


def test_what_was_asked_for_takes_the_place_of_powers_of_two() -> None:
    assert varied({"max-running-requests": "8,24,64"})[0].values == ("8", "24")


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("tp-size", "1,2", "tensor parallelism is not there yet"),
        ("tp-size", "1", "it is 1 already, so there is nothing to compare"),
        ("page-size", "16,x", "'x' is not a whole number"),
        ("page-size", "0", "under the least value 1"),
        ("schedule-policy", "best", "is not one of fcfs"),
        ("chunked-prefill-size", "0", "0 is not a size"),
        ("hicache-ratio", "2", "nothing is kept in host memory"),
        ("model-path", "a,b", "every run has the same model"),
        ("backend", "cpu,fake", "every run has the same chip"),
        ("port", "1,2", "tune starts its servers itself"),
        ("api-key", "a,b", "nothing to do with speed"),
        ("log-level", "info", "nothing to do with speed"),
        ("record", "kept.jsonl", "nothing to do with speed"),
        ("chip-option", "a=1", "NAME=VALUE pairs"),
        ("page-sise", "16", "the nearest is --page-size"),
        ("mem-frac", "0.5", "there is no flag --mem-frac"),
    ],
)
def test_what_cannot_be_varied_is_refused_by_name(name, values, said) -> None:
    with pytest.raises(ConfigError, match="--vary") as refused:
        varied({name: values})
    assert said in str(refused.value)


def test_a_flag_by_two_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match="--vary: --page-size is given twice"):
        varied({"page-size": "1", "--page-size": "2"})


def test_words_are_what_differs_from_the_defaults() -> None:
    config = ServeConfig(
        model_path="m",
        chip_option={"memory": "1G", "watchdog": "2"},
        disable_radix_cache=True,
        api_key="secret",
        port=5,
        record="file",
        log_level="debug",
        max_concurrent_requests=7,
    )
    words = words_of(config)
    assert sorted(words[words.index("--chip-option") :: 2])[0] == "--chip-option"
    assert set(words) == {
        "--model-path", "m", "--chip-option", "memory=1G", "watchdog=2", "--disable-radix-cache",
        "--max-concurrent-requests", "7",
    }  # fmt: skip


def test_a_flag_stands_once() -> None:
    base = ("--a", "1", "--switch", "--b", "2")
    assert replaced(base, [("--a", "5"), ("--c", "-1")]) == (
        "--a", "5", "--switch", "--b", "2", "--c", "-1",
    )  # fmt: skip
    assert replaced(base, [("--switch", "false")])[2:4] == ("--switch", "false")
    assert replaced(("--switch",), [("--switch", "false")]) == ("--switch", "false")


def test_servers_get_no_settings_from_the_environment() -> None:
    assert bare_environment({"ANYCHIP_API_KEY": "k", "PATH": "/bin"}) == {"PATH": "/bin"}
