"""A client that keeps to its quota, with the standard library alone: python3 client.py http://localhost:8080 [how many requests]"""

import random
import re
import sys
import time
import urllib.error
import urllib.request
import uuid
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin

LONGEST_WAIT = 60  # seconds
IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}


class Client:
    """Sends requests to one host. It is for one thread: others have clients of their own."""

    def __init__(self, retries=0.1):
        self.retries = retries  # how many requests may be sent again, as a share of all
        self.budget = 10.0  # that are left, 10 at most
        self.next = 0.0  # when a request may be sent, by time.monotonic
        self.cache = {}  # what each URL answered, with an ETag
        self.rejections = 0

    def request(self, method, url, body=None, headers=None):
        """Returns status, header fields and body. A rejection is returned where it may not, or need not, be sent again."""
        headers = dict(headers or {})
        known = self.cache.get(url) if method == "GET" else None
        if known:
            headers["If-None-Match"] = known[0]["ETag"]
        self.budget = min(10, self.budget + self.retries)
        while True:
            time.sleep(max(0, min(LONGEST_WAIT, self.next - time.monotonic())))
            status, fields, answer = send(method, url, body, headers)
            after = self.learn(status, fields)
            if status == 304 and known:
                return status, *known
            if status == 200 and method == "GET" and fields["ETag"]:
                self.cache[url] = (fields, answer)
            harmless = method in IDEMPOTENT or "Idempotency-Key" in headers
            if not 0 < after <= LONGEST_WAIT or not harmless or self.budget < 1:
                return status, fields, answer
            self.budget -= 1

    def learn(self, status, fields):
        """Takes from an answer when the next request may be sent. Returns the seconds after which a rejected one may be sent again, or 0."""
        gap = 0.0
        for left, reset in re.findall(r";r=(\d+);t=(\d+)", fields["RateLimit"] or ""):
            gap = max(gap, int(reset) / max(1, int(left)))  # what is left, spread over the time until more comes
        after = 0
        if status in (429, 503):
            self.rejections += 1
            after = seconds(fields["Retry-After"])
        self.next = time.monotonic() + max(gap, after * (1 + random.random() / 10))
        return after

    def order(self, url, body):
        """Orders once, however often it is sent, and waits for an answer that comes later."""
        headers = {"Content-Type": "application/json", "Prefer": "respond-async", "Idempotency-Key": str(uuid.uuid4())}
        status, fields, answer = self.request("POST", url, body, headers)
        while status == 202:  # it is deferred
            result = urljoin(url, fields["Location"] + "/result") if fields["Location"] else result
            status, fields, answer = self.request("GET", result, headers={"Prefer": "wait=30"})
        return status, answer


def seconds(told):
    """Returns the seconds of a Retry-After, which may be a date. 0: it says nothing."""
    try:
        return int(told) if re.fullmatch(r"\d+", told) else max(0, parsedate_to_datetime(told).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0


def send(method, url, body, headers):
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:  # an answer, too
        with error:
            return error.code, error.headers, error.read()


def main(base, count):
    client = Client()
    statuses = [client.request("GET", base + "/items.json")[0] for _ in range(count)]
    print(f"{count} answers, {statuses.count(304)} of them from the cache, {client.rejections} rejections")
    for n in 1, 2:
        status, answer = client.order(base + "/orders", b'{"ticket": %d}' % n)
        print(f"order {n}: {status} {answer.decode()}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30)
