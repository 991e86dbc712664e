#!/bin/sh
# Make sure that the models of specs/models/ can be checked: SPIN, and a C compiler for the checkers that it writes.
#
# What is there is used; else from the distribution, when we may install packages. Without, `make model` fails and the
# tests of the models are skipped; where CI=true that is an error.

there() {
  command -v spin >/dev/null && command -v gcc >/dev/null
}

if there; then
  echo "model checker: $(command -v spin)" >&2
  exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "model checker: installing spin and gcc with apt" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends spin gcc libc6-dev >&2
  if there; then
    exit 0
  fi
fi

if [ "$CI" = true ]; then
  echo "spin or gcc is missing and could not be installed: CI must check the models (apt install spin gcc libc6-dev)" >&2
  exit 1
fi
echo "model checker: none; the models are not checked (apt install spin gcc libc6-dev)" >&2
