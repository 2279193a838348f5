"""Access rules: what they decide, against a plain oracle; their keys; adding and removing them in the store."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.cluster import acl_admin
from hot_tier.cluster.acl_admin import AclAdmin
from hot_tier.cluster.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    Filter,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    Rule,
    Rules,
    acl_key,
    check_rule,
    parse_acl_key,
)
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.errors import InvalidRequest, PolicyViolation

names = st.sampled_from(["a", "ab", "abc", "b", "*", "a*"])
principals = st.sampled_from(["User:x", "User:y", "User:*"])
hosts = st.sampled_from(["h", "i", "*"])
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
operations = st.sampled_from(Operation)
rules = st.builds(
    Rule, kinds, st.sampled_from(Pattern), names, principals, hosts, operations, st.sampled_from(Permission)
)


def plainly_allows(rules, principal, host, operation, kind, name) -> bool:
    """Kafka's rules, word by word."""
    about = [
        rule
        for rule in rules
        if rule.resource_type == kind
        and (rule.principal == principal or rule.principal == "User:*")
        and (rule.host == host or rule.host == "*")
        and (
            (rule.pattern == Pattern.LITERAL and (rule.name == name or rule.name == "*"))
            or (rule.pattern == Pattern.PREFIXED and name.startswith(rule.name))
        )
    ]
    for rule in about:
        if rule.permission == Permission.DENY and rule.operation in (operation, Operation.ALL):
            return False
    for rule in about:
        if rule.permission == Permission.ALLOW:
            if rule.operation in (operation, Operation.ALL):
                return True
            if operation == Operation.DESCRIBE and rule.operation.name in ("READ", "WRITE", "DELETE", "ALTER"):
                return True
            if operation == Operation.DESCRIBE_CONFIGS and rule.operation.name == "ALTER_CONFIGS":
                return True
    return False


@given(
    st.lists(rules), st.sets(rules), st.sampled_from(["User:x", "User:y", "User:z"]), hosts, operations, kinds, names
)
def test_decides_as_the_oracle(added, removed, principal, host, operation, kind, name):
    index = Rules()
    for rule in added:
        index.add(rule)
    for rule in removed:
        index.remove(rule)
    left = set(added) - removed
    assert set(index) == left and len(index) == len(left) and all(rule in index for rule in left)
    asked = principal, host, operation, kind
    assert index.allow(*asked, name) == plainly_allows(left, *asked, name)
    # Whatever a rule's name or a name that begins with it is: if any of them is allowed, so is "somewhere".
    tried = {rule.name + end for rule in left for end in ("", "~")} | {"~"}
    if index.allow_somewhere(*asked):
        assert any(plainly_allows(left, *asked, each) for each in tried)


@given(st.lists(rules, max_size=5), operations)
def test_an_operation_is_allowed_somewhere_if_a_literal_name_is(found, operation):
    index = Rules()
    for rule in found:
        index.add(rule)
    everywhere_denied = any(
        rule.permission is Permission.DENY and rule.pattern is Pattern.LITERAL and rule.name == "*" for rule in found
    )
    asked = "User:x", "h", operation, ResourceType.TOPIC
    if not everywhere_denied and any(index.allow(*asked, each) for each in ("a", "ab", "abc", "b")):
        assert index.allow_somewhere(*asked)


@given(
    st.builds(
        Rule,
        st.sampled_from(ResourceType),
        st.sampled_from(Pattern),
        st.text(min_size=1, max_size=20),
        st.text(min_size=1, max_size=20).map("User:".__add__),
        st.sampled_from(["*", "10.0.0.7", "2001:db8::1"]),
        operations,
        st.sampled_from(Permission),
    )
)
def test_a_key_is_read_as_it_was_made(rule):
    try:
        check_rule(rule)
    except InvalidRequest:
        return
    key = acl_key(rule)
    assert key.isascii() and parse_acl_key(key) == rule


