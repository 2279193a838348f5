"""Puts the audit together: what is noted, and the task that writes it."""

from contextlib import AsyncExitStack
from importlib.metadata import version

from gateway.audit.audit import Audit
from gateway.audit.events import Origin
from gateway.audit.settings import AuditSettings
from gateway.audit.writer import AuditWriter
from gateway.http.peers.audit_events import AuditEvents
from gateway.node import Node
from hot_tier.ids import TopicId


def open_audit(parts: AsyncExitStack, node: Node, settings: AuditSettings) -> None:
    """Call it before the servers start: `parts` then stops the audit after them, so their last events are noted."""
    if not settings.enabled:
        return

    def name_of(topic_id: TopicId) -> str | None:
        found = node.image.find_topic_by_id(topic_id)
        return None if found is None else found.name

    node.audit = Audit(settings, node.clock, name_of, lambda name: name in node.image.users)
    elsewhere = AuditEvents(node)
    parts.push_async_callback(elsewhere.close)
    origin = Origin(node.node_id, version("tierlog"), f"{node.clock():x}")
    writer = AuditWriter(node.audit, settings, origin, node.image, node.admin, node.partitions, elsewhere)
    writer.start()
    parts.push_async_callback(writer.stop)
