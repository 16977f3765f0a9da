"""Checks by their headers whether a draft model or a head can draft for a target, and Medusa heads
in our format.
"""
