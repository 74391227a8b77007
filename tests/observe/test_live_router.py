"""A real router before two real servers: one tree of spans a call, and dashboards with data."""

from __future__ import annotations

import pytest
import routed_servers
from dashboard_files import expressions
from prometheus_program import needs_prometheus, promtool, scraping

import tiny_models
from otlp_receiver import Tree, values
from served import wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EXPRESSIONS = [e for e in expressions() if e.dashboard == "router"]


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    model = tiny_models.make_hf_folder(tmp_path_factory.mktemp("model"))
    with routed_servers.routed(model, tmp_path_factory.mktemp("router")) as found:
        yield found


def tree_of(router, call_id):
    """The router's span of a call and all beneath it, once the engine's part is there."""

    def root():
        spans = list(router.collector.spans)
        mine = [s for s in spans if values(s).get("anychip.call.id") == call_id]
        trees = [tree for tree in (Tree(spans, s) for s in mine) if "try" in tree.names]
        whole = [tree for tree in trees if "sequence" in names(tree)]
        return whole[0] if whole else None

    wait_until(lambda: root() is not None)
    return root()


def names(tree):
    return [tree.name, *(name for child in tree.children for name in names(child))]


def test_router_server_engine_and_steps_are_one_tree(router):
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    answer = router.complete("tree", headers=headers)
    assert answer.status_code == 200, answer.text
    tree = tree_of(router, "tree")
    assert tree.span.parent_span_id.hex() == PARENT.split("-")[2]
    assert tree.name == "POST /v1/completions"
    one = tree.children[-1]
    assert one.name == "try" and one.values["anychip.worker"] == answer.headers["x-anychip-worker"]
    (server,) = one.children
    assert server.name == "POST /v1/completions" and server.span.trace_state == "vendor=1"
    sequence = server.child("sequence")
    assert sequence.names == ["queue", "prefill", "decode"]
    assert sequence.child("decode").events[:2] == ["first token", "step"], "down to a step"
    told = answer.headers.get_list("traceresponse")
    assert [one.split("-")[2] for one in told] == [tree.span.span_id.hex()]
    assert {"router", "one", "two"} >= router.collector.services & {"router", "one", "two"}


def test_a_call_that_was_tried_twice_has_two_spans(router):
    seen = []
    for number in range(60):
        call_id = f"again-{number}"
        assert router.complete(call_id).status_code == 200
        seen.append(tree_of(router, call_id))
        if seen[-1].names == ["try", "try"]:
            break
    first, second = seen[-1].children
    assert first.values["anychip.worker"] == "doomed" and first.values["error.type"] == "connect"
    assert second.values["http.request.resend_count"] == 1 and second.children
    assert not first.children


def test_a_callers_decision_not_to_trace_reaches_the_engine(router):
    answer = router.complete("untraced", headers={"traceparent": PARENT[:-1] + "0"})
    assert answer.headers["traceresponse"].endswith("-00")
    router.complete("behind")
    tree_of(router, "behind")
    told = [values(span).get("anychip.call.id") for span in router.collector.spans]
    assert "untraced" not in told


@needs_prometheus
def test_every_expression_of_the_routers_dashboard_has_data(router, tmp_path):
    said = promtool("check", "metrics", text=router.metrics())
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    with scraping(tmp_path, router.target) as prometheus, routed_servers.asking(router):
        for expression in EXPRESSIONS:
            asked = expression.promql()
            prometheus.wait_for(lambda asked=asked: prometheus.values(asked), asked)
        rules = {rule["name"]: rule for rule in prometheus.rules()}
        alert = rules["AnyChipWorkerSick"]
        prometheus.wait_for(
            lambda: {r["name"]: r for r in prometheus.rules()}["AnyChipWorkerSick"]["alerts"],
            "the sick worker's alert",
        )
        assert alert["health"] in ("ok", "unknown")
