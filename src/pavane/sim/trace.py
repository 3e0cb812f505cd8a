"""A simulation's events as Perfetto / Chrome trace JSON (Trace Event Format): one process a site, one thread an
engine.

Cycles stand in the microsecond fields, so one displayed microsecond is one cycle. Waits have the category "wait".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pavane.sim.engine import Event


def perfetto_json(events: Sequence[Event]) -> str:
    """Load it in ui.perfetto.dev or chrome://tracing."""
    sites = sorted({e.site for e in events}, key=lambda s: (s[1], s[0]))
    engines = sorted({(e.site, e.engine) for e in events})
    site_ids = {site: i + 1 for i, site in enumerate(sites)}
    thread_ids = {engine: i + 1 for i, engine in enumerate(engines)}
    records: list[dict[str, object]] = []
    for site in sites:
        records.append(_name("process_name", site_ids[site], 0, f"site ({site[0]}, {site[1]})"))
    for site, engine in engines:
        records.append(_name("thread_name", site_ids[site], thread_ids[site, engine], engine))
    for event in events:
        records.append(
            {
                "ph": "X",
                "name": event.name,
                "cat": event.kind,
                "pid": site_ids[event.site],
                "tid": thread_ids[event.site, event.engine],
                "ts": event.start,
                "dur": event.cycles,
                "args": {"worker": event.worker},
            }
        )
    return json.dumps({"traceEvents": records, "displayTimeUnit": "ns"})


def _name(kind: str, site: int, thread: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": site, "tid": thread, "args": {"name": name}}
