# SPDX-License-Identifier: Apache-2.0
"""The driver of a Python context: executes code in __main__ and reports on descriptor 3.

It has to start fast.  So this file imports only what the interpreter has loaded already, and
the other files of the folder are compiled when code first needs them (part()).
docs/design/code-drivers.md describes the lines on descriptor 3.

Invariants: only this process writes to the channel, never a forked child (forked()); a line
is written as a whole, even if SIGINT arrives meanwhile (interrupt()).
"""

import builtins
import faulthandler
import io
import os
import sys

import _ast
import _signal
import _thread

try:
    import _json
except ImportError:
    _json = None

LINE_MAX = 32 << 20  # of the channel
BUFFER_MAX = 8 << 10  # text of a stream before it is reported
CELLS_MAX = 1000  # sources that tracebacks can show
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = 0x400
COROUTINE = 0x80  # inspect.CO_COROUTINE

main = sys.modules["__main__"].__dict__
cells = {}  # the sources by file name


class State:
    """What the SIGINT handler and the streams look at."""

    running = False  # an execution: text of threads belongs to it
    interruptible = False  # its code: SIGINT raises KeyboardInterrupt
    sending = 0  # the main thread writes to the channel: SIGINT has to wait
    interrupted = False  # SIGINT came while sending
    channel = None  # the descriptor; None in a forked child
    count = 0
    loop = None  # the event loop of top-level await
    has_user_site = False  # in sys.path
    unread = b""
    environment = None  # that a copy began with
    lock = _thread.RLock()
    thread = _thread.get_ident()


# --- Lines of the channel --------------------------------------------------------------------


class Options:
    """What the scanner of _json reads from a JSONDecoder."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo = {}


def decode(text):
    if _json:
        return _json.make_scanner(Options)(text, 0)[0]
    return sys.modules["json.decoder"].JSONDecoder(strict=False).decode(text)


def well_formed(text):
    """Text without lone surrogates: U+FFFD instead."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def quote(text):
    """A JSON string."""
    if _json:
        return _json.encode_basestring(well_formed(text))
    return sys.modules["json.encoder"].encode_basestring(well_formed(text))


def send(line):
    """Writes a line; returns False in a forked child, which has no channel."""
    data = memoryview(line.encode() + b"\n")
    ours = _thread.get_ident() == State.thread
    if ours:
        State.sending += 1
    try:
        with State.lock:
            if State.channel is None:
                return False
            while data:
                try:
                    data = data[os.write(State.channel, data):]
                except BlockingIOError:
                    import select
                    select.select((), (State.channel,), ())
                except OSError:
                    os._exit(0)  # the service has ended
    finally:
        if ours:
            State.sending -= 1
    if ours and State.interrupted and not State.sending:
        State.interrupted = False
        if State.interruptible:
            raise KeyboardInterrupt
    return True


def receive():
    """The next line, decoded; None at the end of the channel."""
    blocks = [State.unread]
    while b"\n" not in blocks[-1]:
        block = os.read(State.channel, 1 << 16)
        if not block:
            return None
        blocks.append(block)
    line, _, State.unread = b"".join(blocks).partition(b"\n")
    return decode(line.decode("utf-8", "replace"))


def interrupt(number, frame):
    if State.sending:
        State.interrupted = True
    elif State.interruptible:
        raise KeyboardInterrupt


def forked():
    """A child of os.fork() prints to the descriptors, and has no channel."""
    State.lock = _thread.RLock()
    State.thread = _thread.get_ident()
    State.sending = 0
    if State.channel is not None:
        os.close(State.channel)
        State.channel = None
    for stream in streams:
        stream.pending = []  # the parent prints it


