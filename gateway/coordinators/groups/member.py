"""One member of a group: its identity, its protocols, its assignment, and the answers that it waits for."""

from dataclasses import dataclass

from gateway.coordinators.groups.messages import (
    MEMBER_BYTES,
    JoinRequest,
    MemberMetadata,
    MemberSnapshot,
    Protocol,
    Ticket,
)


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """The member has not been in any generation yet. It may not know its id, so it cannot send heartbeats."""
    held_bytes: int = 0
    """The bytes that were counted last for this member; `held_for` is the address they were counted for."""
    held_for: str = ""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> "Member":
        return cls(
            id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def restored(cls, snapshot: MemberSnapshot, protocol_name: str) -> "Member":
        return cls(
            id=snapshot.member_id,
            instance_id=snapshot.instance_id,
            client_id=snapshot.client_id,
            client_host=snapshot.client_host,
            session_timeout_ms=snapshot.session_timeout_ms,
            rebalance_timeout_ms=snapshot.rebalance_timeout_ms,
            protocols=(Protocol(protocol_name, snapshot.subscription),),
            assignment=snapshot.assignment,
        )

    @property
    def outlives_its_session(self) -> bool:
        """Whether the member stays without heartbeats, because it waits for our answer. A newcomer does not stay."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    @property
    def size_bytes(self) -> int:
        protocols = sum(len(name) + len(metadata) for name, metadata in self.protocols)
        return MEMBER_BYTES + len(self.id) + protocols + len(self.assignment)

    def metadata_for(self, protocol_name: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol_name)

    def for_leader(self, protocol_name: str) -> MemberMetadata:
        return MemberMetadata(self.id, self.instance_id, self.metadata_for(protocol_name))

    def snapshot(self, protocol_name: str, assignment: bytes) -> MemberSnapshot:
        return MemberSnapshot(
            member_id=self.id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol_name),
            assignment=assignment,
        )
