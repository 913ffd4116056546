"""Pictures of nets. They need matplotlib (the extra `plots`), which is imported when something is drawn."""

from meshnn.plots.curves import draw_history
from meshnn.plots.forecast import plot_forecast
from meshnn.plots.graph import draw_graph
from meshnn.plots.importances import draw_importances
from meshnn.plots.lineage import animate_lineage, plot_lineage
from meshnn.plots.matrix import draw_adjacency
from meshnn.plots.page import PANELS, plot_model
from meshnn.plots.regions import Regions, draw_regions
from meshnn.plots.save import check_figure_path, save_figure
from meshnn.plots.stream import plot_stream
from meshnn.plots.svg import graph_svg

__all__ = [
    "PANELS",
    "Regions",
    "animate_lineage",
    "check_figure_path",
    "draw_adjacency",
    "draw_graph",
    "draw_history",
    "draw_importances",
    "draw_regions",
    "graph_svg",
    "plot_forecast",
    "plot_lineage",
    "plot_model",
    "plot_stream",
    "save_figure",
]
