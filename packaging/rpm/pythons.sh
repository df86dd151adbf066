# Which of a node's Pythons the program takes; the build puts it into the scripts that need it.
# shellcheck shell=sh

# The distribution's own where it will do, since everything else keeps it there; else the newest.
choose_python() {
	for each in /usr/bin/python3 /usr/bin/python3.14 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 /usr/bin/python3.10; do
		if "$each" -I -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
			ln -sfn "$each" "$program/bin/python"
			return 0
		fi
	done
	echo "coldplate: no Python from 3.10 to 3.14 in /usr/bin: install python3.11 or a newer one" >&2
	return 1
}

restart_program() {
	[ ! -d /run/systemd/system ] || systemctl try-restart coldplate.service coldplate-broker.service >/dev/null 2>&1 || :
}
