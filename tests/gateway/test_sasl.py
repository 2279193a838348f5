"""SASL exchanges: the examples of the standards, and what is refused."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sasl import SERVED, LoginFailed, PlainExchange, ScramExchange, new_exchange
from hot_tier.cluster.credentials import (
    MECHANISMS,
    Credential,
    as_json,
    from_json,
    from_salted,
    make_credential,
    salted_password,
)

USERS = {"ada": {name: make_credential(name, "sécret") for name in MECHANISMS}}


def find(user: str) -> dict[str, Credential]:
    return USERS.get(user, {})


SALTS = b"the secret of this cluster"


def client_last(
    mechanism: str, password: str, bare: bytes, first: bytes, header: bytes = b"n,,"
) -> tuple[bytes, bytes]:
    """What a client answers, and what the server must say then."""
    name = MECHANISMS[mechanism]
    fields = dict(part.split(b"=", 1) for part in first.split(b","))
    salted = salted_password(name, password, b64decode(fields[b"s"]), int(fields[b"i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    unproved = b"c=" + b64encode(header) + b",r=" + fields[b"r"]
    signed = bare + b"," + first + b"," + unproved
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return unproved + b",p=" + b64encode(proof), hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_lets_in_who_knows_the_password(mechanism: str) -> None:
    exchange = ScramExchange(mechanism, find, SALTS)
    bare = b"n=ada,r=fyko+d2lbbFgONRv9qkxdawL"
    first, nobody = exchange.step(b"n,," + bare)
    assert nobody is None
    last, expected = client_last(mechanism, "sécret", bare, first)
    answer, user = exchange.step(last)
    assert (answer, user) == (b"v=" + b64encode(expected), "ada")


def test_the_example_of_the_standard() -> None:
    """RFC 7677, section 3: user `user`, password `pencil`."""
    salt, iterations = b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    salted = salted_password("sha256", "pencil", salt, iterations)
    credential = from_salted("SCRAM-SHA-256", salted, salt, iterations)
    exchange = ScramExchange("SCRAM-SHA-256", lambda _: {"SCRAM-SHA-256": credential}, SALTS)
    exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    exchange._nonce = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange._said = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    proved = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.step(proved) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("eve", "sécret")])
def test_scram_tells_a_wrong_password_like_an_unknown_user(mechanism: str, user: str, password: str) -> None:
    seen = []
    for _ in range(2):
        exchange = ScramExchange(mechanism, find, SALTS)
        bare = f"n={user},r=abc".encode()
        first, _ = exchange.step(b"n,," + bare)
        seen.append(first.split(b",")[1:])
        last, _ = client_last(mechanism, password, bare, first)
        with pytest.raises(LoginFailed, match="wrong user or password"):
            exchange.step(last)
    assert seen[0] == seen[1]


def salt_of(mechanism: str, user: str, salts: bytes = SALTS) -> bytes:
    first, _ = ScramExchange(mechanism, find, salts).step(b"n,,n=%b,r=abc" % user.encode())
    return first.split(b",")[1]


def test_salts_do_not_tell_who_exists() -> None:
    """Those of a user differ by mechanism and are the same at every broker; those of nobody have to be so too."""
    for user in ("ada", "eve"):
        assert salt_of("SCRAM-SHA-256", user) != salt_of("SCRAM-SHA-512", user)
        assert len(salt_of("SCRAM-SHA-256", user)) == len(salt_of("SCRAM-SHA-512", user))
        assert salt_of("SCRAM-SHA-256", user) == salt_of("SCRAM-SHA-256", user)
    assert salt_of("SCRAM-SHA-256", "eve") != salt_of("SCRAM-SHA-256", "bob")
    assert salt_of("SCRAM-SHA-256", "eve") != salt_of("SCRAM-SHA-256", "eve", b"of another cluster")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=ada",
        b"p=tls-unique,,n=ada,r=x",
        b"n,a=eve,n=ada,r=x",
        b"n,,n=a=da,r=x",
        b"n,,m=1,n=ada,r=x",
        b"\xff,,",
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        ScramExchange("SCRAM-SHA-256", find, SALTS).step(message)


def test_a_last_message_must_be_of_this_exchange() -> None:
    bare = b"n=ada,r=abc"
    exchange, other = ScramExchange("SCRAM-SHA-256", find, SALTS), ScramExchange("SCRAM-SHA-256", find, SALTS)
    first, _ = exchange.step(b"n,," + bare)
    foreign, _ = other.step(b"n,," + bare)
    for last in (
        client_last("SCRAM-SHA-256", "sécret", bare, foreign)[0],
        client_last("SCRAM-SHA-256", "sécret", bare, first, b"y,,")[0],
        b"c=biws,r=abc,p=",
    ):
        with pytest.raises(LoginFailed):
            exchange.step(last)


def test_plain() -> None:
    assert PlainExchange(find).step("\0ada\0sécret".encode()) == (b"", "ada")
    assert PlainExchange(find).step("ada\0ada\0sécret".encode()) == (b"", "ada")
    for message in (
        b"",
        b"ada\0secret",
        b"\0ada\0wrong",
        b"\0eve\0secret",
        b"\0\0",
        b"\0ada\0",
        b"\xff\0a\0b",
        b"\0a\0b\0c",
    ):
        with pytest.raises(LoginFailed):
            PlainExchange(find).step(message)
    with pytest.raises(LoginFailed):
        PlainExchange(find).step("eve\0ada\0sécret".encode())


@given(st.sampled_from(SERVED), st.lists(st.binary(max_size=80), min_size=1, max_size=3))
def test_any_bytes_are_refused_and_nothing_else_happens(mechanism: str, messages: list[bytes]) -> None:
    exchange = new_exchange(mechanism, lambda _: {}, SALTS)
    for message in messages:
        try:
            _, user = exchange.step(message)
        except LoginFailed:
            continue
        assert user is None


def test_credentials_keep_no_password_and_read_back() -> None:
    made = make_credential("SCRAM-SHA-512", "secret")
    assert from_json("SCRAM-SHA-512", as_json(made)) == made
    assert made.accepts("secret")
    assert not made.accepts("Secret")
    assert "secret" not in str(as_json(made))
    assert make_credential("SCRAM-SHA-512", "secret").salt != made.salt
