#!/bin/sh
# Stops the service where the package goes, and not for an upgrade. dpkg calls this with "remove", rpm with 0.
set -e

[ -d /run/systemd/system ] || exit 0
case "$1" in
remove) deb-systemd-invoke stop caddy.service || true ;;
0) systemctl --no-reload disable --now caddy.service || true ;;
esac
