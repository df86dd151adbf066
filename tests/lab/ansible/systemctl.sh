#!/bin/sh
# As much of systemctl as Ansible asks, for units that are there: a file for each that is enabled or active. Notes what changed.
cd "$(dirname "$0")/state" || exit 1
command=$1
shift
case ${1:-} in -*) shift ;; esac
unit=${1:-}
case $command in
show)
	state=inactive
	[ ! -e "$unit.active" ] || state=active
	echo "Id=$unit"
	echo "LoadState=loaded"
	echo "ActiveState=$state"
	;;
is-enabled) [ -e "$unit.enabled" ] && echo enabled || { echo disabled; exit 1; } ;;
is-active) [ -e "$unit.active" ] && echo active || { echo inactive; exit 3; } ;;
enable) touch "$unit.enabled"; echo "enable $unit" >>log ;;
start | restart) touch "$unit.active"; echo "$command $unit" >>log ;;
reload) [ -e "$unit.active" ] || exit 1; echo "reload $unit" >>log ;;
*) echo "unexpected: $command $*" >>log ;;
esac
