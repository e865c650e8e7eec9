"""Primitives from `cryptography`: key agreement, key derivation, sealed messages, signatures. Keys are raw bytes."""

from typing import Any

KEY = 32
# Any private key: a weak public key yields no secret with one.
_PROBE = bytes(range(KEY))


def new_agreement_key() -> bytes:
    """An X25519 private key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate().private_bytes_raw()


def agreement_public(private: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes, about: bytes) -> bytes:
    """The secret key shared by two parties; a different one for each `about`. Raises ValueError for a weak key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    return derive(shared, about)


def is_agreement_key(public: bytes) -> bool:
    """Whether this is a public key with which a secret can be agreed on: of 32 bytes, and not one of the weak ones."""
    try:
        agree(_PROBE, public, b"")
    except ValueError:
        return False
    return True


def derive(secret: bytes, about: bytes) -> bytes:
    """HKDF with SHA-256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY, None, about).derive(secret)


def seal(key: bytes, content: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate, with `about` as associated data. A key seals only one message: the nonce is 0."""
    return _cipher(key).encrypt(bytes(12), content, about)


def unseal(key: bytes, content: bytes, about: bytes) -> bytes:
    """The content passed to `seal`; raises ValueError if a bit of it, or of `about`, has changed."""
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(key).decrypt(bytes(12), content, about)
    except InvalidTag:
        raise ValueError("the message was not sealed by the holder of this key") from None


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)


def new_signing_key() -> bytes:
    """An Ed25519 private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes_raw()


def signing_public(private: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, content: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).sign(content)


def is_signed(public: bytes, signature: bytes, content: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
