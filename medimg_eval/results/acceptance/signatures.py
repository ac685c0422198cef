"""Signatures of plans: by an Ed25519 key, which anyone can check, or by a secret that both sides share (HMAC).

A signature is over the hash of the plan's content together with who signed, what the signature means and when, so
that none of them can be exchanged. When is what the signer's clock says; a stamp of an authority is made of the file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medimg_eval.errors import DeviationError, UserError, import_optional

ED25519, HMAC = "ed25519", "hmac-sha256"
SHORTEST_SECRET = 16
"""Bytes."""


def canonical(content: Any) -> bytes:
    """Canonical JSON for hashing: sorted keys, no blanks, UTF-8."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def content_hash(content: Any) -> str:
    """SHA-256 of content, as `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(canonical(content)).hexdigest()}"


def sign(content: str, key: Path, *, by: str, meaning: str = "author") -> dict[str, str]:
    """Signs the hash of a plan.

    Args:
        content: the hash, as `content_hash` returns it.
        key: an Ed25519 private key as PEM (`openssl genpkey -algorithm ed25519`), not encrypted; any other file is a
            secret of at least 16 bytes.
        by: name of who signs.
        meaning: what the signature stands for, such as author, review or approval.

    Returns:
        The signature with all that it covers.

    Raises:
        UserError: the key cannot be read, or is none that signs.
    """
    statement = {"by": by, "meaning": meaning, "signed": datetime.now(UTC).isoformat(timespec="milliseconds")}
    held = _read_key(key)
    if not held.startswith(b"-----BEGIN"):
        statement |= {"kind": HMAC, "key": _key_fingerprint(_secret_key(held, key))}
        return statement | {
            "signature": hmac.new(_secret_key(held, key), _covered_bytes(content, statement), "sha256").hexdigest()
        }
    serialization = import_optional("cryptography.hazmat.primitives.serialization")
    kinds = import_optional("cryptography.hazmat.primitives.asymmetric.ed25519")
    mend = "expected an Ed25519 private key without a password: openssl genpkey -algorithm ed25519 -out key.pem"
    with UserError.about(key, "cannot be read as a private key", ValueError, TypeError, mend=mend):
        private = serialization.load_pem_private_key(held, password=None)
    if not isinstance(private, kinds.Ed25519PrivateKey):
        raise UserError(f"{key}: is no Ed25519 key; {mend}")
    public = private.public_key().public_bytes_raw()
    statement |= {"kind": ED25519, "key": _key_fingerprint(public), "public_key": _encode_base64(public)}
    return statement | {"signature": _encode_base64(private.sign(_covered_bytes(content, statement)))}


def verify_all(content: str, signatures: Sequence[Mapping[str, str]], keys: Sequence[Path]) -> list[str]:
    """Checks all signatures of a plan by matching keys.

    Says of each what `verify` says.

    Raises:
        DeviationError: one does not fit, or the plan is not signed by each of the keys.
    """
    fitting = [next((key for key in keys if _matches_key(signature, key)), None) for signature in signatures]
    unused = next((key for key in keys if key not in fitting), None)
    lines = [verify(content, signature, key) for signature, key in zip(signatures, fitting, strict=True)]
    if unused is not None:
        signers = ", ".join(str(signature.get("by")) for signature in signatures) or "nobody"
        raise DeviationError(f"the plan was not signed by the key {unused}; it was signed by {signers}")
    return lines


def _matches_key(signature: Mapping[str, str], key: Path) -> bool:
    """Whether a signature says to be by a key."""
    held = _read_key(key)
    if held.startswith(b"-----BEGIN"):
        return signature.get("public_key") == _encode_base64(_public_key(held, key))
    return signature.get("kind") == HMAC and signature.get("key") == _key_fingerprint(_secret_key(held, key))


def verify(content: str, signature: Mapping[str, str], key: Path | None = None) -> str:
    """Checks a signature, and says who signed when, and what that proves.

    Args:
        content: the hash of the plan as it is now.
        signature: as `sign` returns it.
        key: the public key of the signer (PEM), or the shared secret; without it an Ed25519 signature is checked with
            the key that it brings itself, which proves that nothing was changed since, but not by whom it was signed.

    Raises:
        DeviationError: the signature is not of this content, or not by this key.
        UserError: the key cannot be read.
    """
    who = f"signed by {signature.get('by')} ({signature.get('meaning')}) at {signature.get('signed')}"
    statement = {name: value for name, value in signature.items() if name != "signature"}
    held = None if key is None else _read_key(key)
    covered, signature_text = _covered_bytes(content, statement), str(signature.get("signature", ""))
    if signature.get("kind") == HMAC:
        if held is None:
            return f"{who} with a secret (HMAC), which was not checked: name its file by plan_key="
        if not hmac.compare_digest(hmac.new(_secret_key(held, key), covered, "sha256").hexdigest(), signature_text):
            raise DeviationError(f"the plan's signature is not by the secret {key}, or the plan was changed: {who}")
        return f"{who}; checked with the secret {key}"
    if signature.get("kind") != ED25519:
        raise DeviationError(f"the plan's signature is of an unknown kind {signature.get('kind')!r}: {who}")
    public = b"" if held is None else _public_key(held, key)
    kinds = import_optional("cryptography.hazmat.primitives.asymmetric.ed25519")
    invalid = import_optional("cryptography.exceptions").InvalidSignature
    if held is not None and _encode_base64(public) != signature.get("public_key"):
        raise DeviationError(f"the plan was not signed by the key {key}, but by {signature.get('key')}: {who}")
    try:
        public = public or base64.b64decode(signature.get("public_key", ""))
        kinds.Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature_text), covered)
    except (invalid, ValueError) as error:
        raise DeviationError(
            f"the plan's signature does not fit: the plan, or who signed when, was changed: {who}"
        ) from error
    checked = f"checked with {key}" if key is not None else "unchanged since; whose key that is, plan_key= checks"
    return f"{who} with the key {signature.get('key')}; {checked}"


def _covered_bytes(content: str, said: Mapping[str, str]) -> bytes:
    return canonical({"content": content, **said})


def _public_key(held: bytes, key: Path | None) -> bytes:
    """Raw public key of a PEM file, public or private."""
    serialization = import_optional("cryptography.hazmat.primitives.serialization")
    with UserError.about(key, "cannot be read as an Ed25519 key", ValueError, TypeError, AttributeError):
        if b"PRIVATE KEY" in held:
            return bytes(serialization.load_pem_private_key(held, password=None).public_key().public_bytes_raw())
        return bytes(serialization.load_pem_public_key(held).public_bytes_raw())


def _secret_key(held: bytes, key: Path | None) -> bytes:
    secret = held.strip()
    if len(secret) < SHORTEST_SECRET:
        raise UserError(
            f"{key}: holds {len(secret)} bytes; a secret needs at least {SHORTEST_SECRET}: openssl rand -hex 32"
        )
    return secret


def _read_key(key: Path) -> bytes:
    with UserError.about(key, "cannot be read", OSError, mend="name a key by its file"):
        return key.read_bytes()


def _key_fingerprint(key: bytes) -> str:
    """Fingerprint of a key; of a secret it reveals nothing else."""
    return f"SHA256:{hashlib.sha256(b'medimg_eval plan key' + key).hexdigest()[:32]}"


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
