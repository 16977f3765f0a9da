"""Draft models and heads made from files that the user has."""
