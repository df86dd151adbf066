"""The endpoints with a path of their own; that of the metrics is configured (`metrics.py`)."""

from exporters.endpoint import Endpoint
from exporters.endpoints.html_pages import OVERVIEW, RUNBOOKS
from exporters.endpoints.json_api import ALERTS, HISTORY, RACK, RULES, SNAPSHOT
from exporters.endpoints.management import HEALTHY, READY, RELOAD

ENDPOINTS: tuple[Endpoint, ...] = (OVERVIEW, HEALTHY, READY, RELOAD, ALERTS, HISTORY, RACK, RULES, SNAPSHOT, RUNBOOKS)
"""In the order in which the overview lists them."""
