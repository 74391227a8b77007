"""Every way in which a setting is refused names it, its value, the limit and the way out."""

from __future__ import annotations

import pytest

from anychip.config import ConfigError, ServeConfig, read_config
from anychip.refusal import refusal
from anychip.settings import ServeConfig as Declared


def refused(line: str = "", **environ: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_config(line.split(), environ)
    return str(error.value)


LIMITS = [
    ("--port 65536", ["--port", "65536", "65535"]),
    ("--port -1", ["--port", "-1", "0"]),
    ("--port x", ["--port", "'x'", "whole number"]),
    ("--port 1.5", ["--port", "'1.5'", "whole number"]),
    ("--mem-fraction-static 1.2", ["--mem-fraction-static", "1.2", "largest value 1"]),
    ("--mem-fraction-static 0", ["--mem-fraction-static", "0.01"]),
    ("--mem-fraction-static nan", ["--mem-fraction-static", "finite"]),
    ("--watchdog-timeout inf", ["--watchdog-timeout", "finite"]),
    ("--watchdog-timeout x", ["--watchdog-timeout", "a number"]),
    ("--context-length 0", ["--context-length", "0", "2"]),
    ("--max-total-tokens 99999999999", ["--max-total-tokens", "2147483647"]),
    ("--chunked-prefill-size 0", ["--chunked-prefill-size", "-1"]),
    ("--chunked-prefill-size -2", ["--chunked-prefill-size", "-1"]),
    ("--random-seed -1", ["--random-seed", "0"]),
    ("--dtype fp8", ["--dtype", "'fp8'", "auto, float32, bfloat16, float16"]),
    ("--kv-cache-dtype fp8_e5m2", ["--kv-cache-dtype", "fp8_e5m2", "bfloat16"]),
    ("--quantization fp4", ["--quantization", "'fp4'", "w8a8_int8, q8_0", "their own tools"]),
    ("--load-format dummy", ["--load-format", "safetensors, gguf", "convert"]),
    ("--schedule-policy hrrn", ["--schedule-policy", "hrrn", "fcfs, lpm, priority"]),
    ("--radix-eviction-policy fifo", ["--radix-eviction-policy", "lru, lfu, slru, priority"]),
    ("--hicache-ratio 3", ["--hicache-ratio", "add --enable-hierarchical-cache"]),
    ("--hicache-size 4", ["--hicache-size", "add --enable-hierarchical-cache"]),
    ("--enable-hierarchical-cache --hicache-ratio 0", ["--hicache-ratio", "0.01"]),
    (
        "--enable-hierarchical-cache --disable-radix-cache",
        ["--enable-hierarchical-cache", "leave out --disable-radix-cache"],
    ),
    ("--disable-priority-preemption", ["--disable-priority-preemption", "fcfs", "priority"]),
    (
        "--schedule-policy lpm --priority-scheduling-preemption-threshold 5",
        ["--priority-scheduling-preemption-threshold", "lpm", "priority"],
    ),
    ("--schedule-policy lpm --disable-radix-cache", ["lpm", "no prefix cache"]),
    (
        "--radix-eviction-policy slru --disable-radix-cache",
        ["--radix-eviction-policy", "slru", "no prefix cache"],
    ),
    ("--log-level loud", ["--log-level", "debug, info"]),
    ("--tp-size 2", ["--tp-size", "2", "tensor parallelism is not there yet"]),
    ("--tp 2", ["--tp-size", "2", "tensor parallelism"]),
    ("--disable-radix-cache=maybe", ["--disable-radix-cache", "maybe", "true or false"]),
    ("--enable-metrics=false", ["--enable-metrics", "always on"]),
    ("--enable-cache-report false", ["--enable-cache-report", "always on"]),
    ("--chip-option fast", ["--chip-option", "fast", "NAME=VALUE"]),
    ("--op =x", ["--op", "=x", "NAME=VALUE"]),
    ("--op a=x --op a=y", ["--op", "'a'", "twice"]),
    ("--port", ["--port", "expected one argument"]),
    ("--model-path=", ["--model-path", "empty"]),
    ("extra", ["'extra'", "no flag (see"]),
    ("--op a=b c=d", ["'c=d'", "one pair after each --chip-option or --op"]),
]


@pytest.mark.parametrize("line, words", LIMITS, ids=[line for line, _ in LIMITS])
def test_limits_are_told(line, words):
    message = refused(line)
    for word in words:
        assert word in message


def test_flags_are_not_abbreviated():
    assert "no flag --por;" in refused("--por 1")


def test_a_secret_is_not_repeated_in_its_refusal():
    assert "s\x07x" not in refused("--api-key s\x07x")


SGLANG = {
    "--device": "--backend",
    "--pp-size": "--device-index",
    "--dp": "--device-index",
    "--ep-size": "--model-path",
    "--quantization-param-path": "--quantization",
    "--attention-backend": "--op",
    "--trust-remote-code": "--load-format",
    "--model-checksum": "--revision",
    "--enable-lora": "--model-path",
    "--speculative-algorithm": "--max-running-requests",
    "--disaggregation-mode": "--chunked-prefill-size",
    "--hicache-storage-backend": "--enable-hierarchical-cache",
    "--disable-cuda-graph": "--op",
    "--enable-multimodal": "--model-path",
    "--enable-mixed-chunk": "--chunked-prefill-size",
    "--enable-ssl-refresh": "--ssl-certfile",
    "--log-requests-format": "--log-level",
    "--prefill-max-requests": "--max-running-requests",
    "--tokenizer-mode": "--tokenizer-path",
}


@pytest.mark.parametrize("flag, near", SGLANG.items(), ids=list(SGLANG))
def test_flags_of_sglang_are_refused_by_name_with_the_nearest(flag, near):
    message = refused(f"{flag} x")
    assert f"{flag} is a flag of SGLang" in message
    assert near in message


def test_flags_of_sglang_are_refused_with_an_equal_sign_and_from_other_sources(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("pp-size: 2")
    assert "--pp-size is a flag of SGLang" in refused("--pp-size=2")
    assert "ANYCHIP_PP_SIZE: --pp-size is a flag of SGLang" in refused(ANYCHIP_PP_SIZE="2")
    assert f"pp-size in {file}: --pp-size is a flag of SGLang" in refused(f"--config {file}")


@pytest.mark.parametrize(
    "typed, near", [("--page-sise", "--page-size"), ("--modelpath", "--model-path")]
)
def test_a_typing_error_gets_the_nearest_of_ours(typed, near):
    assert f"there is no flag {typed}; the nearest is {near} " in refused(f"{typed} 1")


def test_a_flag_like_none_of_ours_gets_no_guess():
    assert "there is no flag --zzzzz (see --help)" in refused("--zzzzz 1")


def test_no_flag_of_ours_is_listed_as_refused():
    ours = [
        name for f in Declared.__dataclass_fields__.values() for name in f.metadata["flag"].names
    ]
    assert len(ours) > 40
    for name in ours:
        assert "is a flag of SGLang" not in refusal(name, ours)


@pytest.mark.parametrize("name", ["ANYCHIP_PORTT", "ANYCHIP_FORCE_RETRACT_EVERY"])
def test_an_unknown_variable_is_refused_by_name(name):
    assert name in refused(**{name: "1"})


@pytest.mark.parametrize("name", ["ANYCHIP_WORKER", "ANYCHIP_POLICY", "ANYCHIP_RETRIES"])
def test_a_variable_of_the_router_is_left_to_it(name):
    assert read_config([], {name: "whatever it may be"}) == read_config([], {})
    assert f"{name}S" in refused(**{f"{name}S": "1"}), "of nobody"


def test_a_wrong_variable_is_named():
    assert refused(ANYCHIP_PORT="70000").startswith("ANYCHIP_PORT: 70000 is over")
    assert "set twice" in refused(ANYCHIP_MODEL="a", ANYCHIP_MODEL_PATH="b")


YAML = [
    ("port: 70000", "port in"),
    ("port: true", "'true' is not a whole number"),
    ("port: [1]", "wants one value"),
    ("portt: 1", "nearest is --port"),
    ("- port", "flag: value"),
    ("port: 1\n  host: 2", "not YAML"),
    ("port: 1\nport_: [", "not YAML"),
    ("1: 2", "a key is a flag's name"),
    ("model: a\nmodel-path: b", "set twice"),
    ("page-size: 1\npage_size: 1", "set twice"),
    ("config: other.yaml", "cannot name another"),
    ("host: !!python/object/apply:os.getpid []", "not YAML"),
    ("test_retract: 2", "no flag"),
    ("disable_radix_cache: 2", "true or false"),
]


@pytest.mark.parametrize("text, words", YAML, ids=[text.split("\n")[-1] for text, _ in YAML])
def test_yaml_errors_name_key_and_file(tmp_path, text, words):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    message = refused(f"--config {file}")
    assert words in message and str(file) in message


def test_yaml_that_cannot_be_read(tmp_path):
    assert "No such file" in refused(f"--config {tmp_path}/none.yaml")
    assert "--config: cannot read" in refused(f"--config {tmp_path}")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not YAML" in refused(f"--config {tmp_path}/b.yaml")


def test_values_are_checked_however_the_object_is_made():
    with pytest.raises(ConfigError, match="--port: 70000"):
        ServeConfig(port=70000)


@pytest.fixture
def homeless(monkeypatch):
    """A user id that the password file does not know, and no HOME."""

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_without_a_home_folder_the_cache_asks_for_a_path(homeless):
    for name in ("cache_path", "build_path"):
        with pytest.raises(ConfigError, match=r"--cache-dir: ~/.cache/anychip: the home folder"):
            getattr(ServeConfig(), name)
    assert str(ServeConfig(cache_dir="/c").build_path) == "/c/build"


@pytest.mark.parametrize(
    "flag", ["--model-path", "--tokenizer-path", "--chat-template", "--build-dir", "--config"]
)
def test_without_a_home_folder_paths_in_it_are_refused_by_name(homeless, flag):
    assert refused(f"{flag} ~/x").startswith(f"{flag}: ~/x: the home folder of ~ is not known")


@pytest.mark.parametrize(
    ("flag", "ours"),
    [("--max-model-len", "--context-length"), ("--max-num-seqs", "--max-running-requests")],
)
def test_a_flag_of_vllm_is_told_by_its_name_here(flag, ours):
    with pytest.raises(ConfigError, match=f"{flag} is a flag of vLLM; here it is {ours}"):
        read_config([flag, "1"])