# --- Standard streams ------------------------------------------------------------------------


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr: reports whole lines, and the rest when it is flushed."""

    encoding = "utf-8"
    errors = "replace"
    newlines = None

    def __init__(self, name, descriptor):
        self.name = f"<{name}>"
        self.mode = "w"
        self.start = f'{{"type":"{name}","text":'
        self.descriptor = descriptor
        self.pending = []
        self.size = 0
        self.buffer = Bytes(self)

    def fileno(self):
        return self.descriptor

    def writable(self):
        return True

    def reconfigure(self, **options):
        """As that of TextIOWrapper; lines are always reported as UTF-8."""

    def close(self):
        self.flush()

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with State.lock:
            head, newline, rest = text.rpartition("\n")
            if newline:
                self.pending.append(head + newline)
                self.flush()
            if rest:
                self.pending.append(rest)
                self.size += len(rest)
                if self.size >= BUFFER_MAX:
                    self.flush()
        return len(text)

    def flush(self):
        with State.lock:
            if not self.pending:
                return
            text = "".join(self.pending)
            self.pending, self.size = [], 0
            if State.channel is None:
                self.buffer.write(text.encode("utf-8", "replace"))
            elif State.running:  # else a thread of an execution that has ended
                for at in range(0, len(text), BUFFER_MAX):
                    send(self.start + quote(text[at:at + BUFFER_MAX]) + "}")


class Bytes(io.RawIOBase):
    """sys.stdout.buffer: the descriptor itself."""

    def __init__(self, stream):
        self.stream = stream

    def writable(self):
        return True

    def fileno(self):
        return self.stream.descriptor

    def write(self, data):
        if self.stream.pending:
            self.stream.flush()
        data = memoryview(data).cast("B")
        size = len(data)
        while data:
            data = data[os.write(self.stream.descriptor, data):]
        return size


def flush():
    for stream in (*streams, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except Exception:  # whatever the code has put there
            pass


# --- Parts and imports -----------------------------------------------------------------------


def part(name):
    """The namespace of another file of this folder, which sees all names of this one."""
    found = loaded.get(name)
    if found is None:
        found = dict(globals(), __name__=f"cay_{name}")
        exec(compile(parts[name], f"<cay {name}>", "exec"), found)
        loaded[name] = found
    return found


class Finder:
    """Calls a part when a module has been imported; makes IPython.display available."""

    hooks = {"linecache": lambda module: [remember(*cell) for cell in cells.items()],
             "matplotlib": lambda module: part("charts")["on_matplotlib"](module),
             "PIL.Image": lambda module: part("show")["on_pil"](module),
             "IPython.core.display_functions": lambda module: part("show")["on_ipython"](module),
             "IPython.core.display": lambda module: part("show")["on_ipython"](module)}
    supplied = {"IPython": "show", "IPython.display": "show", "IPython.core": "show",
                "IPython.core.display": "show", "cay_inline": "charts"}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.hooks and name not in cls.supplied:
            return None
        for finder in sys.meta_path:
            if finder is not cls:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return cls.watch(name, spec)
        if name in cls.supplied:
            return part(cls.supplied[name])["supply"](name)
        return None

    @classmethod
    def watch(cls, name, spec):
        hook = cls.hooks.pop(name, None)
        execute = getattr(spec.loader, "exec_module", None)
        if hook and execute:
            def exec_module(module):
                del spec.loader.exec_module
                execute(module)
                hook(module)
            spec.loader.exec_module = exec_module
        return spec


# --- Builtins --------------------------------------------------------------------------------


def display(*objects, **options):
    """Shows objects: their picture, HTML, ... and text."""
    return part("show")["display"](*objects, **options)


def no_input(prompt="", /):
    raise EOFError("input() is not available: code in a context has no standard input; "
                   "put the data into the code or into a file")


def leave(code=None, /):
    """exit() and quit(): those of the module site close descriptor 0, which a file then gets."""
    raise SystemExit(code)


def magic(name, line, cell=None):
    return part("magic")["run"](name, line, cell)


# --- Executions ------------------------------------------------------------------------------


def dedent(code):
    """Removes the indentation of the first line from all lines."""
    for line in code.splitlines():
        text = line.lstrip()
        if text and text[0] != "#":
            indent = line[:len(line) - len(text)]
            break
    else:
        return code
    if not indent:
        return code
    return "".join(line[len(indent):] if line.startswith(indent) else line
                   for line in code.splitlines(True))


def remember(name, code):
    """Lets tracebacks show lines of the code."""
    cells[name] = code
    linecache = sys.modules.get("linecache")
    if linecache:
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)


def forget(name):
    cells.pop(name, None)
    linecache = sys.modules.get("linecache")
    if linecache:
        linecache.cache.pop(name, None)


def parse(code, name):
    """The tree of the code, and the code with magics replaced."""
    if code.lstrip().startswith("%%"):
        code = part("magic")["translate_cell"](code)
    while True:
        try:
            return compile(code, name, "exec", ONLY_AST | TOP_LEVEL_AWAIT, True), code
        except SyntaxError as error:
            lines = code.splitlines()
            number = error.lineno or 0
            if error.filename != name or not 0 < number <= len(lines):
                raise
            if not any(mark in lines[number - 1] for mark in "!%"):
                raise
            changed = part("magic")["translate"](lines, number - 1)
            if changed is None:
                raise
            code = changed


def wait_for(coroutine):
    """Runs the coroutine of top-level await in the context's event loop."""
    import asyncio
    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(State.loop)
    task = State.loop.create_task(coroutine)
    try:
        return State.loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        try:
            State.loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        raise


def evaluate(tree, name, mode):
    code = compile(tree, name, mode, TOP_LEVEL_AWAIT, True)
    value = eval(code, main)
    if code.co_flags & COROUTINE:
        value = wait_for(value)
    return value


