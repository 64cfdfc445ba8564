"""A login for Locust's web page (`--web-login`): one user, whose name and password come from the environment."""

from __future__ import annotations

import hmac
import os
import secrets
from typing import Any

from traces.errors import BadInputError

USER, PASSWORD = "RAMPTRACE_WEB_USER", "RAMPTRACE_WEB_PASSWORD"


def install(web_ui: Any) -> None:
    """Guard the page. Raises `BadInputError` when no name or password is set: a login that lets all in is none."""
    import flask
    import flask_login

    name, password = os.environ.get(USER), os.environ.get(PASSWORD)
    if not name or not password:
        raise BadInputError(f"--web-login: set {USER} and {PASSWORD} to what is to be asked for")

    class User(flask_login.UserMixin):  # type: ignore[misc] # untyped base
        id = name

    base = web_ui.app.blueprints["locust"].url_prefix or ""
    submit = f"{base}/ramptrace-login"
    web_ui.app.secret_key = secrets.token_bytes(32)
    web_ui.app.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Strict")
    # Over TLS alone: a browser then never sends the session to the same host's plain ports.
    web_ui.app.config.update(SESSION_COOKIE_SECURE=bool(web_ui.tls_cert))
    web_ui.login_manager.user_loader(lambda known: User() if known == name else None)
    web_ui.auth_args = {"username_password_callback": submit}

    @web_ui.app.route(submit, methods=["POST"])  # type: ignore[untyped-decorator]
    def log_in() -> Any:
        given = [flask.request.form.get(field, "") for field in ("username", "password")]
        # Both are compared in constant time, and together: an answer must not tell which one was wrong.
        right = [hmac.compare_digest(a.encode(), b.encode()) for a, b in zip(given, (name, password), strict=True)]
        if all(right):
            flask_login.login_user(User())
            return flask.redirect(flask.url_for("locust.index"))
        flask.session["auth_error"] = "Wrong name or password"
        return flask.redirect(flask.url_for("locust.login"))
