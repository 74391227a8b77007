"""argv > environment > YAML > default, and what each source may say."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from anychip.config import ConfigError, ServeConfig, read_config


@pytest.fixture
def yaml_file(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "serve.yaml"
        path.write_text(text)
        return str(path)

    return write


def read(line: str = "", **environ: str) -> ServeConfig:
    return read_config(line.split(), environ)


def test_defaults():
    config = read()
    assert (config.host, config.port, config.backend) == ("127.0.0.1", 30000, "cpu")
    assert config.model_path is None and config.tp_size == 1
    assert config.max_prefill_tokens == 16384 and config.chunked_prefill_size is None
    assert config == ServeConfig()


def test_the_line_that_sglang_users_type():
    config = read("--model-path X --backend cpu --host 0.0.0.0 --port 8000 --tp-size 1")
    assert config == ServeConfig(model_path="X", host="0.0.0.0", port=8000)


@pytest.mark.parametrize("flag", ["--tp-size", "--tensor-parallel-size", "--tp"])
def test_aliases_reach_the_same_field(flag):
    assert read(f"{flag} 1").tp_size == 1


def test_model_and_base_gpu_id_are_aliases():
    config = read("--model M.gguf --base-gpu-id 3")
    assert (config.model_path, config.device_index) == ("M.gguf", 3)


def test_equal_sign_negative_number_and_switches():
    config = read(
        "--port=1 --chunked-prefill-size -1 --disable-radix-cache --skip-server-warmup=no"
    )
    assert (config.port, config.chunked_prefill_size) == (1, -1)
    assert config.disable_radix_cache and not config.skip_server_warmup


def test_each_source_wins_over_the_next(yaml_file):
    file = yaml_file("port: 1\nhost: h1\nlog_level: debug\n")
    config = read(f"--config {file} --port 3", ANYCHIP_PORT="2", ANYCHIP_HOST="h2")
    assert (config.port, config.host, config.log_level) == (3, "h2", "debug")


def test_a_switch_of_the_file_can_be_turned_off_by_a_flag(yaml_file):
    file = yaml_file("disable-radix-cache: true")
    assert read(f"--config {file}").disable_radix_cache
    assert not read(f"--config {file} --disable-radix-cache false").disable_radix_cache


def test_the_environment_may_name_the_file(yaml_file):
    assert read(ANYCHIP_CONFIG=yaml_file("page-size: 16")).page_size == 16


def test_yaml_takes_hyphens_underscores_aliases_lists_and_maps(yaml_file):
    file = yaml_file(
        "tp: 1\nmodel: M\nmax-total-tokens: 9\nchip_option: {a: 1, b: true}\nop: [x=y]\n"
    )
    config = read(f"--config {file}")
    assert (config.model_path, config.max_total_tokens) == ("M", 9)
    assert config.chip_option == {"a": "1", "b": "true"} and config.op == {"x": "y"}


def test_an_empty_file_and_an_empty_value_set_nothing(yaml_file):
    assert read(f"--config {yaml_file('')}").port == 30000
    assert read(f"--config {yaml_file('port:')}").port == 30000
    assert read(ANYCHIP_PORT="").port == 30000


def test_repeated_options_add_up():
    config = read("--chip-option a=1 --chip-option b=x=y --op rms_norm=composed")
    assert config.chip_option == {"a": "1", "b": "x=y"} and config.op == {"rms_norm": "composed"}
    assert read(ANYCHIP_CHIP_OPTION="a=1,b=2").chip_option == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "typed, meant", [("bf16", "bfloat16"), ("half", "float16"), ("float", "float32")]
)
def test_other_spellings_of_a_dtype(typed, meant):
    assert read(f"--dtype {typed}").dtype == meant


def test_cache_folder_follows_xdg():
    assert read(XDG_CACHE_HOME="/x").cache_dir == "/x/anychip"
    assert read(XDG_CACHE_HOME="relative").cache_dir == "~/.cache/anychip"
    config = read("--cache-dir /y", XDG_CACHE_HOME="/x")
    assert str(config.cache_path) == "/y" and str(config.build_path) == "/y/build"
    assert str(read("--build-dir /z").build_path) == "/z"


@pytest.mark.parametrize("name", ["SGLANG_USE_MODELSCOPE", "VLLM_USE_MODELSCOPE"])
def test_other_engines_variable_chooses_the_hub_unless_we_are_told(name):
    assert read().model_source == read(**{name: "0"}).model_source == "huggingface"
    assert read(**{name: "true"}).model_source == "modelscope"
    assert read("--model-source huggingface", **{name: "1"}).model_source == "huggingface"
    exported = read(**{name: "1", "ANYCHIP_MODEL_SOURCE": "huggingface"})
    assert exported.model_source == "huggingface"


def test_test_hooks_come_from_the_environment_alone():
    config = read(ANYCHIP_TEST_RETRACT="3", ANYCHIP_RADIX_FORCE_MISS="1")
    assert config.force_retract_every == 3 and config.force_radix_miss
    with pytest.raises(ConfigError, match="no flag --test-retract"):
        read("--test-retract 3")


def test_variables_that_are_not_ours_are_left_alone():
    links = {
        "ANYCHIP_PORT": "tcp://10.0.0.1:30000",
        "ANYCHIP_SERVICE_HOST": "10.0.0.1",
        "ANYCHIP_PORT_30000_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }
    assert read_config([], links) == ServeConfig()


def test_frozen_and_keys_are_not_shown():
    config = read("--api-key sesame --admin-api-key open")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1
    assert config.api_key == "sesame"
    assert "sesame" not in repr(config) and "open" not in repr(config)


def test_survives_the_message_format_of_the_engine_process():
    config = read("--port 5 --chip-option a=b --mem-fraction-static 0.5", ANYCHIP_TEST_RETRACT="2")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=ServeConfig) == config
