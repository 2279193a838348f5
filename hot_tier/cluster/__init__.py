"""Cluster metadata: what there is, who leads it, and the store it is kept in.

store       the seam: keys, revisions, compare-and-swap, watch, lease     sqlite   one node's store
etcd        a cluster's store, by etcd_client, etcd_watch and etcd_wire   open     which of them the settings name
model       topics, partition states, brokers; their keys and their JSON
image       all of it in memory, kept by a watch; what request handlers read
admin       makes, changes and deletes topics        placement, configs   its decisions
internal_topics   what the service keeps for itself
standalone  what a node without peers writes when it starts
membership  a broker of a cluster comes, stays and goes                   directory, probe   what it looks at
restart_isr   what a broker that starts gives up before it is counted again
controller  the one broker that decides for all      elections            its decisions
moves       what people ask for: reassignments, decommission, rebalance   rebalance   its plans
partition_writes   many partition states changed at once
producer_ids, quotas   ids in blocks; limits per client
"""
