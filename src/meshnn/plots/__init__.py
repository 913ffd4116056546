"""Plots of models. They need matplotlib (the extra `plots`), which is imported by the first plot."""

from meshnn.plots.curves import draw_history, plot_forecast, plot_stream
from meshnn.plots.graph import draw_graph
from meshnn.plots.matrix import animate_lineage, draw_adjacency, plot_lineage
from meshnn.plots.models import PANELS, graph_svg, plot_graph, plot_history, plot_importances, plot_model
from meshnn.plots.regions import draw_regions
from meshnn.plots.save import check_figure_path, save_figure

__all__ = [
    "PANELS",
    "animate_lineage",
    "check_figure_path",
    "draw_adjacency",
    "draw_graph",
    "draw_history",
    "draw_regions",
    "graph_svg",
    "plot_forecast",
    "plot_graph",
    "plot_history",
    "plot_importances",
    "plot_lineage",
    "plot_model",
    "plot_stream",
    "save_figure",
]
