"""Grammars as users write them: on the command line, in a file, in the chat."""

from __future__ import annotations

from localspec.core.errors import UsageError
from localspec.core.files import checked, paths
from localspec.core.grammar_spec import MAX_TEXT, GrammarSpec


def schema(text: str, *, pipes: bool = True) -> GrammarSpec:
    """A JSON schema: itself in braces, or the name of its file. Without ``pipes``, which are
    waited for, the file must be a regular one.

    Raises:
        UsageError: no such file, or not a schema that can be followed.
    """
    if text.lstrip().startswith("{"):
        return _checked(GrammarSpec.schema(text))
    inside = _content(text, "a JSON schema in braces or the name of its file", pipes=pipes)
    try:
        return _checked(GrammarSpec.schema(inside))
    except UsageError as error:
        raise UsageError(f"{text}: {error}") from None


def grammar(name: str) -> GrammarSpec:
    """The grammar in a file: GBNF where it has ``::=``, else Lark.

    Raises:
        UsageError: no such file, or not a grammar that can be followed.
    """
    text = _content(name, "the name of a file with a Lark or GBNF grammar")
    is_gbnf = name.endswith(".gbnf") or (not name.endswith(".lark") and "::=" in text)
    try:
        return _checked(GrammarSpec.gbnf(text) if is_gbnf else GrammarSpec.lark(text))
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def choices(text: str) -> GrammarSpec:
    """Texts separated by commas.

    Raises:
        UsageError: one of them is empty.
    """
    return _checked(GrammarSpec.choice([one.strip() for one in text.split(",")]))


def regex(text: str) -> GrammarSpec:
    """A regular expression.

    Raises:
        UsageError: it is not valid.
    """
    return _checked(GrammarSpec.regex(text))


def _checked(spec: GrammarSpec) -> GrammarSpec:
    """The grammar, after a check that needs no model.

    Raises:
        UsageError: it is not valid, or too costly to follow.
    """
    from localspec.grammar.checking import Checker

    Checker().checked(spec)
    return spec


def _content(name: str, wanted: str, *, pipes: bool = True) -> str:
    """The text of a file; see `schema`.

    Raises:
        UsageError: it cannot be read, is larger than any grammar may be, or is no text.
    """
    try:
        path = paths.expand(name)
        with path.open("rb") if pipes else checked.opened(path) as file:
            raw = file.read(4 * MAX_TEXT + 1)
        if len(raw) > 4 * MAX_TEXT:
            raise UsageError(f"{name} is larger than any grammar may be: {4 * MAX_TEXT} bytes")
        return raw.decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no file {name}; give {wanted}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not text in UTF-8; give {wanted}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {name}: {reason}") from None
