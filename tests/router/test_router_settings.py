"""The flags of a router: what they come to, and what is refused by name."""

from __future__ import annotations

import pytest

from anychip.__main__ import main
from anychip.cli.router import add_arguments
from anychip.config import ConfigError, ServeConfig, parse_router
from anychip.engine.messages import StartError
from anychip.flags import settings_of
from anychip.router.policies import POLICIES
from anychip.router.run import _warnings
from anychip.router.worker_keys import read_worker_key, worker_tls
from anychip.settings import RouterConfig
from anychip.settings.router import WorkerPlace

ONE = ["--worker", "a=http://h:1"]


def read(*argv: str, **environ: str) -> RouterConfig:
    return parse_router(add_arguments(), argv, environ)


def test_workers_by_name_and_by_address():
    config = read(
        *ONE, "--worker-urls", "http://h:2/v1", "https://g/x/", "--worker-tags", "a=big+slow",
        "--worker-weight", "a=2.5",
    )  # fmt: skip
    assert config.places == (
        WorkerPlace("a", "http://h:1", ("big", "slow"), 2.5),
        WorkerPlace("h:2", "http://h:2"),
        WorkerPlace("g/x", "https://g/x"),
    )


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "router.yaml"
    file.write_text("worker: {c: 'http://h:3'}\nretries: 7\nrule: ['choices>1: c']\nport: 4\n")
    config = read("--config", str(file), "--retries", "1", ANYCHIP_PORT="5", ANYCHIP_RETRIES="3")
    assert (config.retries, config.port, config.rule) == (1, 5, ("choices>1: c",))
    config = read(
        ANYCHIP_WORKER="a=http://h:1,b=http://h:2", ANYCHIP_RULE="choices>1: a; stream=true: b"
    )
    assert [one.name for one in config.places] == ["a", "b"]
    assert config.rule == ("choices>1: a", "stream=true: b")


def test_variables_of_the_server_do_not_disturb():
    assert read(*ONE, ANYCHIP_MODEL_PATH="x", ANYCHIP_CACHE_DIR="/c").retries == 2
    assert read(*ONE, ANYCHIP_TEST_RETRACT="2").retries == 2
    with pytest.raises(ConfigError, match="ANYCHIP_RETRYS"):
        read(*ONE, ANYCHIP_RETRYS="1")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--worker: there is no server"),
        ([*ONE, *ONE], "'a' is given twice"),
        ([*ONE, "--worker", "b=http://h:1/v1"], "b and a are the same server"),
        ([*ONE, "--worker-urls", "http://h:1"], "the same server"),
        (["--worker-urls", "http://h:1", "http://h:1"], "given twice"),
        (["--worker", "http://h:1"], "is not NAME=VALUE: it needs a name"),
        (["--worker", "a b=http://h:1"], "'a b' is no name"),
        (["--worker", "a=h:1"], "no address"),
        (["--worker-urls", "http://h:x"], "no address such as http://127.0.0.1:30000 (Port"),
        (["--worker-urls", "http://h:1,http://h:2"], "put spaces between"),
        (["--worker", "a=http://u:p@h:1"], "goes into --worker-api-key-file"),
        ([*ONE, "--worker-tags", "b=x"], "no worker 'b'; workers: a"),
        ([*ONE, "--worker-tags", "a=x+"], "'' is no tag"),
        ([*ONE, "--worker-weight", "a=0"], "'0' is no weight"),
        ([*ONE, "--worker-weight", "a=nan"], "'nan' is no weight"),
        ([*ONE, "--worker-ca-certs", "f"], "no worker is asked over https"),
        ([*ONE, "--rule-fallback", "any"], "there is no rule"),
        ([*ONE, "--policy", "best"], "'best' is not one of cache_aware"),
        ([*ONE, "--policy", "random", "--cache-threshold", "0.5"], "for --policy cache_aware"),
        ([*ONE, "--retries", "-1"], "under the least value 0"),
        ([*ONE, "--health-check-interval-s", "0"], "under the least value"),
        ([*ONE, "--model-path", "m"], "--model-path is a flag of `anychip serve`"),
        ([*ONE, "--trace-sample", "0.5"], "nothing is traced"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_name(argv, told):
    with pytest.raises(ConfigError) as refused:
        read(*argv)
    assert told in str(refused.value)


def test_a_threshold_in_calls_as_sglang_counts_them_is_warned_of():
    assert not _warnings(read(*ONE, "--balance-abs-threshold", "1"), True, False)
    told = _warnings(read(*ONE, "--balance-abs-threshold", "64"), True, False)
    assert "--balance-abs-threshold 64 is in windows of a worker, not in calls" in told[0]


@pytest.mark.parametrize("rule", ["choices>1: b", "nonsense", "choices>1: @t"])
def test_a_rule_about_nobody_ends_the_start_with_one_line(rule, capsys):
    assert main(["router", *ONE, "--rule", rule]) == 2
    assert capsys.readouterr().err.startswith("anychip: error: --rule:")


def test_help_has_a_line_for_every_flag_and_the_words_of_the_server():
    text = add_arguments().format_help()
    served = {setting.field: setting.flag for setting in settings_of(ServeConfig)}
    for setting in settings_of(RouterConfig):
        assert f"  {setting.flag.names[0]}" in text and "\n" not in setting.flag.help
        if setting.field in served and setting.field != "random_seed":
            assert served[setting.field] is setting.flag, "declared once"


def test_the_policies_of_the_flag_are_those_that_there_are():
    policy = next(one for one in settings_of(RouterConfig) if one.field == "policy")
    assert policy.flag.choices == tuple(POLICIES)


def test_files_of_keys_and_certificates_are_looked_through(tmp_path):
    key = tmp_path / "key"
    secure = ["--worker", "a=https://h:1", "--worker-ca-certs", str(key)]
    config = read(*secure, "--worker-api-key-file", str(key))
    for wrong in (read_worker_key, worker_tls):
        with pytest.raises(StartError, match="cannot be read"):
            wrong(config)
    for text, mode, told in (
        ("k", 0o644, "others may open it"),
        ("two words", 0o600, "2 words"),
        ("", 0o600, "0 words"),
        ("\xfc", 0o600, "ASCII"),
    ):
        key.write_text(text)
        key.chmod(mode)
        with pytest.raises(StartError, match=told):
            read_worker_key(config)
    with pytest.raises(StartError, match="no PEM certificate"):
        worker_tls(config)
    key.write_text(" word \n")
    assert read_worker_key(config) == "word"
    assert read_worker_key(read(*ONE)) is None and worker_tls(read(*ONE)) is None
