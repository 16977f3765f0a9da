"""Plans a pull: chooses files, reads their headers and checks that they match."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.core.drafter_registry import MODEL
from localspec.core.errors import (
    DraftIncompatibleError,
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from localspec.core.options import NO_DRAFT
from localspec.models.catalog import file_names, hf_cache, projectors
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.file_names import RepoFile
from localspec.models.catalog.links import MAIN, HubRef
from localspec.models.catalog.pair import (
    DRAFT_MODEL,
    MTP_EMBEDDED,
    HubFile,
    LocalFile,
    Pair,
    PairFile,
)
from localspec.models.catalog.reference import (
    LocalRef,
    ModelRef,
    PairRef,
    reference,
    require_on_hub,
)
from localspec.models.compat import heads
from localspec.models.compat.header_vocabulary import (
    HeaderVocabulary,
    require_text_model,
    vocabulary_mismatch,
)
from localspec.models.gguf.header import read_header
from localspec.models.gguf.shards import shard_names
from localspec.models.hub import api
from localspec.models.hub.api import header_of
from localspec.models.hub.download_jobs import WaitNotices
from localspec.models.hub.error_messages import RevisionGoneError
from localspec.models.hub.pull_plan import PullPart, PullPlan
from localspec.models.memory.fit import quick_verdict

_SMALLER = 3
"""A draft should be this many times smaller than its target at least."""
_MOST_SUGGESTIONS = 3
"""Headers to read in search of a draft; each is a few megabytes."""


def prepare(
    name: str, draft: str | None, waits: WaitNotices | None = None, *, sees: bool = True
) -> PullPlan:
    """Plan a pull and check that target and draft match; reads a few megabytes of headers.

    ``sees``: with the projector of the target, if its repository has one. ``waits`` is notified
    where the Hub asks to wait, and may cancel.

    Raises:
        UsageError: an empty name, or one that matches several files.
        ModelNotFoundError: no such name, repository, file or quantization.
        AccessError: gated, private, or a token refused.
        DraftIncompatibleError: the draft cannot draft for the target.
        ModelFileError: the Hub's file is not the pinned one, or not a GGUF.
        UnsupportedModelError: it is not a text model.
        LocalspecError: the Hub cannot be reached.
        Interrupted: cancelled by ``waits``.
    """
    return _Planner(name, draft, waits or WaitNotices(), sees).plan()


@dataclass
class _Planner:
    name: str
    draft: str | None
    waits: WaitNotices
    sees: bool
    notices: list[str] = field(default_factory=list)

    def plan(self) -> PullPlan:
        ref = reference(self.name)
        pair = ref.pair if isinstance(ref, PairRef) else None
        target = self.part("target", _source(self.name, ref))
        require_text_model(target.header)
        projector = self.projector_part(target) if self.sees else None
        draft = self.draft_part(pair)
        if draft is not None:
            self.require_match(target, draft)
        elif pair is not None and self.draft is None:
            self.note_head(target, pair)
        suggestion = None
        carried = heads.carries_mtp(target.header)
        if draft is None and self.draft is None and pair is None and not carried:
            suggestion = self.suggest(target)
        return PullPlan(
            name=self.name,
            draft_name=self.draft,
            pair=pair,
            target=target,
            draft=draft,
            projector=projector,
            verdict=quick_verdict(
                target.n_bytes, sum(part.n_bytes for part in (draft, projector) if part)
            ),
            notices=tuple(self.notices),
            suggestion=suggestion,
        )

    def draft_part(self, pair: Pair | None) -> PullPart | None:
        if self.draft == NO_DRAFT:
            return None
        if self.draft is not None:
            ref = reference(self.draft)
            if isinstance(ref, PairRef) and ref.pair.draft is not None:
                return self.part("draft", ref.pair.draft)
            return self.part("draft", _source(self.draft, ref))
        if pair is None:
            return None
        return None if pair.draft is None else self.part("draft", pair.draft)

    def note_head(self, target: PullPart, pair: Pair) -> None:
        """Note where a target of the catalogue lacks the head that it should carry."""
        header = target.header
        if pair.drafting == MTP_EMBEDDED and header.shards == 1 and not heads.carries_mtp(header):
            why = heads.mtp_problem(header) or f"{header.name} carries no such layer"
            self.notices.append(f"{pair.name} should carry a layer for drafting: {why}")

    def projector_part(self, target: PullPart) -> PullPart | None:
        """The projector in the target's folder of the repository; None, with a note, if it is of
        no use here.
        """
        if target.repo is None:
            return None
        found = file_names.projector(target.repo.entries, target.entries[0].path)
        if found is None:
            return None
        try:
            header = header_of(target.repo, found, self.waits)
        except ModelFileError as error:
            self.notices.append(f"{found.path} is not fetched: {error}")
            return None
        why = projectors.why_useless(target.header, header.metadata)
        if why:
            self.notices.append(f"{found.path} is not fetched: it {why}")
            return None
        return PullPart("projector", header, target.repo, (found,), None, target.branch)

    def require_match(self, target: PullPart, draft: PullPart) -> None:
        mismatch = heads.why_incompatible(target.header, draft.header)
        if mismatch is not None:
            raise DraftIncompatibleError(
                f"{draft.header.name} cannot draft for {target.header.name}: {mismatch}; nothing "
                "was fetched (--draft none pulls the target alone)"
            )

    def part(self, role: str, source: PairFile | HubRef) -> PullPart:
        if isinstance(source, LocalFile):
            header = read_header(source.path)
            return PullPart(role, header, None, (), source.path, None)
        if isinstance(source, HubFile):
            repo, entry = self.pinned(source)
            branch = None if source.revision else MAIN
            if branch:
                self.note_drift(repo, entry, branch)
            this = HubRef(repo.name, entry.path)
            whole = file_names.choose(this, file_names.candidates(repo.entries, this))
            return PullPart(
                role, header_of(repo, whole.first, self.waits), repo, whole.entries, None, branch
            )
        return self.chosen(role, source)

    def chosen(self, role: str, wanted: HubRef) -> PullPart:
        """The model that a reference names; files that are not models are skipped."""
        repo = api.look_up(wanted.repo, wanted.revision, self.waits)
        found = file_names.candidates(repo.entries, wanted)
        asked = wanted.revision or MAIN
        branch = None if repo.commit.startswith(asked.lower()) else asked
        while True:
            candidate = file_names.choose(wanted, found, small=role == "draft")
            header = header_of(repo, candidate.first, self.waits)
            try:
                if role == "target" or heads.kind(header) == MODEL:
                    require_text_model(header)
            except UnsupportedModelError:
                others = [c for c in found if c is not candidate]
                if wanted.tag is not None or not others:
                    raise
                found = others
            else:
                if branch is not None:
                    self.note_drift(repo, candidate.first, branch)
                return PullPart(role, header, repo, candidate.entries, None, branch)

    def note_drift(self, repo: api.Repo, entry: RepoFile, branch: str) -> None:
        """Note where a file was replaced on the Hub since it was pulled."""
        before = hf_cache.ref(repo.name, branch)
        if before is None or before == repo.commit:
            return
        old = hf_cache.find_file(repo.name, entry.path, before)
        tag = None if old is None else hf_cache.etag(old)
        if tag is not None and hf_cache.is_hash(tag) and tag != entry.etag:
            self.notices.append(
                f"{entry.path} was replaced on the Hub since it was pulled; the new one is "
                "fetched, and the old one stays in the cache (`hf cache prune` drops it)"
            )

    def pinned(self, file: HubFile) -> tuple[api.Repo, RepoFile]:
        """A file of the catalogue, checked against its pinned commit and hash."""
        try:
            repo = api.look_up(file.repo, file.revision, self.waits)
        except RevisionGoneError:
            repo = api.look_up(file.repo, waits=self.waits)
            entry = next((e for e in repo.entries if e.sha256 == file.sha256), None)
            if entry is None or file.sha256 is None:
                raise ModelFileError(
                    f"{file.repo} no longer has the commit that models.toml names, and its "
                    f"{file.file} is another file now; update localspec, or pull "
                    f"{file.repo}:{file.file} unpinned"
                ) from None
            self.notices.append(
                f"{file.repo} was rewritten; the same file is taken from its present commit"
            )
            return repo, entry
        entry = repo.entry(file.file)
        if entry is None:
            there = file_names.listing(file_names.candidates(repo.entries, HubRef(file.repo)))
            raise ModelNotFoundError(f"{file.repo} has no {file.file}; there are {there or 'none'}")
        if file.sha256 is not None and entry.sha256 != file.sha256:
            raise ModelFileError(
                f"{file.file} of {file.repo} is no longer the file that models.toml pins (sha256 "
                f"{(entry.etag)[:12]}…, not {file.sha256[:12]}…); nothing was fetched"
            )
        alone = len(shard_names(file.file)) == 1
        if alone and file.n_bytes is not None and entry.size != file.n_bytes:
            self.notices.append(
                f"{file.file} has {entry.size} bytes, not {file.n_bytes} as before: the "
                "repository has replaced it"
            )
        return repo, entry

    def suggest(self, target: PullPart) -> str | None:
        """Name of a catalogue pair whose draft has the target's vocabulary; None if none has."""
        tried: set[PairFile] = set()
        for pair in catalog().values():
            file = pair.draft if pair.drafting == DRAFT_MODEL else None
            if not isinstance(file, HubFile) or file in tried or len(tried) == _MOST_SUGGESTIONS:
                continue
            alike = pair.family == target.header.architecture
            if not alike or (file.size or 0) * _SMALLER > target.n_bytes:
                continue
            tried.add(file)
            try:
                part = self.part("draft", file)
            except LocalspecError:  # not available, so not suggested
                continue
            ours, theirs = HeaderVocabulary(target.header), HeaderVocabulary(part.header)
            if vocabulary_mismatch(ours, theirs) is None:
                return pair.name
        return None


def _source(name: str, ref: ModelRef) -> PairFile | HubRef:
    """The file or the Hub model to pull for a reference."""
    if isinstance(ref, PairRef):
        return ref.pair.target
    if isinstance(ref, LocalRef) and ref.path.is_file():
        return LocalFile(ref.path)
    return require_on_hub(name, ref)
