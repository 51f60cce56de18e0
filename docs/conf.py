# Sphinx: the pages as a site that opens without a network. Built by tools/docs.
project = "coshard"
author = "the coshard authors"
copyright = "the coshard authors, Apache-2.0"  # noqa: A001
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
html_theme = "sphinx_book_theme"
html_title = "coshard"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"use_download_button": False, "use_fullscreen_button": False, "extra_navbar": ""}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
exclude_patterns = ["Doxyfile", "reference.dox"]
highlight_language = "none"
# `cpp` blocks show fragments too, which the lexer need not understand.
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = True
