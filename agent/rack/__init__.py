"""The rack as one node sees it: what each node draws, second by second, and the sum that all agree on.

Nodes are sampled at different moments, so a sum of everybody's latest value differs from node to node and from
moment to moment. Here every agent tells what its node drew in each whole second of wall-clock time, once and for
all, and every agent adds up the same seconds: whoever asks whenever, the sum of one second is one number.

    snapshot -> meter (this node's seconds) -> ledger <- peers (judges answers) <- poller (fetches them)
                                                 |                                   ^ finder (who the peers are)
                                                 +-> watch (series, and the answer to the peers' own questions)
"""
