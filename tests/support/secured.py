"""Settings of a broker with every kind of login."""

from pathlib import Path

from gateway.coordinators.settings import GroupSettings
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.logins import LoginSettings
from gateway.tls import TlsSettings
from gateway.tokens.settings import OauthSettings
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.log.settings import LogSettings
from tests.support.certificates import Authority
from tests.support.identity_provider import AUDIENCE, ISSUER, Provider
from tierlog.settings import Settings

CLIENTS = ("clients",)
ANY = "127.0.0.1:0"
WITHOUT_TLS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")


def secured_settings(directory: Path, authority: Authority, provider: Provider) -> Settings:
    """`kafka` and `http` have TLS; `open` has none. Certificates are a login at `wanted`, and come on top at `both`."""
    (directory / "keys.json").write_bytes(provider.jwks())
    files = authority.issue("broker")
    return Settings(
        log=LogSettings(data_dir=str(directory / "data"), min_free_bytes=0),
        kafka=KafkaSettings(port=0),
        http=HttpSettings(port=0, cors_origins=("https://app.example",)),
        tls=TlsSettings(files.certificate, files.key, authority.ca, ("RULE:^CN=([^,]+).*$/$1/", "DEFAULT")),
        login=LoginSettings("bob", "bobs"),
        oauth=OauthSettings(
            jwks_file=str(directory / "keys.json"), issuer=ISSUER, audience=(AUDIENCE,), clock_skew_ms=0
        ),
        cluster=ClusterSettings(num_partitions=1),
        groups=GroupSettings(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
        listener={
            "kafka": ListenerSettings("sasl_tls", takes=CLIENTS),
            "open": ListenerSettings(
                "sasl_plaintext", ANY, takes=CLIENTS, mechanisms=("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
            ),
            "certificates": ListenerSettings("tls", ANY, takes=CLIENTS, client_certificate="required"),
            "http": ListenerSettings("https", takes=CLIENTS, login="required"),
            "wanted": ListenerSettings("https", ANY, takes=CLIENTS, client_certificate="wanted", login="required"),
            "both": ListenerSettings("https", ANY, takes=CLIENTS, client_certificate="required", login="required"),
        },
    )
