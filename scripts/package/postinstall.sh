#!/bin/sh
# Makes the service's user and its folders. On Debian starts the service, too, or starts it again after an upgrade, unless it is disabled; with rpm that is for the
# administrator to do. dpkg calls this with "configure", rpm with the number of versions that are there.
set -e

upgrade=
case "$1" in
configure | 1) ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

getent group caddy >/dev/null || groupadd --system caddy
getent passwd caddy >/dev/null ||
	useradd --system --gid caddy --home-dir /var/lib/caddy --no-create-home --shell /usr/sbin/nologin --comment "Caddy web server" caddy
for folder in /var/lib/caddy /var/log/caddy; do
	[ -d $folder ] || install -d -o caddy -g caddy -m 0750 $folder
done

# Caddy's own package calls the unit's folder /lib, which is the same folder by another name. So dpkg does not see that the unit is ours now, and where it removes that
# package by itself, the unit goes, too.
unit=/usr/lib/systemd/system/caddy.service
[ -e $unit ] || cp /usr/share/caddy-weir/caddy.service $unit

if command -v deb-systemd-helper >/dev/null; then
	deb-systemd-helper unmask caddy.service >/dev/null || true # which Caddy's own package leaves masked where it was removed
	if deb-systemd-helper --quiet was-enabled caddy.service; then
		deb-systemd-helper enable caddy.service >/dev/null || true
	else
		deb-systemd-helper update-state caddy.service >/dev/null || true
	fi
elif [ -z "$upgrade" ] && command -v systemctl >/dev/null; then
	systemctl --no-reload preset caddy.service >/dev/null 2>&1 || true # on Fedora and its like: the administrator says what is enabled
fi

[ -d /run/systemd/system ] || exit 0
systemctl --system daemon-reload >/dev/null || true
if command -v deb-systemd-invoke >/dev/null; then
	deb-systemd-invoke restart caddy.service || true # if it is enabled, or runs
elif [ -n "$upgrade" ]; then
	systemctl try-restart caddy.service || true
fi
