"""Settings of brokers and groups that are kept for Kafka's tools, and have no effect here.

They tune parts of Kafka that this service does not have: thread pools, Kerberos, groups of the protocols that came
after the classic one. Tools and clients set them and read them back. A setting that would have an effect here is not
kept: it is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.store import ABSENT, Compare, Delete, MetadataStore, Put
from hot_tier.errors import InvalidConfig, InvalidRequest, PolicyViolation
from hot_tier.log.config import ConfigType, Kind, boolean, one_of, whole

BROKER: Final = "broker"
GROUP: Final = "group"
MAX_OWNERS: Final = 1000
"""Of each kind: every broker holds all of them in memory."""


@dataclass(frozen=True, slots=True)
class Setting:
    kind: Kind
    default: str


def _count(default: int) -> Setting:
    return Setting(whole(ConfigType.INT, 1, 2**31 - 1), str(default))


KEPT: Final[Mapping[str, Mapping[str, Setting]]] = MappingProxyType(
    {
        BROKER: {
            "background.threads": _count(10),
            "log.cleaner.threads": _count(1),
            "num.io.threads": _count(8),
            "num.network.threads": _count(3),
            "num.recovery.threads.per.data.dir": _count(2),
            "num.replica.fetchers": _count(1),
            "sasl.kerberos.min.time.before.relogin": Setting(whole(ConfigType.LONG, 0, 2**63 - 1), "60000"),
        },
        GROUP: {
            "consumer.assignment.interval.ms": _count(1000),
            "consumer.heartbeat.interval.ms": _count(5000),
            "consumer.session.timeout.ms": _count(45000),
            "share.assignment.interval.ms": _count(1000),
            "share.auto.offset.reset": Setting(one_of("latest", "earliest"), "latest"),
            "share.delivery.count.limit": _count(5),
            "share.heartbeat.interval.ms": _count(5000),
            "share.isolation.level": Setting(one_of("read_uncommitted", "read_committed"), "read_uncommitted"),
            "share.partition.max.record.locks": _count(2000),
            "share.record.lock.duration.ms": _count(30000),
            "share.renew.acknowledge.enable": Setting(boolean(), "true"),
            "share.session.timeout.ms": _count(45000),
            "streams.assignment.interval.ms": _count(1000),
            "streams.heartbeat.interval.ms": _count(5000),
            "streams.initial.rebalance.delay.ms": Setting(whole(ConfigType.INT, 0, 2**31 - 1), "3000"),
            "streams.num.standby.replicas": Setting(whole(ConfigType.INT, 0, 2**31 - 1), "0"),
            "streams.session.timeout.ms": _count(45000),
        },
    }
)


class KeptSettings:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def change(
        self, kind: str, name: str, decide: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> None:
        """Writes what `decide` makes of the settings of this broker or group. Returns when the image shows it."""
        key = model.kept_key(kind, name)
        revision = None
        while revision is None:
            item = await self._store.get(key)
            held = {} if item is None else model.decode_map(key, item.value)
            wanted = decide(held)
            for setting, text in wanted.items():
                _check(kind, setting, text)
            if item is None and wanted and len(self._image.owners_of_kept_settings(kind)) >= MAX_OWNERS:
                raise PolicyViolation(
                    f"settings are kept for {MAX_OWNERS} {kind}s already",
                    where=name,
                    hint="delete those of others first",
                )
            if validate_only or wanted == held:
                return
            revision = await self._store.transact(
                [Compare(key, ABSENT if item is None else item.revision)],
                [Put(key, model.encode(wanted)) if wanted else Delete(key)],
            )
        await self._image.reached(revision)


def _check(kind: str, name: str, text: str) -> None:
    setting = KEPT[kind].get(name)
    if setting is None:
        raise InvalidConfig(f"unknown setting of a {kind}", where=name)
    try:
        setting.kind.parse(text)
    except (ValueError, KeyError):
        # Kafka has one code for a broker's settings and another for those of groups and topics.
        refusal = InvalidRequest if kind == BROKER else InvalidConfig
        raise refusal(f"{name} cannot be {text!r}", where=name, hint=f"it must be {setting.kind.allowed}") from None
