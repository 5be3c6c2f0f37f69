# SPDX-License-Identifier: Apache-2.0
"""Secrets of sandboxes, as Python gives them."""

from __future__ import annotations

import os

import pytest

import cay
from cay.errors import CayError

VALUE = "s3cr3t-value-of-the-tests"


def test_inside_is_a_placeholder_and_the_repr_has_no_value() -> None:
    secret = cay.Secret("TOKEN", VALUE, ["api.test:bearer"])
    assert VALUE not in repr(secret)
    with cay.Sandbox.create(allow=["api.test"], secrets=[secret]) as sandbox:
        token = sandbox.exec(["printenv", "TOKEN"]).stdout.strip()
        assert token.startswith("CAY_PLACEHOLDER_")
        assert sandbox.exec(["printenv", "SSL_CERT_FILE"]).stdout.strip()
    with cay.Sandbox.create(allow=["api.test"], secrets=[secret]) as other:
        assert other.exec(["printenv", "TOKEN"]).stdout.strip() != token


@pytest.mark.parametrize(
    "secret, hint",
    [
        (cay.Secret("TOKEN", VALUE, ["other.test"]), "--allow other.test"),
        (cay.Secret("TOKEN", VALUE, []), "name the hosts"),
        (cay.Secret("1", VALUE, ["api.test"]), "letters, digits"),
        (cay.Secret("TOKEN", VALUE[:5], ["api.test"]), "8 to 4096 bytes"),
        (cay.Secret("TOKEN", VALUE + "\n", ["api.test"]), "without control characters"),
    ],
)
def test_a_mistake_is_answered_without_the_value(secret: cay.Secret, hint: str) -> None:
    with pytest.raises(CayError) as raised:
        cay.Sandbox.create(allow=["api.test"], secrets=[secret])
    assert hint in raised.value.hint
    assert VALUE[:5] not in str(raised.value) + raised.value.hint
    os.fstat(0)  # is still open
