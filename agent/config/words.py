"""Words of device families and profiles, in a file that the command line can import at no cost."""

DEVICES = ("auto", "nvml", "synthetic", "replay", "trace", "none")
NOT_OF_NODE = ("synthetic", "replay", "trace")
"""Those with which the GPUs that are shown are not this node's."""


PROFILES = ("none", "lean", "default", "full")
