"""docs/metrics.md out of the catalogue, and of the router's, which a server knows nothing of. Its
last section needs chips: bench/chip_figures.py writes the whole page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anychip.http.metric import Metric
from anychip.server.metrics.aliases import ALIASES, CONSTANT, Alias
from anychip.server.metrics.catalogue import TABLES

INTRODUCTION = """\
# Metrics

Every series of `GET /metrics`, written out of `src/anychip/server/metrics/catalogue.py` and, for \
`anychip router`, `src/anychip/router/metrics/catalogue.py`; a test holds this page to both.

* Every series of a server has the labels `model_name` (the name that the model is served under) \
and `chip`; the tables name those beside them. Units are Prometheus' base units; `1` means that \
it counts.
* The engine process sends its figures with a step, at most every 0.2 s, and before it rests; the \
device is read by a thread beside its loop every `--telemetry-interval` seconds. \
`anychip_snapshot_age_seconds` says how old what you see is.
* A chip's pool and copies are read by the thread that drives its queue, at most once a second and \
only while steps run: nothing changes them otherwise.
* One of `--operator-timing-interval` steps (512; 0: none) runs call by call, with a wait after \
each, to time its operators: their times hold the wait, and a captured step is unrolled for it. \
Tokens are the same. Read them as shares, not as what a step takes.
* Counters of the engine process begin again at 0 when it is restarted, which Prometheus' `rate` \
knows how to read.
* A failure to take a figure never touches a request: it is counted \
(`anychip_telemetry_errors_total`), and the first is logged.
* When weights and KV cache take more than 85 % of the device's memory the log says so at the \
start; `anychip_device_memory_committed_ratio` has the share.
"""

ALIASED = """\
## Names of other engines

`--metrics-alias sglang`, `vllm` or `sglang,vllm` also exports these, for dashboards that read \
them. What has no true counterpart here is left out. Labels: `model_name`, `chip`, those below, \
and `engine="0"` where vLLM's have it; `is_streaming` and the ranks of SGLang's are not there. \
`promtool check metrics` complains about their colons, which those engines chose.
"""


def page(further: Mapping[str, Iterable[Metric]]) -> str:
    """The page, without what each chip tells. further: tables by their titles, told behind the
    server's own."""
    parts = [INTRODUCTION]
    for title, table in {**TABLES, **further}.items():
        parts.append(f"## {title}\n\n" + "".join(_rows(table)))
    parts.append(ALIASED)
    for engine, aliases in ALIASES.items():
        parts.append("".join(_alias_rows(engine, aliases)))
    return "\n".join(parts)


def _rows(table: Iterable[Metric]) -> Iterator[str]:
    yield "| name | kind | unit | labels | meaning |\n|---|---|---|---|---|\n"
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        absent = f" Absent where {metric.absent}." if metric.absent else ""
        yield (
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | "
            f"{metric.help}{absent} |\n"
        )


def _alias_rows(engine: str, aliases: Iterable[Alias]) -> Iterator[str]:
    yield f"| {engine} | labels | here |\n|---|---|---|\n"
    for alias in aliases:
        names = [*alias.labels.values(), *CONSTANT[engine]]
        labels = ", ".join(f"`{name}`" for name in names)
        only = "".join(f"; {label} {', '.join(few)}" for label, few in alias.only.items())
        pages = "; in tokens" if alias.pages else ""
        note = f"; {alias.note}" if alias.note else ""
        yield f"| `{alias.name}` | {labels} | `{alias.source}`{only}{pages}{note} |\n"
