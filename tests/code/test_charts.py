# SPDX-License-Identifier: Apache-2.0
"""Figures of matplotlib: pictures, and charts as data."""

import base64

import pytest

from driver import Driver, skip


@pytest.fixture(scope="module")
def plots(tmp_path_factory):
    driver = Driver("python", cwd=tmp_path_factory.mktemp("plots"))
    missing = driver.run("import datetime\nimport numpy as np\nimport matplotlib.pyplot as plt").error
    if not missing:
        yield driver
    driver.close()
    if missing:
        skip("python3-matplotlib is missing")


def chart_of(plots, code):
    execution = plots.run(code)
    assert execution.error is None, execution.error["traceback"]
    assert len(execution.shown) == 1
    assert base64.b64decode(execution.shown[0]["image/png"]).startswith(b"\x89PNG")
    assert execution.shown[0]["text/plain"].startswith("<Figure size")
    return execution.shown[0].get("e2b/chart")


def test_show_reports_figures_and_closes_them(plots):
    execution = plots.run("plt.plot([1, 2]); plt.show(); print('between')\n"
                          "plt.plot([3, 4]); plt.show()\nplt.get_fignums()")
    assert [line["type"] for line in execution.lines] == \
        ["count", "result", "stdout", "result", "result"]
    assert execution.value == "[]"


def test_an_open_figure_is_shown_at_the_end(plots):
    execution = plots.run("_ = plt.plot([1, 2])\nx = 5\nx")
    assert [line["main"] for line in execution.results] == [True, False]
    assert "image/png" in execution.shown[0]
    assert plots.run("plt.get_fignums()").value == "[]"


def test_a_figure_as_last_value_is_shown_once(plots):
    execution = plots.run("fig, ax = plt.subplots()\nax.plot([1, 2])\nfig")
    assert len(execution.results) == 1
    assert execution.main["e2b/chart"]["type"] == "line"
    assert "image/png" in execution.main
    again = plots.run("fig")
    assert "image/png" in again.main


def test_a_figure_that_changed_after_display_is_shown_again(plots):
    execution = plots.run("fig, ax = plt.subplots()\nax.plot([1, 2])\ndisplay(fig)\nax.set_title('x');")
    assert [data["e2b/chart"]["title"] for data in execution.shown] == [None, "x"]


def test_savefig_writes_a_file(plots):
    execution = plots.run("import os\nplt.plot([1, 2]); plt.savefig('x.png'); plt.close()\n"
                          "os.path.getsize('x.png') > 100")
    assert execution.value == "True"
    assert execution.shown == []


def test_a_figure_is_shown_although_the_code_fails_later(plots):
    execution = plots.run("plt.plot([1, 2])\n1 / 0")
    assert "image/png" in execution.shown[0]
    assert execution.error["name"] == "ZeroDivisionError"


def test_another_backend_shows_open_figures_too(start):
    python = start("python")
    if python.run("import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as plt").error:
        skip("python3-matplotlib is missing")
    assert "image/png" in python.run("plt.plot([1, 2]);").shown[0]


def test_a_silent_execution_shows_no_figure(plots):
    assert plots.run("plt.plot([1, 2])", silent=True).results == []
    assert plots.run("5").shown == []


def test_line_chart(plots):
    chart = chart_of(plots, '''
dates = [datetime.date(2023, 9, 1) + datetime.timedelta(seconds=86400 * i) for i in range(3)]
plt.plot(dates, [1, 2.5, 4], label="sin(x)")
plt.plot(dates, [0, 1, float("nan")])
plt.axhline(1)
plt.xlabel("Date (day)"); plt.ylabel("Value [m/s]"); plt.title("Plot of sin(x)"); plt.grid(True)
plt.show()''')
    assert chart["type"] == "line"
    assert chart["title"] == "Plot of sin(x)"
    assert (chart["x_label"], chart["x_unit"]) == ("Date (day)", "day")
    assert (chart["y_label"], chart["y_unit"]) == ("Value [m/s]", "m/s")
    assert (chart["x_scale"], chart["y_scale"]) == ("datetime", "linear")
    assert all(isinstance(tick, str) and tick[:7] in ("2023-08", "2023-09")
               for tick in chart["x_ticks"])
    assert all(isinstance(label, str) for label in chart["x_tick_labels"])
    assert all(isinstance(tick, float) for tick in chart["y_ticks"])
    first, second = chart["elements"]
    assert first == {"label": "sin(x)",
                     "points": [["2023-09-01", 1], ["2023-09-02", 2.5], ["2023-09-03", 4]]}
    assert second["label"] == "Line 1"
    assert second["points"][2] == ["2023-09-03", None]


