"""Structured output: grammars compiled with llguidance, what they allow and force, and how replies
are read by the forms of thinking and calls.

`localspec.core.grammar_spec.GrammarSpec` is what a user asks for. `localspec.grammar.compiling`
checks it and makes a grammar of it, `localspec.grammar.matching` follows it along one reply,
`localspec.grammar.tools` makes grammars for calls of tools, and `localspec.grammar.reply_reader`
reads the calls. llguidance is imported when the first grammar is asked for, never before.
"""
