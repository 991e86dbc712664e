#!/bin/sh
# Make sure the tests have an MQTT broker, and say which one.
#
# mosquitto if it is there; else from the distribution, when we may install packages; else the embedded
# pure-Python one, with the mosquitto-only tests skipped. Where CI=true a missing mosquitto is an error.

if command -v mosquitto >/dev/null; then
  echo "broker for the tests: $(command -v mosquitto)"
  exit 0
fi

install_without_starting() {
  # policy-rc.d is Debian's way to say that an installed service is not started.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends mosquitto
  installed=$?
  if [ "$installed" = 0 ] && command -v systemctl >/dev/null; then
    systemctl disable mosquitto.service >/dev/null 2>&1
  fi
  return "$installed"
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "broker for the tests: installing mosquitto with apt"
  if install_without_starting && command -v mosquitto >/dev/null; then
    exit 0
  fi
fi

if [ "$CI" = true ]; then
  echo "mosquitto is missing and could not be installed: CI must run every test (apt install mosquitto)" >&2
  exit 1
fi
echo "broker for the tests: the embedded one; tests that need mosquitto are skipped (apt install mosquitto runs them)"
