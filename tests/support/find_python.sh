#!/bin/sh
# Find the Python that `make` builds its environment with. Given a name or path, judge that one; given nothing, take
# the first suitable one on the PATH. Print its version and itself, as in "3.13 /usr/bin/python3.13", or one line that
# says what to change, with exit code 1.

judge() {
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    { complaint="PYTHON=$1 does not run: name a Python 3.11, 3.12 or 3.13 by its name or path"; return 1; }
  case $version in
    3.11 | 3.12 | 3.13) ;;
    *) complaint="PYTHON=$1 is Python $version: veilsum needs 3.11, 3.12 or 3.13"; return 1 ;;
  esac
  "$1" -c 'import ensurepip, venv' 2>/dev/null ||
    { complaint="PYTHON=$1 has no venv: on Debian, apt install python$version-venv"; return 1; }
}

if [ $# -gt 0 ]; then
  judge "$1" || { echo "$complaint"; exit 1; }
  echo "$version $1"
  exit 0
fi
for candidate in python3.11 python3.12 python3.13 python3; do
  if judge "$candidate"; then echo "$version $candidate"; exit 0; fi
done
echo "veilsum needs Python 3.11, 3.12 or 3.13 with venv; on Debian: apt install python3 python3-venv"
exit 1
