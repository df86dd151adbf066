"""Notifications: from the alerts of an evaluation to Alertmanager, a webhook and the log.

`dispatch` decides what is sent, as Prometheus does; `notification_queue` holds what is queued; `delivery` sends it, in
a thread for each receiver. Evaluation never waits for any of this.
"""
