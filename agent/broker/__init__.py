"""A second, tiny process with the privileges that the agent does not have.

It answers two fixed requests over a Unix socket: the known job variables of one process, and the node's power from
its management controller. This package imports no other code of coldplate, and little of the standard
library: privileged code must be small enough to be read in one sitting. The agent's backends share its
pure parts.
"""
