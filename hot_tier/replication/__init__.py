"""Partitions as the gateway sees them: who leads, what is committed, who waits for it.

watermark           what is committed, as a pure decision over what the replicas hold
leadership          what a leader knows in one epoch: followers, high watermark, in-sync set; pure
following           what a follower asks its leader for and what the answers mean; pure
readable            one partition as readers need it: the seam to the gateway
roles               the roles of a partition on one broker, as a table
local_partition     one partition with a local log, in either role
led_partition       one partition at its leader: appending, waiting for the commit, waiting for news
followed_partition  one partition at a follower: what an answer of the leader does to its log
table               the partitions of this node, each in the role that the cluster image gives it
link                the seam between a follower and the broker that it follows
fetcher             following one broker: when it is asked, and which answer belongs to which position
fetchers            which brokers are followed for what
isr                 in-sync sets, written as the leaderships want them
settings            of following and being followed
"""
