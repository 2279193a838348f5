"""The state of a cluster as one of its nodes reports it over HTTP: brokers, leaders, missing replicas."""

from collections.abc import Mapping, Sequence
from typing import Any

from tierlog.client import Client, path


def cluster_status(client: Client) -> dict[str, Any]:
    cluster = client.get(path("cluster"))
    names = [each["name"] for each in client.get(path("topics"))["topics"]]
    return summary(cluster, [client.get(path("topics", name)) for name in names])


def summary(cluster: Mapping[str, Any], topics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a node says about the cluster and every topic, as one document."""
    partitions = [
        {"topic": topic["name"], **{name: each[name] for name in ("partition", "leader", "replicas", "isr")}}
        for topic in topics
        for each in topic["partitions"]
    ]
    registered = {each["id"]: each for each in cluster["brokers"]}
    known = sorted({*registered, *(node for each in partitions for node in each["replicas"])})
    offline = [each for each in partitions if each["leader"] is None]
    behind = [each for each in partitions if each["leader"] is not None and set(each["isr"]) < set(each["replicas"])]
    return {
        "healthy": not offline
        and not behind
        and cluster["controller"] is not None
        and cluster["metadata_error"] is None,
        "cluster_id": cluster["cluster_id"],
        "controller": cluster["controller"],
        "asked": cluster["node_id"],
        "metadata_error": cluster["metadata_error"],
        "brokers": [
            {
                "id": node,
                "up": node in registered,
                "host_name": registered[node].get("host_name") if node in registered else None,
                "rack": registered[node]["rack"] if node in registered else None,
                "kafka": _address(registered[node], "") if node in registered else None,
                "http": _address(registered[node], "http_") if node in registered else None,
                "leaders": sum(each["leader"] == node for each in partitions),
                "replicas": sum(node in each["replicas"] for each in partitions),
                "in_sync": sum(node in each["isr"] for each in partitions if node in each["replicas"]),
            }
            for node in known
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "offline": offline,
        "under_replicated": behind,
    }


def _address(broker: Mapping[str, Any], kind: str) -> str:
    return f"{broker[f'{kind}host']}:{broker[f'{kind}port']}"
