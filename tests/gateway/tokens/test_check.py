"""Which tokens are right, and which lies are seen through."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws, jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

from gateway.tokens.check import MAX_TOKEN, TokenRefused, UnknownKey, check_token
from gateway.tokens.key_set import MAX_BYTES, BadKeySet, KeySet, read_key_set
from gateway.tokens.settings import OauthSettings
from hot_tier.errors import SettingsError
from tests.support.identity_provider import AUDIENCE, ISSUER, Provider, make_key
from tierlog.settings import Given, load_settings

SETTINGS = OauthSettings(jwks_file="keys", issuer=ISSUER, audience=(AUDIENCE,))
NOW = time.time()
PROVIDER = Provider(lambda: NOW)
PROVIDER.keys.update({name: make_key(name, name) for name in ("ES256", "ES384", "ES512", "Ed25519")})
KEYS = read_key_set(PROVIDER.jwks())


def check(token: str, keys: KeySet = KEYS, settings: OauthSettings = SETTINGS, now_s: float = NOW) -> str:
    return check_token(token, keys, settings, ISSUER, now_s).user


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 300}


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_rsa(algorithm: str) -> None:
    assert check(PROVIDER.token(algorithm=algorithm)) == "ada"


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "Ed25519"])
def test_curves(algorithm: str) -> None:
    assert check(PROVIDER.token(kid=algorithm, algorithm=algorithm)) == "ada"
    with pytest.raises(TokenRefused):
        check(PROVIDER.token(kid=algorithm, algorithm=algorithm)[:-4] + "AAAA")


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
def test_an_old_name_of_ed25519() -> None:
    assert check(PROVIDER.token(kid="Ed25519", algorithm="EdDSA")) == "ada"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW - 31}, "has expired"),
        ({"exp": None}, "no `exp`"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 2**70}, "not a time"),
        ({"nbf": NOW + 31}, "does not hold yet"),
        ({"iat": NOW + 31}, "does not hold yet"),
        ({"iss": "https://other.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": [{"tierlog": 1}, 7]}, "another audience"),
        ({"aud": {"tierlog": 1}}, "another audience"),
        ({"sub": None}, "not a user's name"),
        ({"sub": ""}, "not a user's name"),
        ({"sub": 7}, "not a user's name"),
        ({"sub": "a\nb"}, "not a user's name"),
        ({"sub": "x" * 250}, "not a user's name"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        check(PROVIDER.token(**claims))


def test_claims_that_are_taken() -> None:
    assert check(PROVIDER.token(aud=["other", AUDIENCE])) == "ada"
    own = jwt.encode(
        {"alg": "RS256", "kid": "one", "nonce": "x", "our": {"own": 1}},
        CLAIMS,
        PROVIDER.keys["one"],
        registry=JWSRegistry(strict_check_header=False),
    )
    assert check(own) == "ada"
    assert check(PROVIDER.token(exp=NOW - 29, nbf=NOW + 29, iat=NOW + 29.5)) == "ada"
    by_name = OauthSettings(jwks_file="k", issuer=ISSUER, audience=(AUDIENCE,), principal_claim="preferred_username")
    assert check(PROVIDER.token(preferred_username="Ada L."), settings=by_name) == "Ada L."
    token = check_token(PROVIDER.token(exp=int(NOW) + 60), KEYS, SETTINGS, ISSUER, NOW)
    assert token.until_s == int(NOW) + 60 + 30


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "", None, 1, ["RS256"]):
        for signature in ("", PROVIDER.token().rpartition(".")[2]):
            with pytest.raises(TokenRefused, match="algorithm"):
                check(f"{part({'alg': algorithm, 'kid': 'one'})}.{part(CLAIMS)}.{signature}")


def test_a_public_key_is_no_secret() -> None:
    """The old trick: sign by HMAC with the public key, which everybody has."""
    key = PROVIDER.keys["one"]
    assert isinstance(key, RSAKey)
    for secret in (key.as_pem(private=False), key.as_pem(private=False).strip(), PROVIDER.jwks()):
        signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(CLAIMS)}"
        signature = part(hmac.digest(secret, signed.encode(), hashlib.sha256))
        with pytest.raises(TokenRefused, match="algorithm"):
            check(f"{signed}.{signature}")


def test_a_key_in_the_token_is_not_used() -> None:
    """`jwk`, `jku` and `x5u` name a key of the sender's."""
    mine = make_key("one")
    for header in (
        {"jwk": mine.as_dict(private=False)},
        {"jku": "https://evil.example"},
        {"x5u": "https://evil.example/x"},
    ):
        token = jwt.encode({"alg": "RS256", "kid": "one", **header}, CLAIMS, mine)
        with pytest.raises(TokenRefused, match="signature"):
            check(token)


@pytest.mark.parametrize("kid", ["two", "../../etc/passwd", "' or 1=1", "", "one\0", "x" * 257, 7, ["one"], {"a": 1}])
def test_wrong_key_ids(kid: Any) -> None:
    signature = PROVIDER.token().rpartition(".")[2]
    with pytest.raises(TokenRefused):
        check(f"{part({'alg': 'RS256', 'kid': kid})}.{part(CLAIMS)}.{signature}")


def test_another_providers_signature() -> None:
    other = Provider()
    with pytest.raises(TokenRefused, match="signature"):
        check(other.token())
    header, _, signature = PROVIDER.token().split(".")
    with pytest.raises(TokenRefused, match="signature"):
        check(f"{header}.{part({**CLAIMS, 'sub': 'root'})}.{signature}")


