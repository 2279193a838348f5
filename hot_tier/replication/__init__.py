"""Partitions as the gateway sees them: who leads, what is committed, who waits for it.

watermark   what is committed, as a pure decision over what the replicas hold
leadership  what a leader knows in one epoch: progress of the followers, the high watermark, the in-sync set; pure
following   what a follower asks its leader for and what the answers mean; pure
partition   one partition at its leader: appending, waiting for the commit, waiting for news
table       the partitions of this node, following the cluster image
"""
