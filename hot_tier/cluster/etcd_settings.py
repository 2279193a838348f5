"""Settings of the connection to etcd. `cluster.metadata` has its address."""

from dataclasses import dataclass, field

from hot_tier.errors import SettingsError


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    ca: str = field(
        default="",
        metadata={
            "doc": "File with the certificates that etcd's own is checked against. With it, etcd is spoken to by TLS."
        },
    )
    cert: str = field(default="", metadata={"doc": "File with the certificate that this broker shows etcd."})
    key: str = field(default="", metadata={"doc": "File with the private key of `etcd.cert`."})
    user: str = field(default="", metadata={"doc": "User at etcd, where it asks for one."})
    password: str = field(default="", repr=False, metadata={"doc": "That user's password.", "secret": True})

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise SettingsError("etcd.cert and etcd.key go together", hint="give both or none")
        if self.cert and not self.ca:
            raise SettingsError(
                "etcd.cert needs etcd.ca", hint="name the file that etcd's certificate is checked against"
            )
        if bool(self.user) != bool(self.password):
            raise SettingsError("etcd.user and etcd.password go together", hint="give both or none")
