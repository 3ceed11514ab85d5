"""Certificate authorities: one for a run, and below it one for each node, which can certify only that node.

The supervisor keeps the authority of the run. A node without a supervisor has an authority of its own, so that it can
certify itself after a restart. Keys are P-256. All certificates are valid for as long as the run's authority, so that a
machine with a wrong clock makes valid ones too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.transport.security.credentials import CertificateSubject, Credentials, name_of, names_of

EARLIER, LIFETIME = timedelta(days=1), timedelta(days=366)
_ROOT, _OF_NODE = 1, 0  # how many authorities may stand below


@dataclass(frozen=True)
class Authority:
    """A certificate authority for the nodes of `run`, or for the single node `node`.

    `chain` is its own certificate, followed by the certificate of the authority that signed it, if there is one.
    """

    run: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    chain: tuple[x509.Certificate, ...] = field(repr=False)
    node: NodeId | None = None

    @classmethod
    def make(cls, run: str) -> Self:
        """Create the authority of a run; `run` is the run's id, a hexadecimal number."""
        key, name = _new_key(), _named(f"{run}.netdfl")
        since = datetime.now(UTC) - EARLIER
        made = _begun(name, name, key.public_key(), since, since + EARLIER + LIFETIME)
        return cls(run, key, (_finished(made, key, _ROOT),))

    def of_node(self, node: NodeId) -> Self:
        """Return an authority that certifies only `node`, after each restart; TLS refuses its other certificates."""
        key, name = _new_key(), name_of(self.run, node)
        made = self._begin(name, key).add_extension(x509.NameConstraints([x509.DNSName(name)], None), critical=True)
        return type(self)(self.run, key, (_finished(made, self.key, _OF_NODE), *self.chain), node)

    def issue(self, node: NodeId, epoch: int) -> Credentials:
        """Return a new key and certificate for `node` after its restart number `epoch` (0: its first start)."""
        key, names = _new_key(), names_of(CertificateSubject(self.run, node, epoch))
        made = self._begin(names[0], key).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        leaf = _finished(made.add_extension(uses, critical=False), self.key)
        return Credentials(
            run=self.run,
            authority=_pem(self.chain[-1]),
            certificate="".join(map(_pem, (leaf, *self.chain[:-1]))),
            key=_key_pem(key),
        )

    def to_pem(self) -> str:
        """Return the authority with its private key as PEM text, for a file that only its owner may read."""
        return _key_pem(self.key) + "".join(map(_pem, self.chain))

    @classmethod
    def from_pem(cls, text: str, node: NodeId) -> Self:
        """Read the authority of `node` from text that `to_pem` wrote.

        Raises InputError if the text holds no authority, or the authority of another node.
        """
        try:
            key = serialization.load_pem_private_key(text.encode(), None)
            chain = tuple(x509.load_pem_x509_certificates(text.encode()))
        except (ValueError, TypeError) as error:
            raise InputError("no key and certificates are there, as `netdfl credentials` writes them") from error
        mine, _, domain = _common_name(chain[0]).partition(".")
        if len(chain) != 2 or not isinstance(key, ec.EllipticCurvePrivateKey) or not domain.endswith(".netdfl"):
            raise InputError("its key and certificates are not those that `netdfl credentials` writes")
        run = domain.removesuffix(".netdfl")
        if name_of(run, node) != _common_name(chain[0]):
            raise InputError(f"it is of {mine}, not of node {node}")
        return cls(run, key, chain, node)

    def _begin(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        own = self.chain[0]
        return _begun(
            _named(name), own.subject, key.public_key(), own.not_valid_before_utc, own.not_valid_after_utc
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer, name, key, x509.random_serial_number(), since, until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )  # fmt: skip


def _finished(
    made: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, below: int | None = None
) -> x509.Certificate:
    """Sign the certificate `made` with the key `signer`.

    With `below`, it is the certificate of an authority, below which there may be `below` levels of authorities.
    """
    authority = x509.BasicConstraints(ca=below is not None, path_length=below)
    return made.add_extension(authority, critical=True).sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""