@pytest.mark.parametrize("key", ["acls/", "acls/TOPIC/LITERAL/t", "acls/TOAST/LITERAL/t/User:x/*/READ/ALLOW"])
def test_what_is_no_rule_is_not_read_as_one(key):
    with pytest.raises(ValueError):
        parse_acl_key(key)


GOOD = Rule(ResourceType.TOPIC, Pattern.LITERAL, "t", "User:ada", "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 250},
        {"name": "a\nb"},
        {"principal": "ada"},
        {"principal": "Group:ada"},
        {"principal": "User:"},
        {"host": ""},
        {"host": "a.host.name"},
        {"host": "2001:DB8:0::1"},
        {"host": "::ffff:10.0.0.7"},
        {"host": "::ffff:a00:7"},
        {"host": "fe80::1%eth0"},
        {"operation": Operation.CLUSTER_ACTION},
        {"resource_type": ResourceType.CLUSTER, "operation": Operation.ALTER},
        {
            "resource_type": ResourceType.CLUSTER,
            "name": CLUSTER_NAME,
            "pattern": Pattern.PREFIXED,
            "operation": Operation.ALTER,
        },
        {"name": "\ud800"},
    ],
)
def test_rules_that_cannot_be(wrong):
    check_rule(GOOD)
    with pytest.raises(InvalidRequest):
        check_rule(GOOD._replace(**wrong))


def test_filters():
    prefix = GOOD._replace(pattern=Pattern.PREFIXED, name="ord")
    literal = GOOD._replace(name="orders")
    everything = GOOD._replace(name="*")
    held = [prefix, literal, everything]

    def met(**fields):
        return [rule for rule in held if Filter(**fields).meets(rule)]

    assert met() == held
    assert met(name="orders") == [literal]
    assert met(name="orders", matching=True) == held
    assert met(name="other", matching=True) == [everything]
    assert met(pattern=Pattern.PREFIXED) == [prefix]
    assert met(operation=Operation.WRITE) == met(principal="User:eve") == met(host="10.0.0.1") == []


@pytest.fixture
async def admin(tmp_path):
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    image = ClusterImage(store)
    await image.open()
    made = AclAdmin(store, image)
    made.image, made.store = image, store
    yield made
    await image.close()
    await store.close()


async def test_many_rules_at_once_by_many(admin):
    wanted = [GOOD._replace(name=f"t{number}") for number in range(500)]
    await asyncio.gather(*(admin.add(wanted[start : start + 300]) for start in range(0, 500, 100)))
    assert set(admin.image.acls) == set(wanted)
    await asyncio.gather(admin.remove(wanted[:250]), admin.remove(wanted[150:400]))
    assert set(admin.image.acls) == set(wanted[400:])
    other = ClusterImage(admin.store)  # as a broker that starts now sees them
    await other.open()
    assert set(other.acls) == set(wanted[400:])
    await other.close()


async def test_all_or_nothing_of_what_is_asked_together_is_right(admin):
    with pytest.raises(InvalidRequest):
        await admin.add([GOOD, GOOD._replace(principal="nobody")])
    assert len(admin.image.acls) == 0


async def test_there_is_a_limit(admin, monkeypatch):
    monkeypatch.setattr(acl_admin, "MAX_RULES", 3)
    await admin.add([GOOD._replace(name=each) for each in "abc"])
    await admin.add([GOOD._replace(name="a")])
    with pytest.raises(PolicyViolation):
        await admin.add([GOOD._replace(name="d")])


def test_every_operation_that_a_resource_has_is_kafka_s():
    allowed = {kind.name: {each.name for each in found} for kind, found in OPERATIONS_ON.items()}
    assert allowed["TRANSACTIONAL_ID"] == {"WRITE", "DESCRIBE"}
    assert allowed["USER"] == {"CREATE_TOKENS", "DESCRIBE_TOKENS"}
