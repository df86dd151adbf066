#!/bin/bash
# Makes and boots the quick machine; started by namespaces.py in a mount namespace of its own.
# boot.sh FOLDER SOURCE LIBRARY
set -euo pipefail
folder=$1 source=$2 library=$3 root=$1/root

if [ "${4:-}" = inside ]; then # in all namespaces: what the machine must have of its own
	mount -t proc proc "$root/proc"
	mount --bind "$root/proc/sys" "$root/proc/sys"
	mount -o remount,bind,ro "$root/proc/sys" # the kernel's settings are this machine's own
	mount -t sysfs -o ro sysfs "$root/sys"
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
	while read -r name kind options; do
		mkdir -p "$root/sys/fs/cgroup/$name"
		mount -t "$kind" -o "$options" cgroup "$root/sys/fs/cgroup/$name"
	done <"$folder/hierarchies"
	ip link set lo up
	exec chroot "$root" env -i container=coldplate PATH="$PATH" \
		/lib/systemd/systemd --system --unit=machine.target --log-target=console --show-status=0
fi

mount --make-rprivate /
mkdir -p "$folder/upper" "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty kmsg; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
# Nothing of this machine's own services, and none of an agent that it may run.
rm -rf "$root/etc/systemd/system" "$root/var/lib/coldplate" "$root/var/lib/private/coldplate" "$root/etc/coldplate"
mkdir -p "$root/etc/systemd/system"

mount -t proc proc "$root/proc"
bash "$source/tests/lab/systemd/prepare.sh" "$root" "$source" "$library"
umount "$root/proc"
cat >"$root/etc/systemd/system/machine.target" <<-'UNIT'
	[Unit]
	DefaultDependencies=no
	AllowIsolate=yes
	Wants=systemd-journald.service checks.service
UNIT
exec unshare --pid --uts --ipc --net --cgroup --fork --kill-child bash "$0" "$folder" "$source" "$library" inside
