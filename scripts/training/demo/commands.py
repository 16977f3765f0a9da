"""Answers about each command of localspec."""

COMMANDS = {
    "chat": "`localspec chat` opens a chat in the terminal. You type, the model answers, and the colours show "
    "which tokens the draft proposed. Give it the name of a model, or nothing for the demo model.",
    "run": "`localspec run` gives one answer to one prompt and then ends, for example "
    '`localspec run "Hello"`. It is made for scripts: only the answer goes to the output.',
    "pull": "`localspec pull` fetches a model and its draft, for example `localspec pull qwen3-8b`. It is "
    "downloaded once and then works offline.",
    "models": "`localspec models` lists the models that you can use, and shows which of them are already on "
    "your disk.",
    "show": "`localspec show` describes one model: its size, its draft, its licence and whether it fits into "
    "your memory.",
    "doctor": "`localspec doctor` checks your machine: the backend, the devices, the free memory and the "
    "build. For every problem it names one fix.",
    "verify": "`localspec verify` tests on your machine that the output is exact. It writes the same answers "
    "with and without drafting and compares them token by token.",
    "bench": "`localspec bench` measures the speed on your machine. It runs plain and speculative decoding "
    "side by side and shows how much you gain.",
    "rm": "`localspec rm` removes a model from your disk. You can pull it again at any time.",
}
