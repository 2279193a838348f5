"""What OCSF 1.3.0 asks of the classes that the audit writes, as far as they have it: written from schema.ocsf.io."""

from typing import Any

ACTIVITIES = {
    3002: {0, 1, 2, 3, 4, 5, 6, 99},
    6002: {0, 1, 2, 3, 4, 5, 6, 7, 8, 99},
    6003: {0, 1, 2, 3, 4, 99},
}
NEEDED = {
    3002: ("user",),
    6002: ("app",),
    6003: ("actor", "api", "src_endpoint"),
}
TYPES: dict[str, Any] = {
    "time": int,
    "class_uid": int,
    "category_uid": int,
    "activity_id": int,
    "type_uid": int,
    "severity_id": int,
    "status_id": int,
    "status": str,
    "status_code": str,
    "status_detail": str,
    "count": int,
    "start_time": int,
    "end_time": int,
    "metadata": dict,
    "user": dict,
    "actor": dict,
    "app": dict,
    "api": dict,
    "service": dict,
    "auth_protocol": str,
    "auth_protocol_id": int,
    "src_endpoint": dict,
    "resources": list,
    "http_request": dict,
    "http_response": dict,
    "unmapped": dict,
}


def check(event: dict[str, Any]) -> None:
    """Fails for an event that is not one of its class."""
    for name in ("time", "class_uid", "category_uid", "activity_id", "type_uid", "severity_id", "metadata"):
        assert name in event, (name, event)
    for name, value in event.items():
        assert isinstance(value, TYPES[name]), (name, event)
    class_uid = event["class_uid"]
    assert event["activity_id"] in ACTIVITIES[class_uid]
    assert event["category_uid"] == class_uid // 1000
    assert event["type_uid"] == class_uid * 100 + event["activity_id"]
    assert event["severity_id"] in {0, 1, 2, 3, 4, 5, 6, 99}
    assert event["status_id"] in {0, 1, 2, 99}
    assert event["status"] == {1: "Success", 2: "Failure"}[event["status_id"]]
    for name in NEEDED[class_uid]:
        assert event[name], (name, event)
    metadata = event["metadata"]
    assert metadata["version"] == "1.3.0" and metadata["uid"]
    _product(metadata["product"])
    if class_uid == 3002:
        _user(event["user"])
        assert event["service"]["name"]  # a service or an endpoint that somebody logs in to
    if class_uid == 6003:
        assert event["api"]["operation"]
        _user(event["actor"]["user"])
        assert event["src_endpoint"]["ip"] and event["src_endpoint"]["port"] > 0
    if class_uid == 6002:
        _product(event["app"])
    for each in event.get("resources", ()):
        assert each["type"] and each["name"], event
    if "http_request" in event:
        assert event["http_request"]["http_method"] and event["http_request"]["url"]["path"]
        assert isinstance(event["http_response"]["code"], int)
    if "count" in event:
        assert event["count"] >= 1 and event["start_time"] <= event["end_time"] <= event["time"]


def _user(user: dict[str, Any]) -> None:
    assert user["name"] and user["type_id"] in {0, 1, 2, 3, 4, 99}


def _product(product: dict[str, Any]) -> None:
    assert product["vendor_name"] and product["name"] and product["version"]
