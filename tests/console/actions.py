"""Everything that one can do in the console: which page offers it, by which button, and what it asks of the broker.

`test_inventory.py` compares this with the console's own code, and with what tests say that they do
(`@pytest.mark.does`). Whether they really do it, the `browser` fixture sees in what the page sends.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

API: Final = "/api/v1/"


class Action(NamedTuple):
    request: str
    """As the console's code has it; {} stands for what is put in."""
    place: str
    """Where it is offered. One that begins with * needs a broker with logins, or more than one broker."""
    button: str

    def is_sent_by(self, method: str, url: str) -> bool:
        wanted, _, path = self.request.partition(" ")
        pattern = "[^/]+".join(map(re.escape, path.split("{}")))
        return method == wanted and re.fullmatch(pattern, urlsplit(url).path.removeprefix(API)) is not None


ACTIONS: Final = {
    "make a topic": Action("POST topics", "/topics", "New topic"),
    "change a setting": Action("PATCH topics/{}", "/topics/orders/settings", "Change retention.ms"),
    "add partitions": Action("PATCH topics/{}", "/topics/orders/settings", "Add partitions"),
    "delete a topic": Action("DELETE topics/{}", "/topics/orders", "Delete"),
    "produce": Action("POST topics/{}/messages/batch", "/topics/orders/messages", "Produce"),
    "send again": Action("POST topics/{}/messages/batch", "/topics/orders/messages/0/3", "Send again"),
    "reset a group": Action("POST consumer-groups/{}/offsets/reset", "/groups/billing", "Reset offsets"),
    "delete a group": Action("DELETE consumer-groups/{}", "/groups/billing", "Delete"),
    "redrive": Action("POST consumer-groups/{}/offsets", "/groups/billing/dead-letters", "Redrive…"),
    "collect garbage": Action("POST archive/gc", "/archive", "Collect garbage"),
    "restore": Action("POST archive/restore", "/archive", "Restore…"),
    "rebalance": Action("POST cluster/rebalance", "/brokers", "Rebalance…"),
    "decommission a broker": Action("POST cluster/brokers/{}/decommission", "*/brokers", "Decommission…"),
    "take a broker back": Action("DELETE cluster/brokers/{}/decommission", "*/brokers", "Take it back…"),
    "make a user": Action("PUT users/{}/password", "*/access", "New user"),
    "change a password": Action("PUT users/{}/password", "*/access", "Password of eve"),
    "delete a user": Action("DELETE users/{}", "*/access", "Delete eve"),
    "make an API key": Action("POST api-keys", "*/access/keys", "New API key"),
    "delete an API key": Action("DELETE api-keys/{}", "*/access/keys", "Delete key 0123456789abcdef"),
    "make a rule": Action("POST acls", "*/access/rules", "New rule"),
    "remove a rule": Action("DELETE acls", "*/access/rules", "Remove the rule of User:eve for seen"),
}
QUESTIONS: Final = {"POST sql", "POST sql/estimate", "DELETE sql/queries/{}", "POST archive/verify"}
"""Requests that change nothing, and are there in a read-only console too."""
