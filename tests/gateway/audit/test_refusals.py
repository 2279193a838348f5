"""Whoever is refused as often as he likes fills neither the disk nor the queue, and hides nobody else."""

import orjson

from gateway.audit.audit import Audit
from gateway.audit.events import API_ACTIVITY, AUTHENTICATION, SUCCESS, Event, Origin, Resource, Result, Sender, encode
from gateway.audit.refusals import MOST_SENDERS, MOST_TOLD
from gateway.audit.settings import AuditSettings
from gateway.principal import Principal, anonymous
from tests.gateway.audit import ocsf

REFUSED = Result("refused", "login-needed", "the listener asks for a login")
NOBODY = anonymous("http", "192.0.2.7")
EVE = Principal("eve", "password", "http", "192.0.2.8")


class Scene:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.audit = Audit(AuditSettings(enabled=True), lambda: self.now_ms, lambda _: None, lambda _: True)

    def act(self, who: Principal, name: str, result: Result = REFUSED, class_uid: int = API_ACTIVITY) -> None:
        topic = Resource("topic", name)
        sender = Sender(who, 50_000, "a client")
        self.audit.note(Event(self.now_ms, class_uid, 4, "deleteTopic", "http", "1", sender, result, [topic]))

    def take(self) -> list[Event]:
        found = self.audit.oldest(1 << 30)
        self.audit.written(len(found))
        return found


def test_one_who_asks_for_ever_new_names_is_counted() -> None:
    scene = Scene()
    for number in range(10_000):
        scene.act(NOBODY, f"t{number}")
    assert len(scene.take()) == MOST_TOLD
    scene.act(EVE, "secret")
    scene.act(EVE, "own", SUCCESS)
    assert [each.resources[0].name for each in scene.take()] == ["secret", "own"], "others are told as before"
    scene.audit.tell_counts()
    assert not scene.take(), "the interval is not over"
    scene.now_ms += 60_000
    scene.audit.tell_counts()
    (rest,) = scene.take()
    assert (rest.count, rest.operation, rest.resources) == (10_000 - MOST_TOLD, "deleteTopic", ())
    assert rest.sender is not None and rest.sender.principal == NOBODY
    scene.act(NOBODY, "again")
    assert len(scene.take()) == 1, "a new interval"


def test_many_who_are_refused_share_what_one_has() -> None:
    scene = Scene()
    for number in range(20_000):
        class_uid = AUTHENTICATION if number % 2 else API_ACTIVITY
        scene.act(anonymous("http", f"10.0.{number // 250}.{number % 250}"), "t", class_uid=class_uid)
    assert len(scene.take()) == MOST_SENDERS + MOST_TOLD
    scene.audit.tell_counts(everything=True)
    rests = scene.take()
    assert [each.class_uid for each in rests] == [API_ACTIVITY, AUTHENTICATION]
    assert sum(each.count for each in rests) == 20_000 - MOST_SENDERS - MOST_TOLD
    for told in encode(rests, 0, Origin(1, "0", "run")):
        ocsf.check(orjson.loads(told))
