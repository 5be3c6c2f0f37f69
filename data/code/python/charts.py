# SPDX-License-Identifier: Apache-2.0
"""matplotlib: figures as PNG, and their charts as data.

The type of a chart and its fields are those that E2B's clients know; a figure with no
recognisable chart has a picture only.
"""

import re
import weakref
from decimal import ROUND_HALF_EVEN, Context, Decimal

shown = weakref.WeakSet()  # figures; stale ones have changed since


# --- Pictures --------------------------------------------------------------------------------


def on_matplotlib(module):
    if "MPLBACKEND" not in os.environ:
        module.use("module://cay_inline")


def figure_parts(value):
    """The MIME parts of a figure; none for another value."""
    if not isinstance(value, sys.modules["matplotlib.figure"].Figure):
        return
    file = io.BytesIO()
    value.savefig(file, format="png", bbox_inches="tight")
    chart = chart_of_figure(value)
    value.stale = False
    shown.add(value)
    yield "image/png", file.getvalue()
    if chart:
        yield "e2b/chart", chart


def show_figures():
    """Shows pyplot's figures that have not been shown as they are, and closes all."""
    pyplot = sys.modules["matplotlib.pyplot"]
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if figure not in shown or figure.stale:
                part("show")["show"](figure)
    finally:
        pyplot.close("all")


def show_open_figures(wanted):
    pyplot = sys.modules["matplotlib.pyplot"]
    if not hasattr(pyplot, "get_fignums") or not pyplot.get_fignums():
        return
    if wanted:
        show_figures()
    else:
        pyplot.close("all")


class Loader:
    """The backend of pyplot: Agg, and show() reports the figures."""

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        module.FigureCanvas = FigureCanvasAgg
        module.FigureManager = FigureManagerBase
        module.show = lambda *args, **options: show_figures()


def supply(name):
    return type(sys.__spec__)(name, Loader)


# --- Charts ----------------------------------------------------------------------------------


def chart_of_figure(figure):
    """The chart of a figure; {} if it has none or an unexpected form."""
    try:
        every = figure.get_axes()
        if not any(axes.has_data() for axes in every):
            return {}
        if len(every) == 1:
            return chart_of_axes(every[0])
        title = figure._suptitle.get_text() if figure._suptitle else ""
        return {"type": "superchart", "title": title,
                "elements": [chart_of_axes(axes) for axes in every]}
    except Exception:
        return {}


def own_children(axes):
    """What was drawn, without titles, axis lines and texts."""
    from matplotlib.text import Text
    children = getattr(axes, "_children", None)
    if children is None:
        children = [*axes.collections, *axes.patches, *axes.lines, *axes.images]
    return [child for child in children if not isinstance(child, Text)]


def points_of(line):
    return list(zip(line.get_xdata(orig=True), line.get_ydata(orig=True)))


def is_grid(child):
    from matplotlib.lines import Line2D
    if not isinstance(child, Line2D):
        return False
    points = points_of(child)
    return len(points) == 2 and (points[0][0] == points[1][0] or points[0][1] == points[1][1])