def is_quiet(code, last):
    """Whether a semicolon follows the last expression."""
    lines = code.encode("utf-8", "surrogatepass").splitlines()
    return lines[last.end_lineno - 1][last.end_col_offset:].lstrip().startswith(b";")


def run(code, name, silent):
    code = dedent(code)
    remember(name, code)
    tree, code = parse(code, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, _ast.Expr):
        last = None
    if last:
        tree.body.pop()
    if tree.body:
        evaluate(tree, name, "exec")
    if last:
        value = evaluate(_ast.Expression(last.value), name, "eval")
        if value is not None and not silent:
            builtins._ = value
            if not is_quiet(code, last):
                report(value)


def report(value):
    """The main result."""
    if type(value) in (int, float, bool, str) and (type(value) is not str or len(value) < 4096):
        flush()
        send(f'{{"type":"result","data":{{"text/plain":{quote(repr(value))}}},"main":true}}')
    else:
        part("show")["show"](value, main=True)


def run_to_end(code, name, silent):
    """Runs code and shows its figures; returns the exception or None."""
    error = None
    try:
        run(code, name, silent)
    except BaseException as raised:
        error = raised
    try:
        if "matplotlib.pyplot" in sys.modules:
            wanted = not silent and not isinstance(error, KeyboardInterrupt)
            part("charts")["show_open_figures"](wanted)
        flush()
    except BaseException as raised:
        error = error or raised
    return error


def report_error(error):
    line = part("trace")["describe"](error)
    flush()
    if not send(line):
        os.write(2, part("trace")["text_of"](error).encode("utf-8", "replace"))


def find_user_site():
    """Adds the user's directory of modules, before those of the system as Python does, if pip
    has created it since this interpreter, or the one that it is a copy of, started."""
    site = sys.modules.get("site")
    if State.has_user_site or not site or not site.ENABLE_USER_SITE:
        return
    place = site.getusersitepackages()
    if place not in sys.path:
        if not os.path.isdir(place):
            return
        end = len(sys.path)
        site.addsitedir(place)
        at = min((sys.path.index(path) for path in site.getsitepackages() if path in sys.path),
                 default=end)
        sys.path[at:] = sys.path[end:] + sys.path[at:end]
    State.has_user_site = True


def begin(message):
    """Returns the name of the code and the variables to restore."""
    find_user_site()
    silent = bool(message.get("silent"))
    if not silent:
        State.count += 1
        send(f'{{"type":"count","count":{State.count}}}')
        forget(f"<cell {State.count - CELLS_MAX}>")
    env = message.get("env") or {}
    before = {key: os.environ.get(key) for key in env}
    os.environ.update(env)
    return "<setup>" if silent else f"<cell {State.count}>", before


def end(message, before, failed):
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    if State.channel is None:
        os._exit(1 if failed else 0)  # a forked child that has reached the end of the code
    State.running = False
    for stream in streams:
        stream.pending = []
    send(f'{{"type":"done","id":{message["id"]}}}')


def execute(message):
    name, before = begin(message)
    State.running = True
    try:
        State.interruptible = True
        error = run_to_end(message["code"], name, bool(message.get("silent")))
        State.interruptible = False
    except KeyboardInterrupt as raised:
        State.interruptible = False
        error = raised
    if error is None and "save" in message:
        try:
            if part("warm")["save"](message["save"]):
                return  # a copy, which has its own executions
        except Exception as raised:
            error = raised
    if error is not None:
        report_error(error)
    end(message, before, error is not None)


def take_channel():
    """Moves descriptor 3 up, where code that closes low numbers does not hit it."""
    try:
        State.channel = os.dup2(3, 250, False)
    except OSError:
        State.channel = os.dup(3)
    os.close(3)


def start():
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main["__annotations__"] = {}
    take_channel()
    os.register_at_fork(after_in_child=forked)
    _signal.signal(_signal.SIGINT, interrupt)
    faulthandler.enable(2)  # a crash prints where it was
    sys.stdout, sys.stderr = streams
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    sys.meta_path.insert(0, Finder)
    builtins.display = display
    builtins.input = no_input
    builtins.exit = builtins.quit = leave
    builtins.__cay_magic__ = magic
    version = sys.version.partition(" ")[0]
    send(f'{{"type":"ready","version":"{version}"}}')


parts = decode(START).get("parts", {})
del START
loaded = {}
streams = (Stream("stdout", 1), Stream("stderr", 2))
start()
while True:
    message = receive()
    if message is None:
        break
    if "image" in message:
        part("warm")["fork"](message)
    elif message.get("type") == "execute":
        execute(message)
flush()
try:
    import atexit
    atexit._run_exitfuncs()
finally:
    os._exit(0)
