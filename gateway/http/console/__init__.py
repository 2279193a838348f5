"""The console: web pages over the HTTP API, as files that every broker serves.

`static` has the pages: HTML, CSS and ES modules as browsers read them, without a build. They hold no data: a page asks
the API for everything, with the login of the user who looks at it. `files` serves them.
"""
