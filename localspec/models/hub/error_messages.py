"""Errors for users from failed requests to the Hub, or to the servers it redirects downloads to."""

from __future__ import annotations

import errno
import socket

import httpx2

from localspec.core.errors import AccessError, LocalspecError, ModelNotFoundError
from localspec.models.catalog.links import is_true
from localspec.models.hub.answers import ELSEWHERE, LOG_IN, LOGIN_PAGE, WrongAnswerError
from localspec.models.hub.client import NotAHubError, StatusError, endpoint, is_mirror, shown, token

_NO_NETWORK = {errno.ENETUNREACH, errno.ENETDOWN}
_PROXY_LOGIN, _NETWORK_LOGIN = 407, 511


class RevisionGoneError(ModelNotFoundError):
    """The repository exists, but not the commit, branch or tag."""


def hub_error(repo: str, error: Exception, wait: float) -> LocalspecError:
    """The error to raise for a failed request; ``wait``: seconds that the server asks to wait."""
    if isinstance(error, NotAHubError):
        return LocalspecError(
            f"{shown()} does not answer as a Hub does ({error}); {_what_helps(error)}"
        )
    if (status := login_wanted(error)) is not None:
        return _how_to_log_in(status)
    if isinstance(error, StatusError):
        if error.redirected:
            return _by_cdn(repo, error)
        return _by_code(repo, error) or _by_status(repo, error, wait)
    if isinstance(error, WrongAnswerError):
        return LocalspecError(str(error))
    reason = why_unreachable(error)
    return LocalspecError(
        f"cannot reach {shown()}: {reason}; the demo and downloaded models still work, with "
        "--offline"
    )


def login_wanted(error: Exception) -> int | None:
    """The status by which a proxy or the network asks for a login; None for any other error."""
    if isinstance(error, StatusError) and error.status in {_PROXY_LOGIN, _NETWORK_LOGIN}:
        return error.status
    refused = isinstance(error, httpx2.ProxyError) and str(error).startswith(str(_PROXY_LOGIN))
    return _PROXY_LOGIN if refused else None


def _how_to_log_in(status: int) -> LocalspecError:
    if status == _NETWORK_LOGIN:
        return LocalspecError(f"the network wants a login ({status}); {LOG_IN}, and pull again")
    return LocalspecError(
        f"the proxy wants a login ({status}); write http://USER:PASSWORD@HOST:PORT into "
        "HTTPS_PROXY or HTTP_PROXY, and pull again"
    )


def _what_helps(error: NotAHubError) -> str:
    if error.page:
        return LOGIN_PAGE + (", or check HF_ENDPOINT" if is_mirror() else "")
    return "check HF_ENDPOINT" if is_mirror() else f"pull again later, or {ELSEWHERE}"


def why_unreachable(error: BaseException) -> str:
    """Why a server could not be asked, in a few words."""
    if _offline(error):
        return "there is no network, or it does not know this name"
    return " ".join(str(error).split())[:200] or type(error).__name__


def _offline(error: BaseException | None) -> bool:
    """Whether a request failed because there is no network at all."""
    while error is not None:
        inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        if isinstance(error, socket.gaierror) or getattr(error, "errno", None) in _NO_NETWORK:
            return True
        error = inner or error.__cause__ or error.__context__
    return False


def _by_code(repo: str, error: StatusError) -> LocalspecError | None:
    """The error by the Hub's own error headers; None if they are absent or unknown."""
    code, message = error.headers.get("X-Error-Code", ""), error.headers.get("X-Error-Message", "")
    if code == "GatedRepo":
        return AccessError(f"{repo} is gated{_without_access(repo)}")
    if message == "Access to this resource is disabled.":
        return AccessError(f"the Hub has disabled {repo}")
    if code == "RevisionNotFound":
        return RevisionGoneError(f"{repo} has no such commit, branch or tag")
    if code == "EntryNotFound":
        return ModelNotFoundError(f"{repo} has no such file: {error.path.rsplit('/', 1)[-1]}")
    bad_token = message.startswith(("Invalid credentials", "Invalid user"))
    unknown = error.status == 401 and not bad_token  # the Hub hides private repositories so
    if code == "RepoNotFound" or unknown or (error.status == 404 and not code):
        hint = "" if token() else f" (if it is private, set HF_TOKEN{_withheld()})"
        return ModelNotFoundError(f"there is no repository {repo} on {_who()}{hint}")
    return None


def _without_access(repo: str) -> str:
    page = f"{shown()}/{repo}"
    if token() is None:
        return (
            f": accept its terms at {page}, then log in with `hf auth login` or set "
            f"HF_TOKEN{_withheld()}"
        )
    return (
        f", and your token has no access: accept its terms at {page}, and let the token read "
        "gated repositories"
    )


def _by_status(repo: str, error: StatusError, wait: float) -> LocalspecError:
    status = error.status
    if status in {401, 403}:
        which = "your token" if token() else "reading without a token"
        return AccessError(
            f"the Hub refuses {which} for {repo} ({status}); check HF_TOKEN or `hf auth login`"
            + _withheld()
        )
    if status == 429:
        when = f" for {wait:.0f} s" if wait else ""
        return LocalspecError(f"the Hub asks to wait{when} (429); pull again later")
    if status >= 500:
        return LocalspecError(f"the Hub has a problem (status {status}); pull again later")
    return LocalspecError(f"the Hub answers {status} to a request for {repo}")


def _by_cdn(repo: str, error: StatusError) -> LocalspecError:
    """The error for a refusal by the server of a redirect, which never gets the token."""
    host, status = error.host, error.status
    where = f"{host}, which the Hub sends downloads of {repo} to,"
    if status == 429 or status >= 500:
        return LocalspecError(f"{where} has a problem (status {status}); pull again later")
    if status == 400:
        return LocalspecError(
            f"{where} refuses the request (400), as it does for files that are too large for "
            "plain downloads; `hf download` may fetch it into the same cache"
        )
    return LocalspecError(
        f"{where} refuses (status {status}); your token is not the reason: a proxy or firewall may "
        f"block {host}, else pull again later"
    )


def _who() -> str:
    return "the Hub" if endpoint().endswith("//huggingface.co") else shown()


def _withheld() -> str:
    if is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return "; HF_HUB_DISABLE_IMPLICIT_TOKEN withholds your token"
    return ""
