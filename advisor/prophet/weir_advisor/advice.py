"""The document that proxies get: written as canonical JSON, and signed. docs/advice.openapi.yaml has its fields."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

MOST_BYTES = 1 << 20  # that a proxy reads


@dataclass(frozen=True)
class Published:
    """A document as it is served: its bytes, its tag, its signature ("" without a key), and when it expires (Unix seconds)."""

    serial: int
    body: bytes
    etag: str
    signature: str
    expires: float


def rfc3339(time: float) -> str:
    """Writes a Unix time, to the millisecond."""
    return datetime.fromtimestamp(round(time * 1000) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def private_key(path: Path) -> Ed25519PrivateKey:
    """Reads a key (PEM, PKCS 8, Ed25519). Raises OSError or ValueError."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path}: must be an Ed25519 key without a password, in PEM: openssl genpkey -algorithm ed25519")
    return key


def publish(document: dict[str, Any], expires: float, key: Ed25519PrivateKey | None) -> Published:
    """Writes a document (names sorted, no spaces, UTF-8: the same document has the same bytes) and signs it with the key, if there
    is one. Raises ValueError if it has a number that JSON has not, or is larger than a proxy reads."""
    body = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    if len(body) > MOST_BYTES:
        raise ValueError(f"the document has {len(body)} bytes, and may have {MOST_BYTES}")
    signature = "ed25519=" + base64.b64encode(key.sign(body)).decode() if key else ""
    etag = '"' + hashlib.sha256(body).hexdigest()[:32] + '"'
    return Published(document["serial"], body, etag, signature, expires)
