#!/bin/sh
# enter.sh BASE RUN USER COMMAND...: runs COMMAND in a fresh copy of the root BASE, with mounts, processes and a host name of
# its own, all of which end with it. RUN/root becomes the copy; what RUN/bind lists is seen in it, read-only.
set -eu
base=$1 run=$2 user=$3
shift 3
root=$run/root
mount --make-rprivate /
mkdir -p "$root" "$run/upper" "$run/work"
if ! mount -t overlay overlay -o "lowerdir=$base,upperdir=$run/upper,workdir=$run/work" "$root" 2>/dev/null; then
	cp -a "$base/." "$root" # a file system that carries no overlay
	mount --bind "$root" "$root"
	[ ! -d "$run/upper/home" ] || cp -a "$run/upper/." "$root"
fi

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
if [ -d /sys/fs/cgroup ]; then
	mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
	grep -F " $root/sys/fs/cgroup" /proc/self/mounts | cut -d' ' -f2 | while read -r each; do
		mount -o remount,bind,ro "$each"
	done
fi
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
for each in null zero full random urandom tty kmsg; do
	[ -e "/dev/$each" ] || continue
	: >"$root/dev/$each"
	mount --bind "/dev/$each" "$root/dev/$each"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
while read -r each; do
	mount --bind "$each" "$root$each"
	mount -o remount,bind,ro "$root$each"
done <"$run/bind"
mkdir -p "$root/mnt/out"
mount --bind "$run/out" "$root/mnt/out"
hostname nameless # which resolves nowhere

# The old root is left behind, as in a container: a mere chroot may make no user namespace.
cd "$root"
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
rmdir /mnt/old

# What a container's root may do, and read the kernel log; an ordinary user may do nothing more than others.
if [ "$user" = root ]; then
	may=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+audit_write,+setfcap,+syslog
	exec setpriv --inh-caps=-all --bounding-set="$may" -- "$@"
fi
exec setpriv --reuid="$user" --regid="$user" --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
