"""The certificate of Locust's web page: looked at before anything is served: without a key Locust serves plain HTTP."""

from __future__ import annotations

import ssl

from traces.errors import BadInputError


def check(cert: str | None, key: str | None) -> None:
    """Raise `BadInputError` unless both files are named and belong together, or neither is named."""
    if not cert and not key:
        return
    if not cert or not key:
        given, missing = ("--tls-cert", "--tls-key") if cert else ("--tls-key", "--tls-cert")
        raise BadInputError(f"{given} needs {missing} beside it: without it the page would go over plain HTTP")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        why = getattr(error, "reason", None) or error.strerror or error
        raise BadInputError(
            f"--tls-cert {cert}, --tls-key {key}: cannot be used ({why}); expected PEM files that belong together"
        ) from error
