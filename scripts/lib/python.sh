# Environments of Python. Source this; the caller has "set -euo pipefail".

find_python() { # the first that is new enough, and that the pinned packages are built for
	local python
	for python in ${PYTHON:-python3} python3.14 python3.13 python3.12 python3.11; do
		if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
			command -v "$python"
			return
		fi
	done
	return 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install() { # packages of Debian or Ubuntu, where that can be
	command -v apt-get >/dev/null && as_root true 2>/dev/null || return 1
	as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# make_environment FOLDER LIST...: with the packages of the lists, which have their hashes. An environment that has them is kept, also if it
# was made with further lists.
make_environment() {
	local environment=$1 python wanted args=() list
	shift
	local lists=("$@")
	if ! python=$(find_python); then
		install python3 python3-venv || true
		python=$(find_python) || {
			echo "Python 3.11 to 3.14 is needed. Install it, or name it in PYTHON: apt-get install python3 python3-venv; brew install python" >&2
			return 1
		}
	fi
	wanted=$("$python" --version; cksum "${lists[@]}")
	for list in "$environment"/installed*; do
		[ ! -f "$list" ] || [ "$(cat "$list")" != "$wanted" ] || return 0
	done
	echo "making $environment with $("$python" --version)" >&2
	rm -rf "$environment"
	if ! "$python" -m venv "$environment" >&2; then # Debian has venv in a package of its own
		install "$(basename "$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')")-venv" >&2 && "$python" -m venv --clear "$environment" || {
			echo "Python has no module venv. Install it: apt-get install python3-venv" >&2
			return 1
		}
	fi
	for list in "${lists[@]}"; do args+=(-r "$list"); done
	"$environment/bin/python" -m pip install -q --no-compile --disable-pip-version-check --only-binary :all: --require-hashes "${args[@]}" >&2
	printf '%s' "$wanted" >"$environment/installed"
	# An environment with further lists also has all that the first one needs.
	if [ ${#lists[@]} -gt 1 ]; then
		printf '%s' "$("$python" --version; cksum "${lists[0]}")" >"$environment/installed-to-run"
	fi
}