TICKS = "plt.xticks([0, 2], ['low', 'high']); plt.yticks([1.5]); plt.title('T'); plt.show()"


@pytest.mark.parametrize("draw, kind, label", [("plt.plot([0, 2], [1, 2.5])", "line", "Line 0"),
                                               ("plt.scatter([0, 2], [1, 2.5])", "scatter",
                                                "_child0")])
def test_charts_of_points_have_exactly_these_fields(plots, draw, kind, label):
    chart = chart_of(plots, f"{draw}; plt.xlabel('x()'); plt.ylabel('y []'); {TICKS}")
    assert chart == {
        "type": kind, "title": "T", "x_label": "x()", "y_label": "y []", "x_unit": None,
        "y_unit": None, "x_ticks": [0, 2], "x_tick_labels": ["low", "high"], "x_scale": "linear",
        "y_ticks": [1.5], "y_tick_labels": ["1.5"], "y_scale": "linear",
        "elements": [{"label": label, "points": [[0, 1], [2, 2.5]]}]}


@pytest.mark.parametrize("label, unit", [
    ("Speed (km/h)", "km/h"), ("Speed [km/h]", "km/h"), ("Speed[km/h]", "km/h"), ("f(x)", None),
    ("Speed (a) [b]", "a"), ("Speed\n(km/h)", "km/h"), ("Speed", None), ("(m)", None), ("", None)])
def test_a_unit_is_in_brackets(plots, label, unit):
    chart = chart_of(plots, f"plt.plot([1, 2]); plt.xlabel({label!r}); plt.show()")
    assert (chart["x_label"], chart["x_unit"]) == (label or None, unit)


def test_datetime64_points_are_in_seconds(plots):
    chart = chart_of(plots, "plt.plot(np.array(['2020-01-02T03:04:05.678', '2020-01-03'],"
                            " dtype='datetime64[ms]'), [1, 2])\nplt.show()")
    assert chart["elements"][0]["points"] == [["2020-01-02T03:04:05", 1], ["2020-01-03T00:00:00", 2]]


def test_scales(plots):
    chart = chart_of(plots, "plt.plot([1, 10, 100], [1, 2, 3]); plt.xscale('log'); plt.show()")
    assert (chart["x_scale"], chart["y_scale"]) == ("log", "linear")
    assert chart["x_unit"] is None and chart["x_label"] is None and chart["title"] is None
    chart = chart_of(plots, "plt.scatter(['a', 'b', 'c'], [1, 2, 3]); plt.show()")
    assert chart["x_scale"] == "categorical"
    assert chart["x_ticks"] == [0, 1, 2]
    assert chart["x_tick_labels"] == ["a", "b", "c"]
    chart = chart_of(plots, "plt.plot([1, 2], ['a', 'b']); plt.show()")
    assert (chart["x_scale"], chart["y_scale"]) == ("linear", "categorical")
    assert chart["elements"][0]["points"] == [[1, "a"], [2, "b"]]


def test_scatter_chart(plots):
    chart = chart_of(plots, "plt.scatter([1, 2], [3, 4.5], label='Data'); plt.axvline(1)\n"
                            "plt.scatter([5], [6]); plt.show()")
    assert chart["type"] == "scatter"
    assert chart["elements"][0] == {"label": "Data", "points": [[1, 3], [2, 4.5]]}
    assert chart["elements"][1]["points"] == [[5, 6]]
    assert {"x_ticks", "x_tick_labels", "x_scale", "y_ticks", "y_tick_labels", "y_scale"} <= \
        chart.keys()


def test_bar_chart(plots):
    chart = chart_of(plots, "plt.bar(['A', 'B', 'C'], [10, 20, 15]); plt.xlabel('Author');"
                            " plt.ylabel('Books (count)'); plt.title('Sold'); plt.show()")
    assert chart == {
        "type": "bar", "title": "Sold", "x_label": "Author", "y_label": "Books (count)",
        "x_unit": None, "y_unit": "count",
        "elements": [{"label": "A", "group": "Group 0", "value": 10},
                     {"label": "B", "group": "Group 0", "value": 20},
                     {"label": "C", "group": "Group 0", "value": 15}]}


