#!/bin/sh
# An example of a Slurm prolog: no job starts on a node that is not fit for it. In slurm.conf:
#
#   Prolog=/etc/slurm/prolog.d/50-coldplate.sh
#   SchedulerParameters=nohold_on_prolog_fail
#
# Slurm runs it as root before the first step of a job, drains the node if it fails (its reason is "Prolog error"; the
# finding is in the system's log), and requeues the job, which it holds unless told not to. Only a critical finding (2)
# fails; a warning (1), or what cannot be told (3), is left to the log. It calls no command of Slurm's, because thousands
# of prologs at once would keep the controller busy. Slurm passes none of slurmd's environment on: edit the two lines.
COLDPLATE=${COLDPLATE:-/opt/coldplate/bin/coldplate}
ARGUMENTS=${COLDPLATE_CHECK:---timeout 5s --skip alerts}

# shellcheck disable=SC2086 # the arguments are several words
said=$("$COLDPLATE" check $ARGUMENTS 2>&1)
status=$?
[ "$status" = 0 ] || printf '%s\n' "${said:-it ended with status $status}" | logger -t coldplate-check
[ "$status" != 2 ]
