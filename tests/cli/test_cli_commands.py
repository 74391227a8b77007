"""What a person sees: help, errors and exit codes of the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from anychip.__main__ import COMMANDS, main
from anychip.config import OFFLINE, serve_parser
from anychip.flags import settings_of
from anychip.ops.record import Served
from anychip.run.coverage import CoverageReport
from anychip.settings import ServeConfig


def run_module(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_lists_every_command_in_one_line(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, text in COMMANDS.items():
        assert [line for line in lines if line.split()[:1] == [name] and text in line]


def test_no_command_is_an_error_that_shows_the_commands(capsys):
    assert main([]) == 2
    assert "serve" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("anychip 0.")


def test_unknown_command_gets_the_nearest_or_the_list(capsys):
    assert main(["serv"]) == 2
    assert "'serv'; the nearest is 'serve'" in capsys.readouterr().err
    assert main(["nonsense"]) == 2
    said = capsys.readouterr().err
    assert "nearest" not in said and all(name in said for name in COMMANDS)


def test_help_is_as_wide_as_the_terminal_and_examples_keep_their_lines(monkeypatch):
    parser = serve_parser("anychip serve", "word " * 60)
    parser.show_examples("anychip serve " + "--flag " * 30)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for columns, width in (("100", 100), ("30", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        *prose, example = parser.format_help().splitlines()
        assert width - 20 < max(len(line) for line in prose) <= width
        assert len(example) > 200 and prose[-1] == "examples:"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"usage: anychip {command}" in capsys.readouterr().out


def test_help_explains_each_flag_in_one_line_under_its_group():
    text = serve_parser("anychip serve").format_help()
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    for setting in settings_of(ServeConfig):
        flag = setting.flag
        own = [line for line in lines if flag.names and line.split()[0].strip(",") == flag.names[0]]
        assert len(own) == len(flag.names[:1])
        assert all(flag.help in line and line.startswith("  --") for line in own)
        assert not flag.names or f"\n{flag.group}:\n" in text
    assert not [line for line in lines if line.startswith("     ")], "a wrapped line"


def test_help_tells_where_sglang_differs():
    text = serve_parser("anychip serve").format_help()
    page = next(line for line in text.splitlines() if "--page-size" in line)
    assert "(SGLang: 1)" in page


@pytest.mark.parametrize("command", ["generate", "coverage", "demo"])
def test_offline_commands_refuse_the_flags_of_the_server(command, capsys):
    assert main([command, "--port", "1"]) == 2
    assert "--port is a flag of `anychip serve`" in capsys.readouterr().err


def test_offline_groups_are_groups():
    assert set(OFFLINE) < {setting.flag.group for setting in settings_of(ServeConfig)}


def test_an_error_is_one_line_on_standard_error_and_exit_code_2():
    ended = run_module("anychip", "serve", "--pp-size", "2")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("anychip: error: --pp-size is a flag of SGLang")
    assert ended.stderr.count("\n") == 1


def test_launch_server_is_serve():
    ended = run_module("anychip.launch_server", "--help")
    assert ended.returncode == 0 and "usage: anychip serve" in ended.stdout
    assert run_module("anychip.launch_server", "--tp-size", "2").returncode == 2


def test_serve_hands_its_configuration_to_the_server(monkeypatch):
    seen = []
    run = SimpleNamespace(serve=lambda config, spawned: seen.append(config) or 7)
    monkeypatch.setitem(sys.modules, "anychip.server.run", run)
    line = "--model-path X --backend cpu --host 0.0.0.0 --port 8000 --tp-size 1"
    assert main(["serve", *line.split()]) == 7
    assert seen == [ServeConfig(model_path="X", host="0.0.0.0", port=8000)]


def test_serve_without_a_model_serves_the_cached_demo(monkeypatch, tmp_path):
    from anychip.model.demo import DEMO

    file = tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.parent.mkdir()
    with file.open("wb") as sparse:
        sparse.truncate(DEMO.model_bytes)
    seen = []
    run = SimpleNamespace(serve=lambda config, spawned: seen.append(config.model_path) or 0)
    monkeypatch.setitem(sys.modules, "anychip.server.run", run)
    assert main(["serve", "--cache-dir", str(tmp_path)]) == 0
    assert seen == [str(file)]


class EngineDouble:
    """Stands for OfflineEngine: notes what it is asked for."""

    asked: tuple = ()

    def __init__(self, config, report):
        self.config = config

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def generate(self, prompts, params, chat=False):
        EngineDouble.asked = (self.config, prompts, params, chat)
        return [
            SimpleNamespace(
                text=p.upper(),
                token_ids=[1],
                finish="length" if p == "cut" else "stop",
                prompt_tokens=2,
                cached_tokens=0,
                error="too long" if p == "long" else None,
            )
            for p in prompts
        ]


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "anychip.engine.offline", SimpleNamespace(OfflineEngine=EngineDouble)
    )
    return EngineDouble


def test_generate_prints_each_answer(engine, capsys):
    line = ["generate", "--model", "M", "--backend", "fake", "--prompt", "a b", "--prompt", "c"]
    assert main([*line, "--max-new-tokens", "5", "--top-k", "3", "--seed", "9", "--chat"]) == 0
    assert capsys.readouterr().out == "--- prompt 1\nA B\n--- prompt 2\nC\n"
    config, prompts, params, chat = engine.asked
    assert (config.model_path, config.backend, prompts, chat) == ("M", "fake", ["a b", "c"], True)
    assert (params.max_tokens, params.temperature, params.top_k, params.seed) == (5, 0.0, 3, 9)


def test_generate_reads_a_file_and_prints_json(engine, capsys, tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("héllo\n")
    assert main(["generate", "--model", "M", "--prompt-file", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "HÉLLO\n" and answer["finish"] == "stop"
    assert set(answer) == {"text", "token_ids", "finish", "prompt_tokens", "cached_tokens", "error"}


def test_generate_tells_of_an_answer_that_the_context_has_cut(engine, capsys, caplog):
    line = ["generate", "--model", "M", "--prompt", "cut", "--max-new-tokens"]
    assert main([*line, "1"]) == 0 and not caplog.messages
    assert main([*line, "5"]) == 0
    assert "ends after 1 of --max-new-tokens 5: with the prompt's 2" in caplog.text


def test_generate_fails_where_the_engine_could_not_finish(engine, capsys):
    assert main(["generate", "--model", "M", "--prompt", "ok", "--prompt", "long"]) == 1
    said = capsys.readouterr()
    assert (
        said.out.split("\n")[1:4:2] == ["OK", "LONG"] and said.err == "anychip: error: too long\n"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["--prompt", ""], "--prompt: the prompt is empty"),
        (["--prompt", "a", "--prompt-file", "b"], "give one of them"),
        (["--prompt-file", "/nowhere/p"], "--prompt-file: cannot read /nowhere/p"),
        (["--prompt", "a", "--temperature", "-1"], "--temperature: -1"),
        (["--prompt", "a", "--top-p", "0"], "--top-p: 0.0"),
        (["--prompt", "a", "--top-k", "0"], "--top-k: 0"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens: 0"),
    ],
)
def test_generate_refuses_before_anything_is_loaded(engine, capsys, words, message):
    EngineDouble.asked = ()
    assert main(["generate", "--model", "M", *words]) == 2
    assert message in capsys.readouterr().err
    assert EngineDouble.asked == ()


def report(missing):
    row = Served("rms_norm", "primitive", "native", "rms_f32", 31, ("declined: bf16",))
    return CoverageReport("M", "fake", [row], missing)


@pytest.mark.parametrize("missing, code", [([], 0), (["topk"], 1)])
def test_coverage_prints_the_table_and_fails_on_missing(monkeypatch, capsys, missing, code):
    monkeypatch.setattr("anychip.run.coverage.coverage", lambda config: report(missing))
    assert main(["coverage", "--model", "M", "--backend", "fake"]) == code
    said = capsys.readouterr()
    assert "rms_norm" in said.out and "rms_f32" in said.out and "31" in said.out
    assert ("lacks topk" in said.err) == bool(missing)
    assert main(["coverage", "--model", "M", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["rows"][0]["implementation"] == "rms_f32"


def test_an_error_of_our_own_is_told_and_a_bug_keeps_its_traceback(monkeypatch, capsys):
    from anychip.model.demo import DemoError

    def fail_with(error):
        def serve(config, spawned):
            raise error

        monkeypatch.setitem(sys.modules, "anychip.server.run", SimpleNamespace(serve=serve))

    fail_with(DemoError("no network"))
    assert main(["serve", "--model", "M"]) == 1
    assert capsys.readouterr().err == "anychip: error: no network\n"
    fail_with(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        main(["serve", "--model", "M"])
