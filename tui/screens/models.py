"""The model picker: a search over installed models and the catalogue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from textual import on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.errors import LocalspecError
from localspec.core.events import ModelInfo
from localspec.core.files import paths
from localspec.core.in_thread import in_thread
from localspec.core.options import Options
from localspec.core.processes import children
from localspec.loading.machine_speed import machine_speed_async, saved
from localspec.loading.offers import Offer, Offers, best, offers, with_back
from localspec.models.memory import ask_machine
from localspec.models.memory.fit import TOO_BIG
from localspec.models.memory.machine import Memory
from localspec.models.memory.speed import MachineSpeed
from tui.input import keymap, model_list
from tui.input.model_list import Picked, Pull, Standing, Use, UseDraft
from tui.render.text import plain
from tui.screens.sized import PickerScreen
from tui.widgets.key_bar import KeyBar

_TYPED_SECONDS = 0.1
"""How long typing rests before files of that name are looked for."""
_REST_SECONDS = 0.3
"""How long the cursor rests on a model before its file is checked."""


class ModelsScreen(PickerScreen[Offer, Picked | None]):
    """Choose a target, or with Tab a draft for the present one."""

    BINDINGS = keymap.of_screen("models")

    def __init__(
        self, options: Options | None, info: ModelInfo | None, query: str = "", *, drafts: bool
    ) -> None:
        """``options`` and ``info`` are those of the present model, if there is one."""
        super().__init__()
        self._options, self._info = options, info
        self._query = query
        self._drafts = drafts
        self._offers: Offers | None = None
        self._memory: Memory | None = None
        self._speed: MachineSpeed | None = None
        self._measuring = False
        """Whether this machine is being measured, and the figures wait for it."""
        self._best: str | None = None
        """Name of the pair that suits this machine best."""
        self._typed: list[Offer] = []
        self._facts: dict[str, Mapping[str, Any] | str] = {}
        """Output of `localspec show` by name, or its error."""
        self._confirming: str | None = None
        """Name that the user was asked to confirm with a second Enter."""

    def compose(self) -> ComposeResult:
        """A search, the list, and more about the one under the cursor."""
        self.take_size(self.app.size)
        yield Static(markup=False, id="title")
        hint = "search, a path, or user/repo of the Hub"
        yield Input(self._query, placeholder=hint, id="query", validate_on=())
        yield Static(markup=False, id="columns")
        yield self._list
        yield Static(markup=False, id="about")
        yield KeyBar()

    def on_mount(self) -> None:
        """Start to list models and to ask for the memory."""
        self._about = self.query_one("#about", Static)
        self._fill()
        self._list_offers()
        self._ask_memory()
        self._ask_speed()

    @work
    async def _list_offers(self) -> None:
        self._offers = await in_thread(lambda _: self._all())
        self._fill()

    def _all(self) -> Offers:
        """All models, including files of the working folder and of the present model's folder."""
        folders = []
        with contextlib.suppress(OSError):  # it was deleted
            folders.append(Path.cwd())
        if self._options is not None and paths.is_file(present := Path(self._options.model)):
            folders.append(present.parent)
        return offers(folders)

    @work
    async def _ask_memory(self) -> None:
        memory = await in_thread(lambda _: ask_machine.memory())
        self._memory = with_back(memory, self._info)
        self._fill()

    @work(exclusive=True, group="speed")
    async def _ask_speed(self, *, again: bool = False) -> None:
        self._speed = await in_thread(lambda _: saved())
        self._measuring = again or self._speed is None
        self._fill()
        self._speed = await machine_speed_async(again=again)
        self._measuring = False
        self._fill()

    # -- the list ------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Show the models that match."""
        query = self.query_one(Input).value.strip()
        known = self._best_first()
        listed: Sequence[Offer] = known
        if self._drafts:
            below = self._info.target_bytes if self._info is not None else None
            listed = model_list.as_drafts(known, below)
        found = model_list.matching(listed, query)
        names = {offer.name for offer in found}
        more = [offer for offer in self._typed if offer.name not in names]
        if self._drafts:
            more = [offer for offer in more if offer.installed]
        at = self.highlighted
        self.shown = [*found, *more]
        room = max(20, (self._list.content_size.width or self.app.size.width - 4) - 1)
        width = model_list.widest(self.shown, room)
        self._list.set_options(
            Option(model_list.row(o, self._standing(o), width, room, current=self._is_current(o)))
            for o in self.shown
        )
        self.query_one("#columns", Static).update(model_list.header(width, room))
        self.query_one("#title", Static).update(self._title())
        if self.shown:
            wanted = at if at in self.shown else None
            places = enumerate(self.shown)
            kept = (i for i, o in places if (o == wanted if wanted else self._is_current(o)))
            self._list.highlighted = next(kept, 0)
        self._tell()

    def _title(self) -> Content:
        target = Path(self._info.target).name if self._info is not None else "the present target"
        title = f"Drafts for {target}" if self._drafts else "Models"
        name = Content.styled(plain(title), "bold $primary")
        if self._drafts:
            return name
        said = model_list.of_speeds(self._best, self._speed, measuring=self._measuring)
        return Content.assemble(name, (plain(f"   {said}" if said else ""), "$quiet"))

    def _fit(self, offer: Offer) -> str | None:
        return offer.fit(self._memory) if self._memory is not None else None

    def _best_first(self) -> Sequence[Offer]:
        """All models, the one that suits this machine best first."""
        found = self._offers.found if self._offers is not None else ()
        if self._speed is None or self._memory is None:
            return found
        chosen = best(found, self._speed, self._memory)
        self._best = chosen.offer.name if chosen is not None else None
        return sorted(found, key=lambda offer: offer.name != self._best)  # stable

    def _standing(self, offer: Offer) -> Standing:
        """How a model would run here, as far as that is known."""
        if self._speed is None or self._memory is None or self._drafts:
            waits = self._measuring and not self._drafts
            return Standing(self._fit(offer), measuring=waits)
        speed = offer.speed(self._speed, self._memory)
        return Standing(self._fit(offer), speed, best=offer.name == self._best)

    def _is_current(self, offer: Offer) -> bool:
        if self._options is None:
            return False
        if self._drafts:
            return offer.name == (self._options.draft or model_list.OWN)
        return offer.name == self._options.model

    @on(Input.Changed)
    def _changed(self) -> None:
        self._confirming = None
        self._fill()
        self._read_typed()

    @work(exclusive=True, group="typed")
    async def _read_typed(self) -> None:
        await asyncio.sleep(_TYPED_SECONDS)
        query = self.query_one(Input).value.strip()
        found = await in_thread(lambda _: model_list.typed(query)) if query else []
        if found != self._typed:
            self._typed = found
            self._fill()

    # -- about the one under the cursor --------------------------------------------------------

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self._confirming = None
        self._tell()
        self._rest()

    @work(exclusive=True, group="inspect")
    async def _rest(self) -> None:
        await asyncio.sleep(_REST_SECONDS)
        await self._inspect()

    async def _inspect(self) -> None:
        """Check the file under the cursor, in a process of its own."""
        offer = self.highlighted
        if offer is None or not offer.installed or offer.name == model_list.NONE:
            return
        key, drafts = self._key(offer), self._drafts  # Tab may change the list meanwhile
        if key not in self._facts:
            self._facts[key] = await in_thread(lambda _: self._ask(offer, drafts=drafts))
        self._tell()

    def _key(self, offer: Offer) -> str:
        return f"{'draft' if self._drafts else 'target'} {offer.name}"

    def _ask(self, offer: Offer, *, drafts: bool) -> Mapping[str, Any] | str:
        words = [offer.name]
        if drafts:
            model = self._options.model if self._options is not None else "demo"
            words = [model] if offer.name == model_list.OWN else [model, "--draft", offer.name]
        try:
            found: dict[str, Any] = children.ask("localspec", "show", "--json", "--offline", *words)
        except LocalspecError as error:
            return str(error)
        problem = None if drafts else model_list.why_not_alone(found)
        return found if problem is None else problem

    def _tell(self) -> None:
        """Describe the model under the cursor."""
        offer = self.highlighted
        if offer is None:
            self._about.update(Content.styled("\n".join(self._why_empty()), "$quiet"))
            return
        facts = self._facts.get(self._key(offer))
        known = facts if not isinstance(facts, str) else None
        if self._drafts:
            lines = model_list.described_draft(offer, known)
        else:
            lines = model_list.described(offer, self._standing(offer), known)
        parts: list[Content] = [Content.styled("\n".join(lines), "$quiet")]
        if isinstance(facts, str):
            parts.insert(0, Content.styled(plain(facts), "$text-error"))
        if self._confirming == offer.name:
            parts.insert(0, Content.styled(self._question(offer), "$text-accent"))
        problems = self._offers.problems if self._offers is not None else ()
        parts += [Content.styled(plain(line), "$text-error") for line in problems]
        self._about.update(Content("\n").join(parts))

    def _why_empty(self) -> list[str]:
        if self._offers is None:
            return ["searching …"]
        problems = [plain(line) for line in self._offers.problems]
        return [*problems, "no model matches; type a path, or user/repo of the Hub"]

    def _question(self, offer: Offer) -> str:
        if offer.installed:
            return "probably too big for this machine's memory; press Enter again to try it"
        fetch = f"press Enter again to download {offer.name}"
        return (
            f"{fetch}, although it is too big for this machine"
            if self._fit(offer) == TOO_BIG
            else fetch
        )

    # -- choosing ------------------------------------------------------------------------------

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _entered(self) -> None:
        self._choose()

    @work(exclusive=True, group="choose")
    async def _choose(self) -> None:
        offer = self.highlighted
        if offer is None:
            return
        if not offer.installed and not offer.pullable:
            return  # the lines below the list name what is missing
        doubtful = not offer.installed or (self._fit(offer) == TOO_BIG and not self._drafts)
        if doubtful and self._confirming != offer.name:
            self._confirming = offer.name
            self._tell()
            return
        if not offer.installed:
            self.dismiss(Pull(offer.name, force=self._fit(offer) == TOO_BIG))
            return
        key, drafts = self._key(offer), self._drafts
        await self._inspect()
        if self.highlighted is not offer or self._drafts is not drafts:
            return  # the user has gone on
        if isinstance(self._facts.get(key), str):
            return  # it is no model; the error is shown below the list
        if drafts:
            self.dismiss(UseDraft(None if offer.name == model_list.OWN else offer.name))
        else:
            self.dismiss(Use(offer.name))

    def action_choose(self) -> None:
        """Use the model under the cursor, or pull it."""
        self.after_keys(self._choose)

    def action_measure(self) -> None:
        """Measure this machine again."""
        self._ask_speed(again=True)

    def action_drafts(self) -> None:
        """Switch between targets and drafts."""
        self._drafts = not self._drafts
        self._confirming = None
        self._fill()

    def fit(self, size: Size) -> None:
        """Use the available columns."""
        super().fit(size)
        self.call_after_refresh(self._fill)
