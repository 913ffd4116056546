"""Settings of the site, which `make docs` builds from the Markdown pages in this folder.

Neither the build nor the pages load anything from the network: formulas are MathML, and scripts are part of the site.
"""

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]
os.environ["MPLBACKEND"] = "Agg"
warnings.filterwarnings("ignore", category=DeprecationWarning)

from meshnn import __version__  # noqa: E402

project = "meshnn"
author = "the meshnn authors"
project_copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "reference",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["extensions", "**/sg_execution_times.rst", "pictures/*.py", "**/*.ipynb", "gallery/*.py"]
nitpicky = True
default_role = "code"
smartquotes = False  # options begin with --
highlight_language = "text"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4

autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"  # MeshClassifier.decision_function() is wider than its column
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("figures",),
    "capture_repr": (),
    "matplotlib_animations": False,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "plot_gallery": True,
    "notebook_images": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "meshnn documentation"
html_static_path = ["static"]
html_css_files = ["meshnn.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "tutorial": []}  # pages without pages below them
html_theme_options = {
    "logo": {"text": "meshnn"},
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_center": ["navbar-nav"],
    "navbar_end": ["theme-switcher", "search-button"],
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
