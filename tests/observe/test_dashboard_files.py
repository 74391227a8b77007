"""Dashboards and what brings them to Grafana, as files: no Prometheus needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from dashboard_files import CHOSEN, DEPLOY, NAMES, VARIABLES, expressions, metrics_of, panels, read

from anychip.router.metrics.catalogue import CATALOGUE as OF_ROUTERS
from anychip.server.metrics.catalogue import CATALOGUE as OF_SERVERS

KINDS = {"timeseries", "stat", "bargauge"}
UNITS = {
    *("bytes", "Bps", "s", "percentunit", "celsius", "watt", "short", "ops", "reqps"),
    "suffix: tok/s",
}
GRID = 24
EXPRESSIONS = list(expressions())
CATALOGUE = {**OF_SERVERS, **OF_ROUTERS}


def test_the_files_are_what_the_generator_writes(tmp_path):
    subprocess.run([sys.executable, DEPLOY / "grafana" / "source", tmp_path], check=True)
    for name in NAMES:
        written = (tmp_path / f"{name}.json").read_text()
        said = f"{name}.json is not current: run python deploy/grafana/source"
        assert (DEPLOY / "grafana" / f"{name}.json").read_text() == written, said
    assert sorted(path.stem for path in (DEPLOY / "grafana").glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_panels_are_whole(name):
    every = read(name)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    kinds = [(panel["type"], panel["title"]) for panel in every]
    assert len(set(kinds)) == len(kinds)
    for panel in panels(name):
        assert panel["type"] in KINDS and panel["title"] and panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
        for target in panel["targets"]:
            assert target["expr"] and target["legendFormat"]
            assert target["datasource"] == panel["datasource"]


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_lie_on_each_other(name):
    taken = set()
    for panel in read(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= GRID
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_its_variables_and_links_to_the_others(name):
    board = read(name)
    found = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(found) == ["datasource", *VARIABLES[name]]
    assert found["datasource"]["type"] == "datasource"
    for variable in VARIABLES[name]:
        assert found[variable]["includeAll"] and found[variable]["allValue"] == ".*"
        assert metrics_of(found[variable]["query"]["query"]) <= set(CATALOGUE)
    others = {f"/d/{read(other)['uid']}" for other in NAMES if other != name}
    assert {link["url"] for link in board["links"]} == others
    assert board["schemaVersion"] >= 39 and board["uid"] == f"anychip-{name}"


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_asks_for_known_metrics_of_the_chosen_servers(expression):
    asked = expression.selectors()
    assert asked
    for metric, chosen in asked:
        assert metrics_of(metric) <= set(CATALOGUE), metric
        assert CHOSEN[expression.dashboard].match(chosen), f"{metric}{{{chosen}}}"


def test_every_metric_is_on_a_dashboard_or_has_a_reason_not_to_be():
    shown = {metric for expression in EXPRESSIONS for metric in metrics_of(expression.text)}
    assert set(CATALOGUE) - shown == set(UNSHOWN)


UNSHOWN = {
    "anychip_cache_hit_ratio": "of all time; the panel shows that of the moment",
    "anychip_kv_pages": "kv_tokens shows the same",
    "anychip_host_operator_bytes_total": "the calls are shown, and are what has to be mended",
    "anychip_state_snapshots_taken_total": "the number of snapshots is shown",
    "anychip_state_snapshots_evicted_total": "the number of snapshots is shown",
    "anychip_http_requests_total": "responses are shown, which say how it went",
}


def test_grafana_is_given_the_dashboards_and_a_source():
    folder = DEPLOY / "grafana" / "provisioning"
    source = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())
    (provider,) = yaml.safe_load((folder / "dashboards" / "anychip.yaml").read_text())["providers"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    for name in NAMES:
        inside = f"{provider['options']['path']}/{name}.json"
        assert mounts[f"./grafana/{name}.json"] == inside
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    listening = "--web.listen-address=" + source["datasources"][0]["url"].removeprefix("http://")
    assert listening in services["prometheus"]["command"]


def test_nothing_listens_beyond_loopback():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert all(service["network_mode"] == "host" for service in services.values())
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--panel", "None such"], "has no panel 'None such'; it has: "),
        (["--prometheus", "http://127.0.0.1:1"], "http://127.0.0.1:1 does not answer"),
        (["--minutes", "0"], "'0' is not a whole number above 0"),
    ],
)
def test_drawing_refuses_what_is_not_there(tmp_path, words, told):
    pytest.importorskip("matplotlib")
    program, board = DEPLOY.parent / "bench" / "draw_dashboard.py", DEPLOY / "grafana/device.json"
    given = [sys.executable, program, board, "--out", tmp_path / "out.png", *words]
    said = subprocess.run(given, capture_output=True, text=True, check=False)
    assert said.returncode and told in said.stderr and "Traceback" not in said.stderr


@pytest.mark.parametrize("text", [None, "{", "{}", "[]"])
def test_drawing_refuses_what_is_no_dashboard(tmp_path, text):
    board = tmp_path / "board.json"
    if text is not None:
        board.write_text(text)
    program = DEPLOY.parent / "bench" / "draw_dashboard.py"
    given = [sys.executable, program, board, "--out", tmp_path / "out.png"]
    said = subprocess.run(given, capture_output=True, text=True, check=False)
    assert said.returncode and "Traceback" not in said.stderr
    assert "board.json is no dashboard" in said.stderr or "matplotlib" in said.stderr
