"""Telling people: from the alerts of an evaluation to Alertmanager, a webhook and the log.

`dispatch` decides what is told, as Prometheus does; `notification_queue` holds what waits; `delivery` carries it, in a
thread for each receiver. Evaluation only ever hands over: nothing here makes it wait.
"""
