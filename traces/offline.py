"""What pages share that open offline: Vega as one inline script, and a policy that lets no other script run."""

from __future__ import annotations

import base64
import hashlib

from traces.errors import BadInputError


def vega_script(mount: str) -> str:
    """Return Vega, Vega-Lite and Vega-Embed as installed, followed by `mount`; nothing is fetched.

    Raises `BadInputError` where the extra packages are missing.
    """
    try:
        import vl_convert
    except ImportError:
        raise BadInputError("pictures need the extra packages: pip install 'ramptrace[report]'") from None
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]
    # Inside a script element only these two could end it or start a comment; both are safe to write otherwise in JS.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--") + mount


def content_policy(script: str) -> str:
    """Return the Content-Security-Policy under which this script runs, and nothing else is run or loaded."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src 'none'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
