"""The names of other exporters, so that dashboards and rules written for them find their series here.

Each profile is a table in a file of its own: the other exporter's name, its type, its HELP text, and the metrics of
coldplate that give its value. `translation` turns a snapshot into frames of those series, which are rendered like all
others.
"""

from exporters.compatibility import dcgm, node_infiniband, nvidia_smi, nvitop, opentelemetry
from exporters.compatibility.foreign_names import ForeignProfile

PROFILES: dict[str, ForeignProfile] = {
    module.PROFILE.word: module.PROFILE for module in (dcgm, node_infiniband, nvitop, nvidia_smi, opentelemetry)
}
"""By the word in `metrics.compatibility`."""
