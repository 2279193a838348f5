"""What the members of a group take in memory, counted by the address they joined from.

The driver keeps one budget for all groups; it hears of every change as an effect.
"""

from gateway.coordinators.groups.member import Member
from gateway.coordinators.groups.outbox import Outbox


class Memory:
    def __init__(self, outbox: Outbox) -> None:
        self.held_bytes = 0
        """Of all members. Ids that were handed out and not used yet are not in it."""
        self._outbox = outbox

    def hold(self, member: Member) -> None:
        """Counts what the member takes now, for the address it joined from last."""
        self.release(member)
        member.held_bytes, member.held_for = member.size_bytes, member.client_host
        self._count(member.held_for, member.held_bytes)

    def release(self, member: Member) -> None:
        self._count(member.held_for, -member.held_bytes)

    def _count(self, address: str, more_bytes: int) -> None:
        if more_bytes:
            self.held_bytes += more_bytes
            self._outbox.hold(address, more_bytes)
