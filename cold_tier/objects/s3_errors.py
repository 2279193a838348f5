"""Turns the text of obstore's S3 errors into our errors, which say what to do. Pure: text in, error out.

obstore has its own errors for a missing object and for refused credentials, but not on a LIST. Everything else is only
in its text. Keys and addresses in the text may hold any digits and words, so only what comes after them is reliable:
the store's own answer after the status code, and the transport's error after the last `inner:`.

A failure that may pass by itself is a `StoreUnavailable`, and is tried again: time-outs, 5xx, throttling, connections
that fail. Wrong credentials, permissions, buckets, regions and certificates stay wrong, so they are not tried again.
"""

import re
from typing import Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from cold_tier.errors import (
    NoSuchBucket,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreThrottled,
    StoreUnavailable,
)

_ANSWER: Final = re.compile(r"non-2xx status code: (\d{3})(.*)", re.DOTALL)
_DEBUG: Final = "\n\nDebug source:"
_FIELD: Final = re.compile(r"<(Code|Message|Region)>([^<]*)</\1>")
_QUOTED: Final = re.compile(r'(?:message|error): "([^"]*)"')
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")

_TRANSIENT: Final = {"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "OperationAborted"}
"""The store answers these with a 4xx, but the same request may succeed later."""
_OTHER_REGION: Final = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_DENIED: Final = {
    "InvalidAccessKeyId": ("the store does not know this access key", "check AWS_ACCESS_KEY_ID, or the AWS profile"),
    "SignatureDoesNotMatch": (
        "the secret key does not belong to the access key",
        "check AWS_SECRET_ACCESS_KEY, or the AWS profile",
    ),
    "ExpiredToken": ("the credentials have expired", "renew them (AWS_SESSION_TOKEN, or the AWS profile)"),
    "InvalidToken": ("the session token is not valid", "renew AWS_SESSION_TOKEN, or unset it for permanent keys"),
    "RequestTimeTooSkewed": ("the store says that this machine's clock is wrong", "set the clock"),
}


def status_of(error: BaseException) -> int | None:
    found = _ANSWER.search(str(error).partition(_DEBUG)[0])
    return int(found[1]) if found else None


def failure(error: BaseException, where: str, permission: str) -> StoreError:
    """`permission` is the name in AWS policies of the permission that the request needs."""
    shown, _, debug = str(error).partition(_DEBUG)
    answer = _ANSWER.search(shown)
    if answer is None:
        if isinstance(error, FileNotFoundError):
            return ObjectMissing("no such object", where=where)
        return _refused(error, {}, where, permission) or _transport(shown, debug, where)
    status, said = int(answer[1]), dict(_FIELD.findall(answer[2]))
    code = said.get("Code", "")
    what = " ".join(part for part in (code, said.get("Message", "")) if part) or f"it answered with status {status}"
    if code == "NoSuchBucket":
        return NoSuchBucket("no such bucket", where=where, hint="create the bucket, or check --bucket")
    if code in _OTHER_REGION:
        return _other_region(said.get("Region", ""), where)
    if refused := _refused(error, said, where, permission, status):
        return refused
    if isinstance(error, FileNotFoundError):
        return ObjectMissing("no such object", where=where)
    if code == "SlowDown" or status in (429, 503):
        return StoreThrottled(f"the store asks for fewer requests: {what}", where=where)
    if status == 501:
        return StoreError(what, where=where, hint="the store lacks this operation")
    if status >= 500 or status in (408, 409) or code in _TRANSIENT:
        return StoreUnavailable(what, where=where)
    if status == 404:
        hint = "check --s3-endpoint: it is the address of an S3 store, without the bucket"
        return StoreMisconfigured("there is no S3 store at this address", where=where, hint=hint)
    return StoreError(what, where=where, hint="the store rejects this request; check --bucket and --s3-endpoint")


def _refused(
    error: BaseException, said: dict[str, str], where: str, permission: str, status: int | None = None
) -> StoreDenied | None:
    code = said.get("Code", "")
    if code in _DENIED:
        what, hint = _DENIED[code]
        return StoreDenied(f"{what} ({code})", where=where, hint=hint)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        return StoreDenied(
            f"access is denied{f' ({code})' if code else ''}",
            where=where,
            hint=f"allow {permission} here to the credentials in use, or use others (AWS_ACCESS_KEY_ID, AWS_PROFILE)",
        )
    return None


def _other_region(region: str, where: str) -> StoreMisconfigured:
    name = region or "REGION"
    return StoreMisconfigured(
        f"the bucket is in another region{f', {region}' if region else ''}",
        where=where,
        hint=f"set AWS_REGION={name} or --store.s3_region {name}",
    )


def _transport(shown: str, debug: str, where: str) -> StoreError:
    """There was no answer, or it did not come from an S3 store."""
    inner = debug.rpartition("inner: ")[2]
    if "BareRedirect" in inner[:20]:
        return _other_region("", where)
    if found := _CERTIFICATE.search(inner):
        return StoreMisconfigured(
            f"the store's TLS certificate is not trusted: {found[1]}",
            where=where,
            hint="use a certificate of a known authority for this host name, or set SSL_CERT_FILE to its authority",
        )
    if "InvalidMessage(" in inner:
        return StoreMisconfigured(
            "the store does not speak TLS at this address", where=where, hint="write http:// in --s3-endpoint"
        )
    if "InvalidListResponse" in debug[:100]:
        return StoreMisconfigured("the server there is no S3 store", where=where, hint="check --s3-endpoint")
    reason = found[1] if (found := _QUOTED.search(inner)) else shown.partition("\n")[0][:300]
    return StoreUnavailable(f"the store does not answer: {reason}", where=where, hint="check the store and the network")
