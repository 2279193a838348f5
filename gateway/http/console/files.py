"""The console's files, read once, with the headers under which a browser may use them.

The policy allows a page what comes from this broker and nothing else: no script or style inside a page, no other host,
no frame around it. So a record that looks like HTML stays text even if a page had a mistake.
"""

from hashlib import blake2b
from importlib.resources import files
from typing import Final, NamedTuple

PAGE: Final = "index.html"
MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    # A browser asks each time whether a file is still the same, so pages never mix versions.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class File(NamedTuple):
    body: bytes
    media_type: str
    etag: str


def read_files() -> dict[str, File]:
    """Returns the files by name."""
    found: dict[str, File] = {}
    for each in (files(__package__) / "static").iterdir():
        media_type = MEDIA_TYPES.get(each.name.rpartition(".")[2])
        if media_type is not None:
            body = each.read_bytes()
            found[each.name] = File(body, media_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')
    return found
