"""A second, tiny process that has the privileges which the agent does without.

It answers two fixed questions over a Unix socket: the known job variables of one process, and the node's power by
its management controller. Nothing in this package imports anything of ours outside it, and little of the standard
library: what runs with privileges must be small enough to be read in one sitting. The agent's backends share its
pure parts.
"""