def test_an_algorithm_of_another_kind_of_key() -> None:
    for kid, algorithm in (("one", "ES256"), ("ES256", "RS256"), ("ES256", "ES384"), ("Ed25519", "RS256")):
        with pytest.raises(TokenRefused):
            check(f"{part({'alg': algorithm, 'kid': kid})}.{part(CLAIMS)}.{part(b'x' * 96)}")
    only_one = OauthSettings(jwks_file="k", issuer=ISSUER, audience=(AUDIENCE,), algorithms=("ES256",))
    with pytest.raises(TokenRefused, match="algorithm"):
        check(PROVIDER.token(), settings=only_one)


def test_a_key_for_one_algorithm() -> None:
    said = json.loads(PROVIDER.jwks())
    said["keys"][0]["alg"] = "RS512"
    with pytest.raises(UnknownKey):
        check(PROVIDER.token(), read_key_set(json.dumps(said).encode()))


def test_without_a_key_id_there_is_one_key() -> None:
    signed = jwt.encode({"alg": "RS256"}, CLAIMS, PROVIDER.keys["one"])
    assert check(signed) == "ada"
    two = Provider()
    two.keys["two"] = make_key("two")
    with pytest.raises(UnknownKey):
        check(jwt.encode({"alg": "RS256"}, CLAIMS, two.keys["one"]), read_key_set(two.jwks()))


DEEP = b"[" * 5000


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "é.é.é",
        "x" * (MAX_TOKEN + 1),
        "." * MAX_TOKEN,
        part(b"x" * 5000) + ".e30.e30",
        part(DEEP[:3000]) + ".e30.e30",
        part(b'{"alg":"RS256","x":' + DEEP[:2900] + b"]" * 2900 + b"}") + ".e30.e30",
        part([]) + ".e30.e30",
        part({"alg": "RS256", "crit": ["exp"], "kid": "one"}) + ".e30.e30",
        part({"alg": "RS256", "b64": False, "kid": "one"}) + ".e30.e30",
        part(b'{"alg":"RS256","kid":"one","x":' + b"9" * 3900 + b"}") + ".e30.e30",
        part({"alg": "RS256", "kid": "one"}) + ".é.e30",
        part({"alg": "dir", "enc": "A128GCM"}) + ".e30.e30.e30.e30",
    ],
)
def test_garbage(token: str) -> None:
    began = time.thread_time()
    with pytest.raises(TokenRefused):
        check(token)
    assert time.thread_time() - began < 0.2


@given(st.text(max_size=300) | st.binary(max_size=200).map(lambda data: f"{part(data)}.{part(data)}.{part(data)}"))
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        check(token)


@pytest.mark.parametrize("payload", [DEEP, b"[]", b"", b"nope", b"\xff", b'{"exp":NaN}', b'{"exp":1e999}'])
def test_claims_that_are_none_though_signed(payload: bytes) -> None:
    token = jws.serialize_compact({"alg": "RS256", "kid": "one"}, payload, PROVIDER.keys["one"])
    with pytest.raises(TokenRefused):
        check(token)


def test_key_sets() -> None:
    secret = OctKey.generate_key(256).as_dict(private=True)
    with pytest.warns(SecurityWarning):
        weak = RSAKey.generate_key(1024).as_dict(private=False)
    private = make_key("p").as_dict(private=True)
    for_encryption = {**make_key("e").as_dict(private=False), "use": "enc"}
    good = json.loads(PROVIDER.jwks())["keys"][0]
    kept = read_key_set(json.dumps({"keys": [secret, weak, for_encryption, private, good, {}, 7, None]}).encode())
    assert [each.kid for each in kept.keys] == ["p", "one"]
    assert not any(each.key.is_private for each in kept.keys)
    for wrong in (
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        DEEP,
        b" " * (MAX_BYTES + 1),
        json.dumps({"keys": [secret, weak]}).encode(),
        json.dumps({"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "EC", "crv": "P-256"}]}).encode(),
        json.dumps({"keys": [good] * 101}).encode(),
        json.dumps({"keys": [{**good, "e": "AA"}, {"kty": "OKP", "crv": "X", "x": "e30"}]}).encode(),
        b"<html>",
    ):
        with pytest.raises(BadKeySet):
            read_key_set(wrong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"issuer": "x"}, "nothing says where the keys are"),
        ({"jwks_file": "k", "issuer": "x"}, "needs oauth.audience"),
        ({"jwks_file": "k", "audience": "x"}, "needs oauth.issuer"),
        ({"jwks_file": "k", "jwks_url": "https://x/"}, "contradict"),
        ({"jwks_url": "http://idp.example/keys"}, "cannot be 'http://idp.example/keys'"),
        ({"jwks_url": "https://u:p@idp.example/keys"}, "cannot be"),
        ({"discovery_url": "file:///etc/passwd"}, "cannot be"),
        ({"jwks_url": "https://x:port/"}, "cannot be"),
        ({"algorithms": "HS256"}, "cannot be 'HS256'"),
        ({"algorithms": "none"}, "cannot be 'none'"),
    ],
)
def test_settings_that_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(flags=[Given(f"oauth.{name}", value, f"--oauth.{name}") for name, value in given.items()])
    assert said in str(refused.value)
