"""What the Hub, or the host that it sends downloads to, refuses: as errors of ours."""

from __future__ import annotations

from localspec.errors import AccessError, LocalspecError, ModelNotFoundError
from localspec.models.hub.client import NotAHubError, StatusError, endpoint, token
from localspec.models.hub.environment import is_true


class RevisionGoneError(ModelNotFoundError):
    """The repository is there, the commit, branch or tag is not."""


def explained(repo: str, error: Exception, wait: float) -> LocalspecError:
    """The error to raise; ``wait`` is how many seconds the server asked for."""
    if isinstance(error, NotAHubError):
        return LocalspecError(
            f"{endpoint()} does not answer as a Hub does ({error}); check HF_ENDPOINT"
        )
    if isinstance(error, StatusError):
        if error.redirected:
            return _by_cdn(repo, error)
        return _by_code(repo, error) or _by_status(repo, error, wait)
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return LocalspecError(
        f"cannot reach {endpoint()} ({reason}); what is here works with --offline"
    )


def _by_code(repo: str, error: StatusError) -> LocalspecError | None:
    """By the headers in which the Hub says what it means; None if they say nothing known."""
    code, said = error.headers.get("X-Error-Code", ""), error.headers.get("X-Error-Message", "")
    if code == "GatedRepo":
        return AccessError(f"{repo} is gated{_without_access(repo)}")
    if said == "Access to this resource is disabled.":
        return AccessError(f"the Hub has disabled {repo}")
    if code == "RevisionNotFound":
        return RevisionGoneError(f"{repo} has no such commit, branch or tag")
    if code == "EntryNotFound":
        return ModelNotFoundError(f"{repo} has no such file: {error.path.rsplit('/', 1)[-1]}")
    bad_token = said.startswith(("Invalid credentials", "Invalid user"))
    unknown = error.status == 401 and not bad_token  # so the Hub hides what is private
    if code == "RepoNotFound" or unknown or (error.status == 404 and not code):
        hint = "" if token() else f" (if it is private, set HF_TOKEN{_withheld()})"
        return ModelNotFoundError(f"there is no repository {repo} on {_who()}{hint}")
    return None


def _without_access(repo: str) -> str:
    page = f"{endpoint()}/{repo}"
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
        return LocalspecError(f"the Hub has trouble (status {status}); pull again later")
    return LocalspecError(f"the Hub answers {status} to a request for {repo}")


def _by_cdn(repo: str, error: StatusError) -> LocalspecError:
    """A refusal by the host that the Hub redirected to, which never sees the token."""
    host, status = error.host, error.status
    where = f"{host}, which the Hub sends downloads of {repo} to,"
    if status == 429 or status >= 500:
        return LocalspecError(f"{where} has trouble (status {status}); pull again later")
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
    return "the Hub" if endpoint().endswith("//huggingface.co") else endpoint()


def _withheld() -> str:
    if is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return "; HF_HUB_DISABLE_IMPLICIT_TOKEN keeps your token back"
    return ""
