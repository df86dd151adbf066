#!/bin/sh
# An example of Slurm's HealthCheckProgram: takes a node out of service while coldplate check finds something critical.
# In slurm.conf:
#
#   HealthCheckProgram=/etc/slurm/coldplate-health-check.sh
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY,CYCLE
#
# Slurm runs it as root, ends it after 60 seconds, and ignores how it ends: it has to drain the node itself. Running jobs
# go on. A controller that does not answer within the limit is asked again at the next run. The controller is told once for each finding, and again every hour, in case somebody has resumed the node as
# it was. Nothing is resumed: a person looks first (scontrol update NodeName=NODE State=resume). Slurm passes none of
# slurmd's environment on: edit the lines below.
COLDPLATE=${COLDPLATE:-/opt/coldplate/bin/coldplate}
ARGUMENTS=${COLDPLATE_CHECK:---timeout 20s}
TOLD=${COLDPLATE_TOLD:-/run/coldplate-check.told}
NODE=${SLURMD_NODENAME:-$(hostname -s)}
SCONTROL_LIMIT=${COLDPLATE_SCONTROL_LIMIT:-15s} # with the check's own timeout less than Slurm's 60 seconds

# shellcheck disable=SC2086 # the arguments are several words
said=$("$COLDPLATE" check $ARGUMENTS 2>&1)
status=$?
if [ "$status" != 2 ]; then
	[ "$status" -lt 2 ] || printf '%s\n' "${said:-it ended with status $status}" | logger -t coldplate-check
	rm -f "$TOLD"
	exit 0
fi
reason=$(printf '%s\n' "$said" | sed -n '/^COLDPLATE CRITICAL - /{s///; s/ | .*//; p;}' | cut -c 1-200)
[ -n "$(find "$TOLD" -mmin -60 2>/dev/null)" ] && [ "$(cat "$TOLD")" = "$reason" ] && exit 0
printf '%s\n' "$said" | logger -t coldplate-check
timeout -k 2s "$SCONTROL_LIMIT" scontrol update NodeName="$NODE" State=drain Reason="coldplate: $reason"
status=$?
if [ "$status" = 0 ]; then
	printf '%s\n' "$reason" >"$TOLD"
else
	printf '%s\n' "the node is not drained: scontrol ended with status $status (124: no answer within $SCONTROL_LIMIT)" |
		logger -t coldplate-check
	exit 1
fi
