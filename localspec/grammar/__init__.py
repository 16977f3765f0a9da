"""Structured output: grammars compiled with llguidance, and what they allow and force.

`localspec.core.grammar_spec.GrammarSpec` is what a user asks for. `localspec.grammar.compiling`
checks it and makes a grammar of it, `localspec.grammar.matching` follows it along one reply, and
`localspec.grammar.tools` makes grammars for calls of tools. llguidance is imported when the first
grammar is asked for, never before.
"""
