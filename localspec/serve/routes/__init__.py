"""The routes, a module for each path of an API, and their description."""
