"""Metrics of the transactions that this broker coordinates."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.coordinators.transactions.coordinator import TransactionCoordinator
from gateway.coordinators.transactions.states import State


def collect(coordinator: TransactionCoordinator) -> Iterator[Metric]:
    found = Counter(entry.value.state for entry in coordinator.changes.entries() if entry.value is not None)
    states = GaugeMetricFamily("tierlog_transactions", "Transactional ids by state.", labels=["state"])
    for state in State:
        if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE):
            states.add_metric([state.title], found[state])
    yield states
    for name, text, value in (
        ("timed_out", "Transactions aborted because they took too long.", coordinator.timed_out),
        ("expired", "Transactional ids forgotten because nobody used them.", coordinator.expired),
        ("markers", "Markers of decided transactions that are committed.", coordinator.changes.markers.written),
        ("markers_retried", "Markers that had to be written again.", coordinator.changes.markers.retried),
    ):
        yield CounterMetricFamily(f"tierlog_transactions_{name}_total", text, value)
