"""Every error that localspec raises on purpose, and the exit code it ends a command with.

::

    LocalspecError                 1
    ├── UsageError                 2   a parameter, prompt or flag that is refused
    │   ├── ContextError           2   a prompt larger than the context, with the numbers
    │   ├── TemplateEndedError     2   a chat template that was ended; the next request may work
    │   ├── MediaError             2   a picture that is refused, or that this model cannot see
    │   └── NothingAllowedError    2   a logit bias (and a grammar) that forbid every token
    │       └── GrammarError       2   a reply cannot follow its grammar any further
    ├── ModelNotFoundError         3   no such name or file, or not there offline
    ├── AccessError                4   gated or private, token missing or refused
    ├── OutOfMemoryError           5   does not fit, with the numbers
    ├── DraftIncompatibleError     6   the draft cannot be used with this target
    ├── ModelFileError             7   not a GGUF, truncated, damaged
    │   └── UnsupportedModelError  7   a whole file, but not a model that can chat here
    ├── QueueFullError             1   more requests wait than may; try again later
    ├── ProposalError              1   a verifier was handed a proposal it is not exact for
    ├── DecodeError                1   llama.cpp refused or failed a pass
    │   ├── PassRefusedError       1   a pass that is not possible; nothing was computed
    │   ├── ContextFullError       1   no room left in the KV cache
    │   └── NotNumbersError        1   logits are not numbers: a damaged file
    ├── UnreadyError               1   a draft model lacks what it drafts from; never shown
    ├── AuditError                 1   our own bookkeeping disagrees: a bug in localspec
    ├── UnsoundBuildError          1   llama.cpp, as it was built, computes wrongly or crashes here
    ├── NoKernelError              1   no kernel of ours for a format or an instruction set
    ├── StrictError                1   strict mode cannot be promised here, with what differed
    ├── EngineError                1   the engine process died or broke the protocol
    │   ├── DefectError            1   it failed at one command, and goes on: a bug in localspec
    │   └── DeviceError            1   it died because a device failed
    │       ├── DeviceMemoryError  1   the GPU, or the machine, ran out of memory
    │       ├── DeviceLostError    1   the GPU is gone, as after sleep
    │       └── WorkerLostError    1   a worker of --rpc is gone or hangs
    ├── UnreadableError            1   a document that has no text for a model
    ├── ToolError                  1   a server of tools, or a call of one, failed
    ├── WorkerError                1   a worker of --rpc cannot be used, or cannot be started here
    ├── PeerError                  1   a program to compare with does not start or answer
    ├── RemoteError                1   a server elsewhere does not answer, or not with a reply
    ├── ChatsError                 1   chats cannot be saved or found: locked, disk full, no such id
    │   ├── ChatRefusedError       1   the file of chats is well and does not take one chat
    │   └── ChatsFileError         7   the file of chats is damaged, or of a newer localspec
    └── Interrupted              130   stopped by the user; emitted text is kept

A message is one line that says what happened and what to do about it.
"""

from __future__ import annotations


class LocalspecError(Exception):
    """Base of all. ``str(error)`` is one line for the user."""

    exit_code = 1


class UsageError(LocalspecError):
    """A parameter, prompt or flag that is refused."""

    exit_code = 2


class TemplateEndedError(UsageError):
    """A chat template's process was ended: the same may be answered the next time."""


class ContextError(UsageError):
    """A prompt that no context of this size can hold."""


class MediaError(UsageError):
    """A picture that is damaged, too large or of no known kind, or that the model cannot see."""


class NothingAllowedError(UsageError):
    """A logit bias, perhaps with a grammar, that leaves no token to choose."""


class GrammarError(NothingAllowedError):
    """No token continues a reply as its grammar wants, or following the grammar takes too long."""


class ModelNotFoundError(LocalspecError):
    """No model by that name or at that path."""

    exit_code = 3


class AccessError(LocalspecError):
    """The Hub refuses: a gated or private repository, or a missing token."""

    exit_code = 4


class OutOfMemoryError(LocalspecError):
    """The model or its context does not fit into memory."""

    exit_code = 5


class DraftIncompatibleError(LocalspecError):
    """The draft's vocabulary is not the target's; raised only where a draft is required."""

    exit_code = 6


class ModelFileError(LocalspecError):
    """The file is not a readable GGUF."""

    exit_code = 7


class UnsupportedModelError(ModelFileError):
    """The file is whole, but it is not a language model that this build can chat with."""


class QueueFullError(LocalspecError):
    """The queue of requests is full."""


class ProposalError(LocalspecError):
    """A draft whose proposal the verifier does not list; the result would not be exact."""


class DecodeError(LocalspecError):
    """llama.cpp refused or failed a decode."""


class NotNumbersError(DecodeError):
    """A model's logits are not numbers."""


class PassRefusedError(DecodeError):
    """A pass that is too wide, or of tokens that the model does not have."""


class ContextFullError(DecodeError):
    """llama.cpp found no KV slot for the batch."""


class UnreadyError(LocalspecError):
    """A draft model lacks what it would draft from; it may have it after the next round."""


class AuditError(LocalspecError):
    """Committed length, KV length and cache lengths disagree: a defect of localspec."""


class UnsoundBuildError(LocalspecError):
    """This build of llama.cpp computes wrongly on this processor, crashes or hangs."""


class NoKernelError(LocalspecError):
    """The library of our kernels, or this processor, lacks a format or an instruction set."""


class StrictError(LocalspecError):
    """Bits depend on how a text is cut into passes, so strict mode is refused."""


class EngineError(LocalspecError):
    """The engine process died, could not start, or broke the protocol."""


class DefectError(EngineError):
    """The engine could not read one command, or failed at it by a defect of localspec; it runs."""


class DeviceError(EngineError):
    """The engine process ended because a device failed; what arrived of the reply is whole."""


class DeviceMemoryError(DeviceError):
    """The GPU, or the machine, ran out of memory while it computed; a smaller plan may do."""


class DeviceLostError(DeviceError):
    """The GPU is gone, as after sleep or a reset of its driver."""


class WorkerLostError(DeviceError):
    """A worker that has layers of the target is gone, or has not answered for long."""


class UnreadableError(LocalspecError):
    """A document without text for a model; the message says why."""


class ToolError(LocalspecError):
    """A server of tools or a call failed; the text is for the user and for the model."""


class WorkerError(LocalspecError):
    """A worker is not there, or not of this version; or this machine cannot be one."""


class PeerError(LocalspecError):
    """Another program, to be compared with, does not start or does not answer."""


class RemoteError(LocalspecError):
    """A server elsewhere does not answer, breaks off, or sends something other than a reply."""


class ChatsError(LocalspecError):
    """Chats cannot be written or found."""


class ChatRefusedError(ChatsError):
    """The file of chats does not take this chat; others it takes."""


class ChatsFileError(ChatsError):
    """The file of chats, or one to be imported, is damaged or too new."""

    exit_code = 7


class Interrupted(LocalspecError):  # noqa: N818 - the user's wish, not an error
    """Stopped by the user."""

    exit_code = 130
