"""Branches of the chat that is shown: another reply, another question, one branch or the next."""

from __future__ import annotations

from tui.controllers.chat_context import ChatContext
from tui.session.conversation import ChatTurn
from tui.session.open_chat import OpenChat
from tui.session.session_engine import Phase


class BranchController:
    """Asks, repeats, continues and edits in the chat that is shown."""

    def __init__(self, context: ChatContext) -> None:
        self._context, self._session, self._feedback = context, context.session, context.feedback
        self._composer = context.widgets.composer

    def ask_in(self, chat: OpenChat, edited: ChatTurn | None, text: str) -> None:
        """Send a message in a chat, or replace the question ``edited``; what was typed since it was
        sent stays.
        """
        if edited is None:
            self._session.send(text, chat)
            return
        if chat.editing is edited:
            typed = self._composer.text if chat is self._session.chat else chat.typed
            kept = "\n".join(part for part in (chat.set_aside, typed) if part.strip())
            chat.editing, chat.set_aside = None, ""
            if chat is self._session.chat:
                self._composer.put(kept)
                self._feedback.unhint()
                self.show_editing()
            else:
                chat.typed = kept
        self._session.edit(edited, text, chat)

    def again(self) -> None:
        """Answer the last question again; the other reply stays on its branch."""
        if not self._session.regenerate():
            self._feedback.hint("there is no question to answer yet")

    def again_in(self, chat: OpenChat, question: ChatTurn) -> None:
        """Answer a question of a chat again, if that is open still."""
        if chat in self._session.chats.all:
            self._session.regenerate(question, chat)

    def compact(self) -> None:
        """Have the conversation summarized, and go on from the summary on another branch."""
        if not self._session.compact():
            self._feedback.hint("there is no conversation to summarize yet, or a reply is made")

    def vary(self, count: int) -> None:
        """Answer the last question several times more, each on a branch of its own."""
        settings = self._session.settings
        if settings.sampling.temperature == 0:
            self._feedback.hint("at temperature 0 all variants are the same; /temp 0.8 varies them")
        elif self._session.vary(count):
            before, after = (self._context.key(f"chat.branch_{way}") for way in ("before", "after"))
            self._session.tell(
                f"{count} answers are being made, each on a branch of its own: {before} and "
                f"{after} go from one to the next"
            )
        else:
            self._feedback.hint("there is no question to answer yet")

    def continue_reply(self) -> None:
        """Continue the last reply where it was stopped."""
        session = self._session
        if session.replying or session.engine.phase in (Phase.LOADING, Phase.DEAD):
            self._feedback.hint("wait until the model is loaded and not replying")
        elif not session.continue_reply():
            self._feedback.hint("the last reply is complete; /again makes another")

    @property
    def editing(self) -> bool:
        """Whether a question is edited."""
        return self._session.chat.editing is not None

    def edit(self) -> None:
        """Put the last question into the composer, or the one before the one that is edited."""
        chat = self._session.chat
        if chat.editing is None:
            chat.set_aside = self._composer.text
        elif self._composer.text != chat.editing.text:
            self._feedback.hint("Enter sends the changed question; Esc leaves it")
            return
        question = chat.edit_before()
        if question is None:
            self._feedback.hint("there is no question to edit yet")
            return
        self._composer.put(question.text)
        self._composer.focus()
        self.show_editing()
        self._feedback.hint("Enter sends this instead; the other branch is kept")

    def leave_edit(self) -> None:
        """Stop editing; the text from before the edit comes back, and Up brings the changed one."""
        chat = self._session.chat
        question, chat.editing = chat.editing, None
        self._feedback.unhint()
        if question is not None and self._composer.text.strip() not in ("", question.text):
            self._feedback.hint("Up in an empty line brings the changed question back")
            self._composer.put_aside()
        self._composer.put(chat.set_aside)
        chat.set_aside = ""
        self.show_editing()

    def show_editing(self) -> None:
        """Name the edited question in the border of the composer, where there is one."""
        chat = self._session.chat
        self._context.widgets.log.mark(chat.editing)
        title = None
        if chat.editing is not None:
            questions = chat.questions
            place = questions.index(chat.editing) + 1 if chat.editing in questions else 0
            title = f"question {place} of {len(questions)}" if place else "another branch"
            title = f"editing {title}: Esc leaves, {self._context.key('chat.edit')} the one before"
        self._composer.border_title = title
        self._context.screen.refresh_bindings()

    def branch(self, step: int) -> None:
        """Show another branch of the chat."""
        conversation = self._session.chat.conversation
        if conversation.place[1] < 2:
            self._feedback.hint("this chat has one branch; /again and /edit make others")
        elif self._session.branch(step):
            place, count = conversation.place
            self._feedback.hint(f"branch {place} of {count}")
        else:
            self._feedback.hint(f"this is the {'last' if step > 0 else 'first'} branch")
