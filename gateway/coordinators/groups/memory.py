"""The memory that the members of a group take, counted by the address they joined from.

The driver keeps one budget for all groups. It gets every change as an effect.
"""

from gateway.coordinators.groups.member import Member
from gateway.coordinators.groups.outbox import Outbox


class Memory:
    def __init__(self, outbox: Outbox) -> None:
        self.held_bytes = 0
        """Bytes of all members. Ids that were handed out but not used yet are not included."""
        self._outbox = outbox

    def hold(self, member: Member) -> None:
        """Counts the member's present size, for the address it joined from last."""
        self.release(member)
        member.held_bytes, member.held_for = member.size_bytes, member.client_host
        self._count(member.held_for, member.held_bytes)

    def release(self, member: Member) -> None:
        self._count(member.held_for, -member.held_bytes)

    def _count(self, address: str, more_bytes: int) -> None:
        if more_bytes:
            self.held_bytes += more_bytes
            self._outbox.hold(address, more_bytes)