def chart_of_axes(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    children = own_children(axes)

    def all_are(*types):
        return all(isinstance(child, types) for child in children)

    if all_are(Line2D):
        return line_chart(axes, children)
    if all_are(PathPatch, Line2D):
        return box_chart(axes, children)
    children = [child for child in children if not is_grid(child)]
    if all_are(PathCollection):
        return scatter_chart(axes, children)
    if all_are(Wedge):
        return {"type": "pie", "title": axes.get_title() or None,
                "elements": [wedge(child) for child in children]}
    if all_are(Rectangle):
        return bar_chart(axes)
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def unit_of(label):
    found = re.search(r"\s\((.*?)\)|\[(.*?)\]", label)
    return (found[1] or found[2] or None) if found else None


def chart(kind, axes, elements):
    """What all charts with two axes have."""
    x_label, y_label = axes.get_xlabel(), axes.get_ylabel()
    return {"type": kind, "title": axes.get_title() or None,
            "x_label": x_label or None, "y_label": y_label or None,
            "x_unit": unit_of(x_label), "y_unit": unit_of(y_label), "elements": elements}


def swap_axes(chart):
    chart["x_label"], chart["y_label"] = chart["y_label"], chart["x_label"]
    chart["x_unit"], chart["y_unit"] = chart["y_unit"], chart["x_unit"]


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def has_dates(axis):
    from matplotlib import dates
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    kinds = [getattr(dates, name, None) for name in
             ("DateConverter", "ConciseDateConverter", "_SwitchableDateConverter")]
    return isinstance(converter, tuple(kind for kind in kinds if kind))


def scale_of(axis, ticks, labels):
    if has_dates(axis):
        return "datetime"
    if axis.get_scale() != "linear":
        return axis.get_scale()
    if all(tick == at and label != str(at)
           for at, (tick, label) in enumerate(zip(ticks, labels))):
        return "categorical"
    return "linear"


def add_axis(chart, name, axis):
    ticks = [float(tick) for tick in axis.get_ticklocs()]
    labels = tick_labels(axis)
    scale = scale_of(axis, ticks, labels)
    if scale == "datetime":
        from matplotlib.dates import num2date
        ticks = [num2date(tick).isoformat() for tick in ticks]
    chart[f"{name}_ticks"] = ticks
    chart[f"{name}_tick_labels"] = labels
    chart[f"{name}_scale"] = scale


def point_chart(kind, axes, elements):
    made = chart(kind, axes, elements)
    add_axis(made, "x", axes.xaxis)
    add_axis(made, "y", axes.yaxis)
    return made


def coordinate(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    return value


def element(label, points):
    return {"label": label, "points": [[coordinate(x), coordinate(y)] for x, y in points]}


def line_chart(axes, lines):
    elements = []
    for line in lines:
        if is_grid(line):
            continue
        label = str(line.get_label())
        if label.startswith("_child"):
            label = f"Line {label[6:]}"
        elements.append(element(label, points_of(line)))
    return point_chart("line", axes, elements)


def scatter_chart(axes, collections):
    return point_chart("scatter", axes, [
        element(str(collection.get_label()), collection.get_offsets().tolist())
        for collection in collections])


def bar_chart(axes):
    made = chart("bar", axes, [])
    swapped = False
    for container in axes.containers:
        group = str(container.get_label())
        if group.startswith("_container"):
            group = f"Group {group[10:]}"
        heights = [bar.get_height() for bar in container]
        if all(height == heights[0] for height in heights):
            swapped = True
            labels, values = tick_labels(axes.yaxis), [bar.get_width() for bar in container]
        else:
            labels, values = tick_labels(axes.xaxis), heights
        made["elements"] += [{"label": label, "group": group, "value": value}
                             for label, value in zip(labels, values)]
    if swapped:
        swap_axes(made)
    return made


# --- Pies and boxes --------------------------------------------------------------------------


def rounded(value):
    """Half-even, to 8 digits after the first less the exponent of the first."""
    number = Decimal(float(value))
    digits = max(1, 8 - number.adjusted())
    return float(Context(prec=digits, rounding=ROUND_HALF_EVEN).plus(number))


def wedge(patch):
    return {"label": str(patch.get_label()),
            "angle": rounded(abs(patch.theta2 - patch.theta1)), "radius": float(patch.r)}


class Box:
    """One box while its lines are looked for."""

    def __init__(self, label, vertices):
        across, along = zip(*vertices)
        self.left, self.right = min(across), max(across)
        self.bottom, self.top = min(along), max(along)
        self.fields = {"label": label, "min": None, "first_quartile": rounded(self.bottom),
                       "median": None, "third_quartile": rounded(self.top), "max": None,
                       "outliers": []}

    def add(self, points):
        """Adds a line; returns whether it is one of this box."""
        if not all(self.left <= x <= self.right for x, _ in points):
            return False
        low, high = min(y for _, y in points), max(y for _, y in points)
        if len(points) == 1:
            self.fields["outliers"].append(rounded(low))
        elif low == high and self.bottom <= low <= self.top and points[0][0] != points[1][0]:
            self.fields["median"] = rounded(low)
        elif high == self.bottom:
            self.fields["min"] = rounded(low)
        elif low == self.top:
            self.fields["max"] = rounded(high)
        return True


def box_chart(axes, children):
    from matplotlib.patches import PathPatch
    patches = [child for child in children if isinstance(child, PathPatch)]
    shapes = [[tuple(map(float, vertex)) for vertex in patch.get_path().vertices]
              for patch in patches]
    lines = [[(float(x), float(y)) for x, y in points_of(child)]
             for child in children if not isinstance(child, PathPatch)]
    heights = [rounded(max(y for _, y in shape) - min(y for _, y in shape))
               for shape in shapes]
    swapped = all(height == heights[0] for height in heights)
    if swapped:
        shapes = [[(y, x) for x, y in shape] for shape in shapes]
        lines = [[(y, x) for x, y in line] for line in lines]
    labels = tick_labels(axes.yaxis if swapped else axes.xaxis)
    boxes = [Box(label, shape) for label, shape in zip(labels, shapes)]
    for points in lines:
        if len(points) in (1, 2):
            any(box.add(points) for box in boxes)
    made = chart("box_and_whisker", axes, [box.fields for box in boxes])
    if swapped:
        swap_axes(made)
    return made
