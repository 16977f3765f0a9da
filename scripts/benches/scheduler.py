"""The cost of a round of several replies outside of llama.cpp: microseconds of processor time of
the thread that computes.

The logits of the target are random and computed beforehand, so every measured microsecond is
localspec's own: the round itself (planning, logits processing, verification) and the work of the
scheduler (events, text, the queue to the reader).

``--cold`` reads 64 MB in place of each target pass and 4 MB in place of each draft pass, whose time
does not count: like a real pass, that leaves nothing of Python in the processor's caches, and the
same work takes several times as long. ``--draft parked`` runs the measured policy with a draft
model that is never right, ``--draft right`` with one that mostly is.

``--device MS`` has passes of a device of so many milliseconds, in which the processor is free
(those of the draft model take a fifth of it), and a thread that reads the events of each reply. The
table then has microseconds between the end of a pass and the start of the next one, with the events
handed over between the two and in the next pass, in turns, and the same by parts. ``--k K`` drafts
K tokens in every round instead of asking the policy.
"""

from __future__ import annotations

import argparse

from benches.shared.scheduler_gaps import of_devices
from benches.shared.scheduler_pair import Pair
from localspec.core.events import Finished
from localspec.core.interrupt import Interrupt
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.generation.scheduler import Scheduler

_BUDGET = 150, 60
"""Microseconds of the scheduler for a round, and for each request in it."""


def of_rounds(pair: Pair, sampling: Sampling, requests: int, rounds: int) -> float:
    """Microseconds of `decode_round` alone."""
    vocabulary = pair.target_model.n_vocab
    made = [
        Request(seq, [1, 2, 3], LogitsProcessor(sampling, vocabulary), Noise(seq), 1 << 30)
        for seq in range(requests)
    ]
    for seq in range(requests):
        pair.target.read(seq, [1, 2])
    for _ in range(rounds):
        decode_round(made, pair.target, pair.drafter, pair.control.policy)
    return pair.target.microseconds(requests)


def of_scheduler(pair: Pair, sampling: Sampling, requests: int, rounds: int) -> float:
    """Microseconds of the scheduler's whole turn, while all replies run."""
    scheduler = Scheduler(pair)
    asked = ReplyRequest(prompt="abc", sampling=sampling, max_tokens=rounds)
    streams = [scheduler.submit(asked, Interrupt()) for _ in range(requests)]
    for stream in streams:
        assert isinstance([*stream][-1], Finished)
    scheduler.close()
    return pair.target.microseconds(requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--requests", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--draft", choices=["none", "parked", "right"], default="none")
    parser.add_argument("--top-k", type=int, default=Sampling().top_k, help="0 for all tokens")
    parser.add_argument("--cold", action="store_true", help="caches as passes leave them")
    parser.add_argument("--device", type=float, metavar="MS", help="passes of a device")
    parser.add_argument("--k", type=int, default=0, help="with --device: tokens of every draft")
    parser.add_argument("--turns", type=int, default=3, help="with --device")
    args = parser.parse_args()
    if args.device:
        of_devices(args)
        return
    caches = "cold caches" if args.cold else "warm caches"
    print(f"vocabulary {args.vocabulary}, {caches}, median microseconds of {args.rounds} rounds")
    print(f"{'':8} {'requests':>9} {'in all':>8} {'round':>8} {'scheduler':>10} {'budget':>8}")
    for temperature in (0.0, 1.0):
        for requests in args.requests:
            whole = {} if args.top_k else {"top_p": 1.0, "min_p": 0.0}
            sampling = Sampling(temperature=temperature, top_k=args.top_k, **whole)
            pairs = [Pair(args.vocabulary, requests, args.draft, cold=args.cold) for _ in range(2)]
            alone = of_rounds(pairs[0], sampling, requests, args.rounds)
            all_of_it = of_scheduler(pairs[1], sampling, requests, args.rounds)
            budget = _BUDGET[0] + _BUDGET[1] * requests
            print(
                f"T = {temperature:<4g} {requests:9} {all_of_it:8.0f} {alone:8.0f} "
                f"{all_of_it - alone:10.0f} {budget:8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
