# SPDX-License-Identifier: Apache-2.0
"""Results: the MIME parts of a value, display(), and IPython.display where IPython is absent."""

import binascii
import math

TEXT_MAX = 1 << 20
CELLS_OF_FRAME_MAX = 1 << 20  # of a data frame that is reported as data
DEPTH_MAX = 200

METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}


# --- JSON ------------------------------------------------------------------------------------


def plain(value, depth=0):
    """A value of JSON's types: NaN is None, arrays are lists, times are ISO 8601.

    Raises TypeError for a value that has none, RecursionError for a cycle."""
    if depth > DEPTH_MAX:
        raise RecursionError("a structure that is too deep or contains itself")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return well_formed(str(value))
    if isinstance(value, int):
        return int(value) if -1 << 63 <= value < 1 << 63 else plain(to_float(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key_of(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return plain(unusual(value), depth + 1)


def to_float(value):
    try:
        return float(value)
    except OverflowError:
        return None


def key_of(key):
    if isinstance(key, str):
        return well_formed(str(key))
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return str(key)
    if hasattr(key, "item") and hasattr(key, "dtype"):
        return key_of(key.item())
    raise TypeError(f"a key of type {type(key).__name__}")


def unusual(value):
    """An array, a scalar of numpy, a time, a decimal number, ... as a usual value."""
    pandas = sys.modules.get("pandas")
    if pandas and (value is pandas.NaT or value is getattr(pandas, "NA", pandas)):
        return None
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, (numpy.datetime64, numpy.timedelta64)):
        return str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        if value.dtype.kind in "mM":
            value = value.astype(str)
        return value.tolist()
    if type(value).__name__ == "Decimal":
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def encode(value):
    """The JSON text of what plain() returns."""
    if _json:
        return "".join(_json.make_encoder(None, None, _json.encode_basestring, None, ":", ",",
                                          False, False, False)(value, 0))
    return sys.modules["json"].dumps(value, ensure_ascii=False, allow_nan=False)


# --- Parts of a value ------------------------------------------------------------------------


def text_part(value):
    text = repr(value)
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}... ({len(text) - TEXT_MAX} more characters)"
    return text


def part_of(mime, data):
    """Data as it is reported; None if it cannot be."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return binascii.b2a_base64(data, newline=False).decode()
    try:
        return plain(data)
    except (TypeError, ValueError, RecursionError):
        return None


def bundle_of(value, include, exclude):
    """The parts that the value's _repr_mimebundle_ returns."""
    method = getattr(value, "_repr_mimebundle_", None)
    if isinstance(value, type) or not callable(method):
        return {}
    bundle = method(include=include, exclude=exclude)
    return dict((bundle[0] if isinstance(bundle, tuple) else bundle) or {})


def methods_of(value):
    """The parts of the value's _repr_html_ and the like."""
    for name, mime in METHODS.items():
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            try:
                data = method()
            except NotImplementedError:
                continue
            if isinstance(data, tuple):
                data = data[0]
            if data is not None:
                yield mime, data


def frame_data(frame):
    """A data frame as lists of its columns."""
    if frame.shape[0] * frame.shape[1] > CELLS_OF_FRAME_MAX:
        return None
    columns = {}
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        columns[str(name)] = [cell(item) for item in column.tolist()]
    return columns


def cell(item):
    try:
        return plain(item)
    except (TypeError, ValueError, RecursionError):
        return str(item)


def library_parts(value):
    """Parts of values of libraries, and of lists and dictionaries."""
    if isinstance(value, (list, dict)):
        yield "application/json", value
    pandas = sys.modules.get("pandas")
    if pandas and isinstance(value, getattr(pandas, "DataFrame", ())):
        yield "e2b/data", frame_data(value)
    if "matplotlib.figure" in sys.modules:
        yield from part("charts")["figure_parts"](value)


def parts_of(value, include=None, exclude=None):
    data = {"text/plain": text_part(value)}
    data.update(library_parts(value))
    data.update(methods_of(value))
    data.update(bundle_of(value, include, exclude))
    return data


# --- Reporting -------------------------------------------------------------------------------


def emit(data, main=False):
    encoded = {}
    for mime, item in data.items():
        item = part_of(mime, item)
        if item is not None:
            encoded[str(mime)] = encode(item)
    size = sum(map(len, encoded.values()))
    while size > LINE_MAX // 4:  # a character has up to 4 bytes
        largest = max(encoded, key=lambda mime: len(encoded[mime]))
        size -= len(encoded.pop(largest))
        note = f"({largest} left out: larger than {LINE_MAX >> 22} MiB)"
        kept = encoded.get("text/plain")
        encoded["text/plain"] = kept[:-1] + quote("\n" + note)[1:] if kept else quote(note)
    if encoded:
        flush()
        body = ",".join(f"{quote(mime)}:{item}" for mime, item in encoded.items())
        send(f'{{"type":"result","data":{{{body}}},"main":{"true" if main else "false"}}}')


def show(value, main=False, include=None, exclude=None):
    own = getattr(value, "_ipython_display_", None)
    if callable(own) and not isinstance(value, type):
        own()
        return
    data = parts_of(value, include, exclude)
    if include:
        data = {mime: item for mime, item in data.items() if mime in include}
    if exclude:
        data = {mime: item for mime, item in data.items() if mime not in exclude}
    emit(data, main)


def display(*objects, include=None, exclude=None, raw=False, **options):
    """Shows objects; with raw=True each is a dictionary of MIME types and data."""
    for value in objects:
        if raw:
            emit(value)
        else:
            show(value, include=include, exclude=exclude)


# --- Libraries -------------------------------------------------------------------------------


def on_pil(module):
    """Image.show() shows the image, and so does Image.save() to a path."""
    save = module.Image.save

    def save_and_show(self, fp, format=None, **params):
        save(self, fp, format, **params)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if isinstance(fp, str) and not caller.startswith("matplotlib"):
            show(self)

    module.Image.save = save_and_show
    module.Image.show = lambda self, title=None, **options: show(self)
    if not hasattr(module.Image, "_repr_png_"):
        def png(self):
            file = io.BytesIO()
            save(self, file, "PNG")
            return file.getvalue()
        module.Image._repr_png_ = png


def publish(data, metadata=None, source=None, **options):
    emit(data)


def on_ipython(module):
    """IPython's own display() prints, for it finds no kernel."""
    if hasattr(module, "display"):
        module.display = display
        module.publish_display_data = publish


class Shown:
    """A value of IPython.display: text or bytes of one MIME type, from a file or not."""

    method = binary = None

    def __init__(self, data=None, url=None, filename=None, **options):
        if data is None and filename:
            with open(filename, "rb" if self.binary else "r") as file:
                data = file.read()
        self.data = data
        self.url = url
        self.options = options


def shown_class(name, method, binary=False):
    return type(name, (Shown,), {method: lambda self: self.data, "binary": binary,
                                 "__module__": "IPython.display"})


class Image(Shown):
    binary = True

    def __init__(self, data=None, url=None, filename=None, format=None, **options):
        if isinstance(data, str):
            data, filename = None, data
        super().__init__(data, url, filename, **options)

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {"text/html": f'<img src="{self.url}"/>'}
        return {"image/jpeg" if self.data[:2] == b"\xff\xd8" else "image/png": self.data}


class Math(Shown):
    def _repr_latex_(self):
        return r"$\displaystyle %s$" % self.data.strip("$")


class IFrame:
    def __init__(self, src, width, height, **options):
        self.html = f'<iframe width="{width}" height="{height}" src="{src}"></iframe>'

    def _repr_html_(self):
        return self.html


def stand_in():
    """The names of IPython.display."""
    names = {"display": display, "publish_display_data": publish, "Image": Image,
             "Math": Math, "IFrame": IFrame,
             "clear_output": lambda wait=False: None,
             "display_html": lambda *values, **options: display(*map(names["HTML"], values))}
    for name, method in (("HTML", "_repr_html_"), ("Markdown", "_repr_markdown_"),
                         ("Latex", "_repr_latex_"),
                         ("JSON", "_repr_json_"), ("Javascript", "_repr_javascript_"),
                         ("SVG", "_repr_svg_"), ("Pretty", "__repr__")):
        names[name] = shown_class(name, method)
    return names


class Loader:
    """Fills the modules that supply() announces."""

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        module.__version__ = "0"
        module.version_info = (0, 0, 0)
        module.get_ipython = lambda: None
        if module.__name__ in ("IPython.display", "IPython.core.display"):
            vars(module).update(stand_in())
        else:
            module.display = display


def supply(name):
    return type(sys.__spec__)(name, Loader, is_package=name in ("IPython", "IPython.core"))
