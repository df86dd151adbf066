#!/bin/bash
# Builds the image with buildah over a bare root, and tries it: container.sh BASE FOLDER [VOLUME...]
# BASE: a root file system with this machine's ways to the network in it, since no registry is asked; VOLUME: as for -v.
set -euo pipefail
base=$1 folder=$2
shift 2
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$folder/root" --runroot "$folder/run" "$@"; }
volumes=()
for each; do volumes+=(--volume "$each:$each:ro"); done

working=$(buildah from scratch)
mounted=$(buildah mount "$working")
cp -a "$base/." "$mounted"
buildah umount "$working" >/dev/null
buildah commit --quiet "$working" localhost/base >/dev/null
buildah rm "$working" >/dev/null
buildah bud --quiet --network host --format docker "${volumes[@]}" --build-arg BASE=localhost/base \
	--file packaging/container/Containerfile --tag coldplate . >/dev/null

working=$(buildah from localhost/coldplate)
# shellcheck disable=SC2016 # for the shell in the container
buildah run "$working" -- sh -euc '
	[ "$(id -u):$(id -g)" = 65532:65532 ] && [ -w /var/lib/coldplate ] && [ ! -w /opt/coldplate ]
	coldplate check --backend synthetic | grep "COLDPLATE OK"
	coldplate run --backend synthetic &
	for each in $(seq 300); do
		if /opt/coldplate/bin/python -I -c "import urllib.request as r; r.urlopen(\"http://127.0.0.1:19400/-/healthy\", timeout=4)"; then break; fi
		sleep 0.2
	done 2>/dev/null
	/opt/coldplate/bin/python -I -c "import urllib.request as r; r.urlopen(\"http://127.0.0.1:19400/-/healthy\", timeout=4); import grpc"
	kill $! && wait'
