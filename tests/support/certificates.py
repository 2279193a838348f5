"""Certificates for tests: an authority, and files that it signs."""

from pathlib import Path
from typing import NamedTuple

import trustme


class Files(NamedTuple):
    certificate: str
    key: str


class Authority:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA()
        self.ca = str(directory / "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *hosts: str, file: str = "") -> Files:
        """Writes a certificate with this common name, and its key. `file` is what the files are called."""
        issued = self._authority.issue_cert(*(hosts or ("127.0.0.1",)), common_name=name)
        stem = self._directory / (file or name)
        files = Files(f"{stem}.pem", f"{stem}.key")
        Path(files.certificate).write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(files.key)
        return files
