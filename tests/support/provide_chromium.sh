#!/bin/sh
# Make sure that the tests of pages have a browser, and say which one.
#
# What is there is used; else from the distribution, when we may install packages; else those tests are skipped. Where
# CI=true a missing browser is an error.

there() {
  command -v chromium || command -v chromium-browser || command -v google-chrome
}

if there >/dev/null; then
  echo "browser for the tests: $(there)"
  exit 0
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "browser for the tests: installing chromium with apt"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium
  if there >/dev/null; then
    exit 0
  fi
fi

if [ "$CI" = true ]; then
  echo "chromium is missing and could not be installed: CI must look at every page (apt install chromium)" >&2
  exit 1
fi
echo "browser for the tests: none; what needs one is skipped (apt install chromium runs it)"