def test_bar_chart_with_groups_and_lying_bars(plots):
    chart = chart_of(plots, "plt.bar(['A', 'B'], [1, 2], label='first')\n"
                            "plt.bar(['A', 'B'], [3, 4], bottom=[1, 2], label='second'); plt.show()")
    assert [(e["group"], e["label"], e["value"]) for e in chart["elements"]] == \
        [("first", "A", 1), ("first", "B", 2), ("second", "A", 3), ("second", "B", 4)]
    chart = chart_of(plots, "plt.barh(['A', 'B'], [1, 2]); plt.xlabel('n (x)'); plt.show()")
    assert chart["elements"] == [{"label": "A", "group": "Group 0", "value": 1},
                                 {"label": "B", "group": "Group 0", "value": 2}]
    assert (chart["y_label"], chart["y_unit"], chart["x_label"]) == ("n (x)", "x", None)


def test_pie_chart(plots):
    chart = chart_of(plots, "plt.pie([90, 10], labels=['No', 'Yes'], autopct='%1.1f%%');"
                            " plt.title('Will I wake up early?'); plt.show()")
    assert chart == {"type": "pie", "title": "Will I wake up early?",
                     "elements": [{"label": "No", "angle": 324, "radius": 1},
                                  {"label": "Yes", "angle": 36, "radius": 1}]}


BOXES = '''
data = [[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 85], [75, 82, 88, 79, 86]]
plt.boxplot(data, patch_artist=True%s)
plt.%sticks([1, 2, 3], ["Math", "Science", "History"])
plt.%slabel("Class"); plt.%slabel("Score (%%)"); plt.title("Exam scores"); plt.show()
'''


@pytest.mark.parametrize("options, names", [("", "xy"), (", vert=False", "yx")])
def test_box_chart(plots, options, names):
    chart = chart_of(plots, BOXES % (options, names[0], *names))
    assert chart.pop("elements") == [
        {"label": "Math", "min": 78, "first_quartile": 85, "median": 88, "third_quartile": 90,
         "max": 92, "outliers": []},
        {"label": "Science", "min": 76, "first_quartile": 84.25, "median": 87,
         "third_quartile": 90.5, "max": 95, "outliers": []},
        {"label": "History", "min": 75, "first_quartile": 79, "median": 82,
         "third_quartile": 86, "max": 88, "outliers": []}]
    assert chart == {"type": "box_and_whisker", "title": "Exam scores", "x_label": "Class",
                     "y_label": "Score (%)", "x_unit": None, "y_unit": "%"}


def test_plain_boxes_are_lines(plots):
    assert chart_of(plots, "plt.boxplot([[1, 2, 3]]); plt.show()")["type"] == "line"


def test_outliers_of_boxes(plots):
    chart = chart_of(plots, "plt.boxplot([[1, 2, 3, 4, 20], [1, 2, 3, 5, 6]], "
                            " patch_artist=True); plt.show()")
    assert chart["elements"][0]["outliers"] == [20]
    assert chart["elements"][0]["max"] == 4
    assert chart["elements"][1]["outliers"] == []


def test_superchart(plots):
    chart = chart_of(plots, "f, (a, b) = plt.subplots(1, 2)\na.scatter([1], [2])\n"
                            "b.bar(['x', 'y'], [1, 2])\nf.suptitle('Both')\nplt.show()")
    assert (chart["type"], chart["title"]) == ("superchart", "Both")
    assert [element["type"] for element in chart["elements"]] == ["scatter", "bar"]
    chart = chart_of(plots, "f, (a, b) = plt.subplots(1, 2)\na.pie([1, 1])\nplt.show()")
    assert chart["title"] == ""
    assert [element["type"] for element in chart["elements"]] == ["pie", "line"]
    assert chart["elements"][1]["elements"] == []


def test_unknown_and_empty_figures(plots):
    chart = chart_of(plots, "plt.imshow([[1, 2]]); plt.title('Image'); plt.show()")
    assert chart == {"type": "unknown", "title": "Image", "elements": []}
    chart = chart_of(plots, "f, a = plt.subplots(); a.add_artist(plt.Circle((0, 0), 1));"
                            " a.grid(True); plt.show()")
    assert chart == {"type": "unknown", "title": None, "elements": []}
    assert chart_of(plots, "plt.figure(); plt.show()") is None
    assert chart_of(plots, "plt.subplots(); plt.show()") is None


def test_rounding_is_decimal(plots):
    chart = chart_of(plots, "plt.pie([1, 2]); plt.show()")
    assert [element["angle"] for element in chart["elements"]] == [120, 240]
    chart = chart_of(plots, "plt.pie([1, 6]); plt.show()")
    assert chart["elements"][0]["angle"] == pytest.approx(51.428571, abs=1e-6)
    assert len(str(chart["elements"][0]["angle"])) <= 9
