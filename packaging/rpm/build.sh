#!/bin/sh
# Builds coldplate-VERSION-1.MACHINE.rpm: `make rpm`. Two builds of one commit give the same bytes.
#
#   build.sh WHEELS MACHINE OUT      MACHINE: x86_64 or aarch64
set -eu
umask 022
cd "$(dirname "$0")/../.."
wheels=$1 machine=$2 out=$3
units='coldplate.service coldplate-broker.socket coldplate-kubelet.socket'
. packaging/release.sh
command -v rpmbuild >/dev/null || { echo "coldplate: there is no rpmbuild here: install it (Debian: rpm; Fedora: rpm-build)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pyvenv.cfg and the link name /usr/bin/python3; on a node the link is made by %post, which the package only announces.
sh packaging/stage.sh "$work/staged" "$wheels" /usr/bin/python3
cp LICENSE CHANGELOG.md "$work/staged/usr/share/doc/coldplate"
sed -e '/^@SCRIPTLETS@$/{r packaging/scriptlets.sh' -e 'd}' -e '/^@PYTHONS@$/{r packaging/rpm/pythons.sh' -e 'd}' \
	-e "s/@UNITS@/$units/" packaging/rpm/coldplate.spec >"$work/coldplate.spec"
mkdir -p "$out"
echo "packing $out/coldplate-$package_version-1.$machine.rpm ..."
# No helper of the distribution is to strip, compile or compress what is staged; moment and host are those of the commit.
rpmbuild -bb --quiet --target "$machine" --dbpath "$work/none" \
	--define "_topdir $work" --define "_rpmdir $work/rpms" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
	--define "package_version $package_version" --define "staged $work/staged" \
	--define "__os_install_post %{nil}" --define "debug_package %{nil}" --define "_build_id_links none" \
	--define "__brp_mangle_shebangs %{nil}" --define "_binary_payload w19.xzdio" --define "_buildhost localhost" \
	--define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	--define "build_mtime_policy clamp_to_source_date_epoch" "$work/coldplate.spec" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mv "$work/rpms/coldplate-$package_version-1.$machine.rpm" "$out"
echo "built      $out/coldplate-$package_version-1.$machine.rpm ($(du -k "$out/coldplate-$package_version-1.$machine.rpm" | cut -f1) KB)"
