"""`tierlog cluster up|status`; `cluster_moves` has the commands that move replicas, `cluster_rebuild` the last way."""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hot_tier.errors import SettingsError
from tierlog.cli import cluster_moves, cluster_rebuild, output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client
from tierlog.cluster_status import cluster_status

if TYPE_CHECKING:
    from tierlog.cluster_process import LocalCluster

LOOK_S: Final = 0.5


def register(app: typer.Typer) -> None:
    cluster = Commands(no_args_is_help=True, help="Run a cluster on this machine, and see how one is doing.")
    cluster.command(
        "up", help="Run etcd and some brokers until SIGTERM or Ctrl-C. A later call runs the same ones again."
    )(up)
    cluster.command("status", help="Show brokers, leaders, and partitions with replicas missing.")(status)
    cluster_moves.register(cluster)
    cluster_rebuild.register(cluster)
    app.add_typer(cluster, name="cluster")


def up(
    brokers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of brokers. [default: as many as last time, or 3]")
    ] = None,
    data_dir: Annotated[str, typer.Option(metavar="DIR", help="Where everything is kept.")] = "cluster",
    bucket: Annotated[
        str | None, typer.Option(metavar="URL", help="file:///path or s3://bucket/prefix. [default: DIR/bucket]")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Make certificates and an admin user, and let nobody else in from then on.")
    ] = False,
    json: Json = False,
) -> None:
    from tierlog.cluster_process import LocalCluster
    from tierlog.exclusive import keep_files_private
    from tierlog.secured import forget

    if not data_dir.strip():
        raise SettingsError("data_dir cannot be empty", where="--data-dir", hint="name a directory, or leave it out")
    keep_files_private()
    stopping = threading.Event()
    cluster = LocalCluster(Path(data_dir), brokers, bucket, secure=secure)
    _on_signals(_interrupt)
    with output.after(1.0, f"starting etcd and {len(cluster.brokers)} brokers in {cluster.directory}"):
        cluster.start()
    try:
        _on_signals(lambda *_: stopping.set())
        _announce(cluster, as_json=json)
        _wait(cluster, stopping)
        _on_signals(_interrupt)
        cluster.stop()
    finally:
        cluster.kill()
        forget(broker.http for broker in cluster.brokers.values())


def _on_signals(handler: Callable[..., None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    """While the cluster starts or stops, a signal ends all of it at once."""
    raise KeyboardInterrupt


def _announce(cluster: "LocalCluster", *, as_json: bool) -> None:
    from tierlog.secured import forget

    brokers = [
        {"id": node, "kafka": broker.kafka, "http": broker.url, "pid": broker.pid, "output": str(broker.output_path)}
        for node, broker in cluster.brokers.items()
    ]
    exports = [f"export TIERLOG_SERVER={','.join(broker.url for broker in cluster.brokers.values())}"]
    servers = [broker.http for broker in cluster.brokers.values()]
    if cluster.closed is not None:
        exports = cluster.closed.announce(cluster.kafka, servers)
    else:
        forget(servers)
    if as_json:
        output.print_json({"metadata": cluster.plan.metadata, "bucket": cluster.plan.bucket, "brokers": brokers})
    else:
        output.print_table(
            ("broker>", "kafka", "http", "pid>"),
            [(each["id"], each["kafka"], each["http"], each["pid"]) for each in brokers],
        )
        for line in exports:
            print(line)
        print(f"tierlog cluster ready kafka={cluster.kafka} metadata={cluster.plan.metadata}")


def _wait(cluster: "LocalCluster", stopping: threading.Event) -> None:
    """Reports a broker that ends and leaves it so: such a cluster is for seeing what the others do then."""
    told: set[str] = set()
    while not stopping.wait(LOOK_S):
        processes = {f"broker {node}": broker.process for node, broker in cluster.brokers.items()}
        for name, process in {**processes, "etcd": cluster.etcd.process}.items():
            code = process.poll() if process is not None else None
            if code is not None and name not in told:
                told.add(name)
                how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
                output.note(f"{name} {how}; the others go on")


def status(server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        found = cluster_status(client)
    if json:
        output.print_json(found)
    else:
        _show(found)
    raise typer.Exit(0 if found["healthy"] else 1)


def _show(found: Mapping[str, Any]) -> None:
    if found["metadata_error"]:
        output.note(f"broker {found['asked']} shows what it saw last, for metadata is away: {found['metadata_error']}")
    controller = "none" if found["controller"] is None else f"broker {found['controller']}"
    print(f"cluster {found['cluster_id']}  controller {controller}")
    print(f"{found['topics']} topics, {found['partitions']} partitions")
    print()
    brokers = found["brokers"]
    if any(each["host_name"] for each in brokers):
        for host, here in by_host(brokers).items():
            _show_brokers(here, title=f"host {host}" if host else "on hosts that are not known")
    else:
        _show_brokers(brokers)
    _show_partitions(found)


def by_host(brokers: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Returns brokers by the names of their hosts, in the order of the lowest broker of each."""
    hosts: dict[str, list[Mapping[str, Any]]] = {}
    for each in brokers:
        hosts.setdefault(each["host_name"] or "", []).append(each)
    return hosts


def _show_brokers(brokers: Sequence[Mapping[str, Any]], title: str = "") -> None:
    output.print_table(
        ("broker>", "", "rack", "kafka", "http", "leads>", "replicas>", "in sync>"),
        [
            (
                each["id"],
                "up" if each["up"] else "down",
                each["rack"] or "",
                each["kafka"] or "",
                each["http"] or "",
                each["leaders"],
                each["replicas"],
                each["in_sync"],
            )
            for each in brokers
        ],
        title=title,
    )


def _show_partitions(found: Mapping[str, Any]) -> None:
    for name, title in (("offline", "offline: nobody leads them"), ("under_replicated", "with replicas missing")):
        if found[name]:
            print()
            output.print_table(
                ("topic", "partition>", "leader>", "replicas", "in sync"),
                [
                    (
                        each["topic"],
                        each["partition"],
                        "none" if each["leader"] is None else each["leader"],
                        ", ".join(map(str, each["replicas"])),
                        ", ".join(map(str, each["isr"])),
                    )
                    for each in found[name]
                ],
                title=f"{len(found[name])} partitions {title}",
            )
