"""The command, from blocks of a real Prometheus to documents over TLS."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.conftest import REPOSITORY
from tests.test_vectors import pem, unix
from weir_advisor.__main__ import main

EVERY = 120  # seconds between scrapes
HOURS = 60
BEGAN = time.time()


def free() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def program(name: str) -> str:
    path = shutil.which(name)
    assert path, f"{name} is not installed: apt-get install prometheus; brew install prometheus"
    return path


def demand(at: float) -> float:
    """What a key in 100 asks for in 10 s. At whatever time of the day the tests run, it grows then."""
    return 60 + 30 * math.sin(2 * math.pi * (at - BEGAN) / 86_400)


def openmetrics(end: int) -> str:
    """A scrape each two minutes: 100 keys, of which 90 ask once in 10 s, and ten between demand − 4 and demand + 4; and the total of it."""
    bounds = [1, 2, *range(4, 132, 4)]
    labels = 'guard="g",job="caddy",rule="api"'
    buckets: dict[int, list[str]] = {b: [] for b in bounds}
    infinite, total, share, active = [], [], [], []
    counts = dict.fromkeys(bounds, 0.0)
    seen = requests = 0.0
    for at in range(end - HOURS * 3600, end + 1, EVERY):
        wanted = demand(at)
        for b in bounds:
            counts[b] += 12 * (90 + 10 * min(max((b - wanted + 4) / 8, 0), 1))
            buckets[b].append(f'weir_key_demand_bucket{{{labels},le="{b}.0"}} {counts[b]:.0f} {at}')
        seen += 12 * 100
        requests += 12 * (90 + 10 * wanted)
        infinite.append(f'weir_key_demand_bucket{{{labels},le="+Inf"}} {seen:.0f} {at}')
        total.append(f'weir_requests_total{{job="caddy",outcome="allowed",rule="api"}} {requests:.0f} {at}')
        share.append(f'weir_top_keys_share{{{labels},keys="10"}} 0.8 {at}')
        active.append(f"weir_active_keys{{{labels}}} 100 {at}")
    lines = ["# TYPE weir_key_demand histogram", *(line for b in bounds for line in buckets[b]), *infinite]
    lines += ["# TYPE weir_requests counter", *total, "# TYPE weir_top_keys_share gauge", *share, "# TYPE weir_active_keys gauge", *active]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has the history up to now."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "metrics").write_text(openmetrics(int(time.time())))
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1m}\n")
    command: list[str | Path] = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", folder / "metrics", folder / "data"]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    address = f"127.0.0.1:{free()}"
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client() as client:
            until(client, f"http://{address}/-/ready", running)
        yield f"http://{address}"
    finally:
        running.kill()
        running.wait()


def until(client: httpx.Client, url: str, running: subprocess.Popen[bytes]) -> None:
    """Waits until a server answers 200."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert running.poll() is None, f"{running.args!r} has ended"
        try:
            if client.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} does not come up")


def certificates(folder: Path) -> None:
    """Writes an authority (ca.pem), and certificates it has issued for 127.0.0.1 (server.pem) and for a client (client.pem), with their keys."""
    now = datetime.now(UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    for name in ("ca", "server", "client"):
        key = authority if name == "ca" else ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        )
        if name == "server":
            certificate = certificate.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        signed = certificate.sign(authority, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / f"{name}.key").write_bytes(private)


def configuration(folder: Path, prometheus: str, **fields: object) -> Path:
    rule = {"rule": "api", "limit": "200/1m", "floor": "100/1m", "ceiling": "1000/1m", "abuse": True}
    data = {
        "fleet": "shop",
        "prometheus": {"url": prometheus, "selector": 'job="caddy"'},
        "history": f"{HOURS - 1}h",
        "step": "15m",
        "horizon": "1h",
        **fields,
        "rules": [{**rule, "demand": "key"}, {**rule, "rule": "all", "query": 'sum(rate(weir_requests_total{rule="api"}[15m]))'}],
    }
    file = folder / "advisor.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def command(file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "weir_advisor", "--config", str(file), *more]


ROOT = REPOSITORY / "advisor/prophet"


