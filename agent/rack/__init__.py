"""The rack as seen by one node: each node's power, second by second, and the sum that all agents agree on.

Nodes are sampled at different moments, so a sum of the latest values differs from node to node and from
moment to moment. Instead, every agent reports its node's power in each whole second of wall-clock time, once and
finally, and every agent sums the same seconds: the sum of one second is the same number on every node.

    snapshot -> meter (this node's seconds) -> ledger <- peers (judges answers) <- poller (fetches them)
                                                 |                                   ^ finder (who the peers are)
                                                 +-> watch (series, and the answer to the peers' own requests)
"""
