#!/usr/bin/env bash
# A client that keeps to its quota, with curl: client.sh http://localhost:8080 [how many requests]
set -euo pipefail

longest_wait=60 # seconds
budget=100      # tenths of a request that may be sent again; each request adds one, up to 100
rejections=0
pause=0 # before the next request, in seconds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { # field NAME: its value in the last answer
	sed -n "s/^$1: *//Ip" "$work/head" | tr -d '\r' | paste -sd, -
}

# seconds TEXT: those of a Retry-After, which may be a date (of GNU date). The shell would run what is in a number, so only digits are one.
seconds() {
	if [[ $1 =~ ^[0-9]{1,9}$ ]]; then
		echo $((10#$1))
	else
		echo $(($(date -d "$1" +%s 2>/dev/null || echo 0) - $(date +%s)))
	fi
}

# ask METHOD URL [curl's options]: sets status, and writes the body to $work/body. A rejection is left where it may not, or need not, be sent again.
ask() {
	local method=$1 url=$2 after
	shift 2
	budget=$((budget < 100 ? budget + 1 : 100))
	while true; do
		sleep "$pause"
		status=$(curl -s -X "$method" -D "$work/head" -o "$work/body" -w '%{http_code}' --max-time 60 "$@" "$url")
		# What is left, spread over the time until more comes; of several limits the slowest.
		pause=$(field RateLimit | grep -oE ';r=[0-9]+;t=[0-9]+' | awk -F '[=;]' -v longest=$longest_wait '{ gap = $5 / ($3 > 1 ? $3 : 1); if (gap > most) most = gap } END { print (most < longest ? most + 0 : longest) }' || true)
		after=$(seconds "$(field Retry-After)")
		[[ $status == 429 || $status == 503 ]] || return 0
		rejections=$((rejections + 1))
		if ((after <= 0 || after > longest_wait || budget < 10)) || [[ $method == POST && "$*" != *Idempotency-Key:* ]]; then return 0; fi
		budget=$((budget - 10))
		pause=$(awk -v after="$after" -v random=$RANDOM 'BEGIN { print after * (1 + random / 327670) }') # a tenth later at most
	done
}

# order URL BODY: orders once, however often it is sent, and waits for an answer that comes later.
order() {
	local job
	ask POST "$1" --json "$2" -H 'Prefer: respond-async' -H "Idempotency-Key: $(uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid)"
	job=$(field Location)
	while [ "$status" = 202 ]; do # it is deferred
		ask GET "${1%/orders}$job/result" -H 'Prefer: wait=30'
	done
}

base=$1 count=${2:-30} cached=0
for ((n = 0; n < count; n++)); do
	ask GET "$base/items.json" --etag-compare "$work/etag" --etag-save "$work/etag" # the body of a 304 is the one that came before
	[ "$status" != 304 ] || cached=$((cached + 1))
done
echo "$count answers, $cached of them from the cache, $rejections rejections"
for n in 1 2; do
	order "$base/orders" "{\"ticket\": $n}"
	echo "order $n: $status $(cat "$work/body")"
done
