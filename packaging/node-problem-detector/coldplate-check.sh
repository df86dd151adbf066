#!/bin/sh
# coldplate check as a custom plugin of node-problem-detector, whose exit statuses differ: 0 is well, 1 is a problem, and
# 2 is unknown. A warning of coldplate's is no problem of the node's. The first line becomes the condition's message.
COLDPLATE=${COLDPLATE:-/opt/coldplate/bin/coldplate}
ARGUMENTS=${COLDPLATE_CHECK:---timeout 5s}

# shellcheck disable=SC2086 # the arguments are several words
said=$("$COLDPLATE" check $ARGUMENTS 2>&1)
status=$?
printf '%s\n' "$said" | sed -n '1{s/ | .*//; p;}'
case $status in
0 | 1) exit 0 ;;
2) exit 1 ;;
*) exit 2 ;;
esac