def test_from_blocks_to_documents(model: str, prometheus: str, tmp_path: Path) -> None:
    certificates(tmp_path)
    key = Ed25519PrivateKey.generate()
    (tmp_path / "advisor.key").write_bytes(pem(key))
    listen = f"127.0.0.1:{free()}"
    file = configuration(
        tmp_path,
        prometheus,
        model=model,
        listen=listen,
        token="${WEIR_ADVISOR_TOKEN}",
        private_key="advisor.key",
        tls={"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"},
    )
    trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    stranger = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    trusted.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    url = f"https://{listen}/v1/advice?fleet=shop"
    authorized = {"Authorization": "Bearer s3cret"}
    written: list[int] = []
    serials: list[int] = []
    # The second time with the models of the first. That those of ets survive is tested of the service.
    for _ in range(2 if model == "prophet" else 1):
        running = subprocess.Popen(command(file), cwd=ROOT, env={**os.environ, "WEIR_ADVISOR_TOKEN": "s3cret"})
        try:
            with httpx.Client(verify=trusted) as client:
                until(client, f"https://{listen}/healthz", running)
                answer = client.get(url, headers=authorized)
                assert answer.status_code == 200, answer.text
                document = answer.json()
                signature = answer.headers["Weir-Signature"].removeprefix("ed25519=")
                key.public_key().verify(base64.b64decode(signature, validate=True), answer.content)
                tagged = client.get(url, headers={**authorized, "If-None-Match": answer.headers["ETag"], "Weir-Config": document["config"]})
                assert tagged.status_code in (200, 304)  # 200 if a turn was between the two
                assert client.get(url).status_code == 401
                assert client.get(url, headers={**authorized, "Weir-Config": "sha256:00"}).status_code == 409
                metrics = client.get(f"https://{listen}/metrics").text
            with httpx.Client(verify=stranger) as client, pytest.raises(httpx.TransportError):
                client.get(url, headers=authorized)
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        issued = unix(document["issued_at"])
        api, everything = document["rules"]
        peak = max(demand(issued + 60 * minute) for minute in range(61))
        assert api["forecast"]["mean"] == pytest.approx(6 * peak, rel=0.12)
        assert everything["forecast"]["mean"] == pytest.approx(6 * (90 + 10 * peak), rel=0.12)
        assert api["limit"]["requests"] >= 1.2 * api["forecast"]["mean"] or api["limit"]["requests"] == 1000
        assert document["model"]["name"] == model
        assert document["model"]["skill_vs_last"] > 0.3
        assert 'weir_advisor_limit{rule="api"}' in metrics
        check = subprocess.run([program("promtool"), "check", "metrics"], input=metrics, text=True, capture_output=True, check=False)
        assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
        written.append((tmp_path / "advisor-state/api.model.json").stat().st_mtime_ns)
        serials.append(document["serial"])
    assert len(set(written)) == 1
    assert len(set(serials)) == len(serials)
    assert serials == sorted(serials)


def test_a_dry_run_says_what_would_have_been_advised(prometheus: str, tmp_path: Path) -> None:
    file = configuration(tmp_path, prometheus, interval="10m", expires="20m")
    end = datetime.fromtimestamp(time.time() // 600 * 600, UTC)
    span = ("--from", (end - timedelta(minutes=20)).isoformat(), "--to", end.isoformat())
    ran = subprocess.run(command(file, *span), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    turns = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [turn["at"] for turn in turns] == [(end - timedelta(minutes=m)).strftime("%Y-%m-%dT%H:%M:%S.000Z") for m in (20, 10, 0)]
    for turn in turns:
        assert [found["rule"] for found in turn["outcomes"]] == ["api", "all"]
        assert turn["document"]["rules"][0]["reason"] in ("growth", "schedule")
    assert not (tmp_path / "advisor-state").exists()


def test_mistakes_are_said_and_end_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for fields, status, want in (
        ({"horizn": "1h"}, 2, "advisor.yaml: line 3: horizn: unknown field; did you mean horizon?"),
        ({"private_key": "none.key"}, 1, "none.key"),
        ({"private_key": "advisor.yaml"}, 1, "must be an Ed25519 key without a password, in PEM"),
        ({"token_file": "none"}, 1, "none"),
        ({"model": "arima"}, 2, "model 'arima': must be 'prophet' or 'ets'"),
        ({"prophet": {"country": "XX"}}, 1, "prophet.country 'XX': must be a country whose holidays are known, such as DE"),
    ):
        file = configuration(tmp_path, "http://127.0.0.1:9", **fields)
        monkeypatch.setattr(sys, "argv", command(file)[2:])
        assert main() == status
        said = capsys.readouterr()
        assert said.out == ""
        assert want in said.err
