#!/bin/sh
# Forgets the service, and with "purge" also certificates, logs and configuration. The user stays, as is usual: a file may be his.
set -e

[ ! -d /run/systemd/system ] || systemctl --system daemon-reload >/dev/null || true

# What another Caddy has that was installed in the meantime is its own.
[ ! -e /usr/bin/caddy ] || exit 0

case "$1" in
remove)
	! command -v deb-systemd-helper >/dev/null || deb-systemd-helper mask caddy.service >/dev/null || true
	;;
purge)
	if command -v deb-systemd-helper >/dev/null; then
		deb-systemd-helper purge caddy.service >/dev/null || true
		deb-systemd-helper unmask caddy.service >/dev/null || true
	fi
	rm -rf /var/lib/caddy /var/log/caddy
	rmdir /etc/caddy 2>/dev/null || true
	;;
esac
