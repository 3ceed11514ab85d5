"""Who a certificate speaks of, who can make one, and what of it anybody sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.control import EVALUATOR
from netdfl.core.errors import InputError
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import SUPERVISOR, CertificateSubject, name_of, names_of, read_names

RUN = "0123456789abcdef"
AUTHORITY = Authority.make(RUN)
members = st.sampled_from([SUPERVISOR, EVALUATOR]) | st.integers(0, (1 << 32) - 1)
runs = st.text("0123456789abcdef", min_size=1, max_size=16)
whoever = st.builds(CertificateSubject, runs, members, st.integers(0, 1 << 20))


def leaf_of(certificate: str) -> x509.Certificate:
    return x509.load_pem_x509_certificates(certificate.encode())[0]


def dns_names(certificate: x509.Certificate) -> list[str]:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


@given(whoever)
def test_names_say_who_it_is(caller: CertificateSubject) -> None:
    asked, calling = names_of(caller)
    assert asked == name_of(caller.run, caller.node)
    assert read_names(names_of(caller)) == caller
    assert read_names([calling]) == caller
    assert read_names([asked]) is None
    assert max(map(len, asked.split("."))) <= 63


@given(whoever, whoever)
def test_two_names_are_nobodys(one: CertificateSubject, other: CertificateSubject) -> None:
    found = read_names([*names_of(one), *names_of(other)])
    assert found == (one if one == other else None)


@given(
    st.text(max_size=60)
    | st.from_regex(r"epoch-[0-9a-z]*\.[a-z]*-?[0-9]*\.[0-9a-f]*\.(netdfl|NETDFL|net)\n?", fullmatch=True)
)
def test_any_name_is_read_or_nobodys(name: str) -> None:
    found = read_names([name])
    assert found is None or names_of(found)[1] == name


@pytest.mark.parametrize(
    "name",
    [
        f"epoch-01.node-1.{RUN}.netdfl",
        f"epoch-1.node-01.{RUN}.netdfl",
        f"epoch-1.node--1.{RUN}.netdfl",
        f"epoch-1.somebody.{RUN}.netdfl",
        f"x.epoch-1.node-1.{RUN}.netdfl",
        f"epoch-1.node-1.{RUN}.netdfl.example",
        f"epoch-1.node-1.{RUN}.netdfl\n",
        f"epoch-\u0661.node-1.{RUN}.netdfl",
    ],
)
def test_a_name_that_is_nearly_one_is_nobodys(name: str) -> None:
    assert read_names([name]) is None


def test_a_certificate_is_of_one_life_signed_by_the_runs_authority() -> None:
    made = AUTHORITY.issue(3, 2)
    leaf, root = leaf_of(made.certificate), leaf_of(made.authority)
    assert read_names(dns_names(leaf)) == CertificateSubject(RUN, 3, 2)
    leaf.verify_directly_issued_by(root)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (leaf.not_valid_before_utc, leaf.not_valid_after_utc) == (
        root.not_valid_before_utc,
        root.not_valid_after_utc,
    )
    assert load_pem_private_key(made.key.encode(), None).public_key() == leaf.public_key()


def test_every_life_has_a_key_of_its_own() -> None:
    assert AUTHORITY.issue(3, 0).key != AUTHORITY.issue(3, 0).key


def test_a_nodes_own_authority_can_be_carried_as_text_and_is_bound_to_its_name() -> None:
    own = Authority.from_pem(AUTHORITY.of_node(3).to_pem(), 3)
    made = own.issue(3, 1)
    leaf, above = x509.load_pem_x509_certificates(made.certificate.encode())
    leaf.verify_directly_issued_by(above)
    above.verify_directly_issued_by(leaf_of(made.authority))
    bound = above.extensions.get_extension_for_class(x509.NameConstraints)
    assert bound.critical
    assert bound.value.permitted_subtrees == [x509.DNSName(f"node-3.{RUN}.netdfl")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no key and certificates"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no key and certificates"),
        (AUTHORITY.to_pem(), "not those that `netdfl credentials` writes"),
        (AUTHORITY.of_node(2).to_pem(), "it is of node-2, not of node 3"),
    ],
)
def test_what_is_no_nodes_authority_is_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Authority.from_pem(text, 3)


def test_no_representation_shows_a_key() -> None:
    made, own = AUTHORITY.issue(3, 0), AUTHORITY.of_node(3)
    for shown in (repr(made), str(made), repr(replace(made, run="x")), repr(own), str(own), f"{[made, own]}"):
        assert "KEY" not in shown
        assert "BEGIN" not in shown
