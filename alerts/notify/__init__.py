"""Notifications: from the alerts of an evaluation to Alertmanager, a webhook and the log.

`dispatch` decides what is sent, as Prometheus does; `delivery` queues and sends it, in a
thread for each receiver. Evaluation never waits for any of this.
"""
