# Of which version and moment a package is. Sourced, in the checkout's top folder, by what builds one.
# shellcheck shell=sh

# Packages order 1.0~rc1 before 1.0, as Python orders 1.0rc1.
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' agent/__init__.py)
package_version=$(echo "$version" | sed -E 's/(a|b|rc|\.dev)([0-9]+)/~\1\2/; s/~\./~/')

# The last commit's moment; a constant where there is no repository. No file and no archive in a package has a later one.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)
fi
export SOURCE_DATE_EPOCH
