"""The members of a group, and everything that follows from their set alone.

It owns the members in the order they joined, the ids handed out but not used yet, which static instance is which
member, how many members wait for the next generation, and which protocols all of them support. It decides nothing about
states or time.

Invariants: `_instances` names members only, each instance once; `waiting` is the number of members with a join ticket;
`_supporters[p]` is the number of members that support protocol `p`. Each update costs O(1) per member.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gateway.coordinators.groups.member import Member
from gateway.coordinators.groups.messages import MemberSnapshot, Protocol, Ticket


class Roster:
    def __init__(self) -> None:
        self.pending: dict[str, str] = {}
        """Ids handed out with MemberIdRequired that have not joined yet, and the address of each."""
        self.waiting = 0
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def instance(self, instance_id: str) -> str | None:
        """Returns the id of the member that holds this `group.instance.id`."""
        return self._instances.get(instance_id)

    def add(self, member: Member) -> None:
        assert member.id not in self._members
        self._members[member.id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member.id
        self._count(member, 1)
        self.waiting += member.join_ticket is not None

    def remove(self, member: Member) -> None:
        del self._members[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._count(member, -1)
        self.waiting -= member.join_ticket is not None

    def rename(self, member: Member, new_id: str) -> None:
        self.remove(member)
        member.id = new_id
        self.add(member)

    def change_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]

    def wait_for_join(self, member: Member, ticket: Ticket) -> None:
        self.waiting += member.join_ticket is None
        member.join_ticket = ticket

    def end_wait_for_join(self, member: Member) -> None:
        self.waiting -= member.join_ticket is not None
        member.join_ticket = None

    def held_by(self, member_id: str) -> int:
        """Returns the bytes that are counted for a member; 0 if it is not in the group."""
        return self._members[member_id].held_bytes if member_id in self._members else 0

    def snapshots(self, protocol_name: str, assignments: Mapping[str, bytes] | None) -> tuple[MemberSnapshot, ...]:
        return tuple(
            member.snapshot(protocol_name, member.assignment if assignments is None else assignments[member.id])
            for member in self
        )

    def supports_any(self, protocols: tuple[Protocol, ...]) -> bool:
        """Returns whether there is a protocol among these that every member supports."""
        return any(self._supporters[name] == len(self._members) for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Returns the winner of a vote: each member votes for the first of its protocols that all support.

        The earliest member's vote breaks ties.
        """
        common = {name for name, supporters in self._supporters.items() if supporters == len(self._members)}
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self)
        return votes.most_common(1)[0][0]

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)
