# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a browser: every page, by keyboard and mouse, wide and narrow, light and
dark, with axe-core, and with hostile texts where sandboxes can place some."""

import json
import re
import shutil

import javascript
import pytest
from serving import PATIENCE, unavailable, wait_until

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1<\x2fscript>'
HOSTILE_NAME = '<img src=x onerror=window.pwned=1>'
TABS = ("overview", "terminal", "files", "processes", "metrics", "events", "network", "checkpoints")


# --- The browser ----------------------------------------------------------------------


@pytest.fixture(scope="module", name="browser")
def fixture_browser():
    program = shutil.which("chromium")
    if not program:
        unavailable("Chromium is not installed (Debian: chromium)")
    try:
        from playwright import sync_api
    except ImportError:
        unavailable("Playwright is not installed (tools/make-venv)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        started.new_context = with_patience(started.new_context)
        yield started
        started.close()


def with_patience(new_context):
    def create(**options):
        context = new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        return context
    return create


@pytest.fixture(scope="module", name="axe")
def fixture_axe():
    javascript.install()
    return (javascript.INSTALLED / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module", name="origin")
def fixture_origin(server):
    return server.url


def watch(page):
    """What must not happen in a page is in this list: errors of scripts, and dialogs and
    loads that its policy refused."""
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("dialog", lambda dialog: (page.wrong.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: page.wrong.append(message.text) if message.type == "error"
            and not message.text.startswith("Failed to load resource: the server responded") else None)
    return page


def log_in(page, origin, key):
    page.goto(f"{origin}/ui/")
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Sandboxes", exact=True).wait_for()


@pytest.fixture(scope="module", name="session")
def fixture_session(browser, origin, server):
    """The context of a user who is logged in."""
    context = browser.new_context(viewport=WIDE, accept_downloads=True)
    page = watch(context.new_page())
    log_in(page, origin, server.key)
    page.close()
    yield context
    context.close()


@pytest.fixture(name="page")
def fixture_page(session):
    page = watch(session.new_page())
    yield page
    found = page.wrong, page.evaluate("window.pwned")
    page.close()
    assert found == ([], None)


@pytest.fixture(name="show")
def fixture_show(page, origin):
    """Shows a page of the dashboard by its address."""
    def show(*parts, **query):
        text = "&".join(f"{name}={value}" for name, value in query.items())
        page.goto(f"{origin}/ui/#/{'/'.join(parts)}" + (f"?{text}" if text else ""))
        page.get_by_role("heading", level=1).wait_for()
        return page
    return show


def body(page):
    return page.locator("#content")


def says(page, text):
    page.get_by_text(text).first.wait_for()


def until(page, expression):
    """wait_for_function() of Playwright evaluates text in the page, which its policy refuses."""
    return wait_until(lambda: page.evaluate(expression), expression)


def accept(page, action):
    """The button of the open dialog; waits until the dialog is closed."""
    page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")


# --- Login ----------------------------------------------------------------------------


def test_a_wrong_key_is_refused_and_a_logout_ends_the_session(browser, origin, server):
    context = browser.new_context(viewport=WIDE)
    page = watch(context.new_page())
    page.goto(f"{origin}/ui/")
    page.get_by_label("API key").fill("e2b_" + "0" * 40)
    page.get_by_role("button", name="Log in").click()
    assert "cay key" in page.get_by_role("alert").inner_text()
    log_in(page, origin, server.key)
    assert server.key not in page.content() + json.dumps(page.evaluate("[{...localStorage}, {...sessionStorage}, document.cookie]"))
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("API key").wait_for()
    page.goto(f"{origin}/ui/#/keys")
    page.reload()
    page.get_by_label("API key").wait_for()
    assert page.wrong == []
    context.close()


# --- The list -------------------------------------------------------------------------


def test_the_list_works_with_a_thousand_sandboxes(server, show, shared):
    with server.rows(1000) as ids:
        page = show("sandboxes")
        says(page, re.compile(r"^10\d\d sandboxes"))
        rows = page.locator("tbody tr")
        assert rows.count() == 50
        says(page, re.compile("^Page 1 of 2"))
        page.get_by_role("button", name="Next").click()
        says(page, re.compile("^Page 2 of"))
        assert rows.count() == 50
        page.get_by_label("Text", exact=True).fill(ids[777])
        says(page, "1 sandbox with these filters")
        assert rows.get_by_role("link").inner_text() == ids[777]
        page.get_by_label("Text", exact=True).fill("")
        page.get_by_label("Metadata").fill("key=x")
        says(page, "1000 sandboxes with these filters")
        page.get_by_label("Metadata").fill("key=none")
        says(page, "No sandbox matches these filters.")
        assert "metadata=key%3Dnone" in page.url
        page.get_by_label("Metadata").fill("")
        page.get_by_label("State").select_option("paused")
        until(page, "!/10\\d\\d sandboxes/.test(document.querySelector('.count').textContent)")


def test_the_list_follows_the_state_of_a_sandbox(show, create):
    made = create(metadata={"who": "state"})
    page = show("sandboxes", metadata="who%3Dstate")
    cell = page.get_by_role("row", name=made.sandbox_id)
    cell.get_by_text("running").wait_for()
    made.pause()
    cell.get_by_text("paused").wait_for()
    cell.get_by_role("button").click()
    accept(page, "Kill")
    cell.wait_for(state="detached")
    assert not made.is_running()


# --- A sandbox ------------------------------------------------------------------------


def test_a_sandbox_is_created_paused_resumed_and_killed(server, show, page):
    show("create")
    page.get_by_label("Metadata").fill("purpose=test\nowner=a=b")
    page.get_by_role("button", name="Create").click()
    heading = page.get_by_role("heading", level=1)
    page.get_by_text("a=b").wait_for()
    sandbox_id = heading.inner_text()
    assert server.api("GET", f"/sandboxes/{sandbox_id}")[1]["metadata"] == {"purpose": "test", "owner": "a=b"}
    page.get_by_role("button", name="Set time to live").click()
    page.get_by_label("Seconds from now").fill("7200")
    accept(page, "Set")
    page.get_by_text("in 1 h 59 min").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert server.api("GET", f"/sandboxes/{sandbox_id}")[1]["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert server.api("GET", f"/sandboxes/{sandbox_id}")[0] == 200
    page.get_by_role("button", name="Kill").click()
    accept(page, "Kill")
    page.get_by_role("heading", name="Sandboxes", exact=True).wait_for()
    assert server.api("GET", f"/sandboxes/{sandbox_id}")[0] == 404


def test_an_unknown_sandbox_shows_the_error_and_the_next_step(show):
    page = show("sandboxes", "none1234")
    text = page.get_by_role("alert").inner_text()
    assert "go back to the list" in text and "none1234" in page.get_by_role("heading", level=1).inner_text()


def on_screen(page, pattern):
    """The match in what the terminal shows, as soon as there is one."""
    tree = page.locator(".xterm-accessibility-tree")
    return wait_until(lambda: re.search(pattern, tree.inner_text()), pattern)


def test_a_terminal_runs_a_shell_and_connects_to_it_again(show, create, page):
    made = create()
    show("sandboxes", made.sandbox_id, "terminal")
    says(page, "Connected.")
    page.keyboard.type("echo pid=$((0+$$)) columns=$(tput cols)\n")
    first = on_screen(page, r"pid=(\d+) columns=(\d+)")
    page.set_viewport_size({"width": 700, "height": 800})
    page.keyboard.type("clear; echo now=$(tput cols)\n")
    assert int(on_screen(page, r"now=(\d+)")[1]) < int(first[2])
    page.keyboard.type("clear; yes a-long-line-of-output | head -n 30000; echo flood=$((1+1))\n")
    on_screen(page, "flood=2")
    page.get_by_role("link", name="Overview").click()
    page.get_by_text("envd version").wait_for()
    page.get_by_role("link", name="Terminal", exact=True).click()
    says(page, "Connected.")
    page.keyboard.type("clear; echo again=$((0+$$))\n")
    assert on_screen(page, r"again=(\d+)")[1] == first[1]
    page.keyboard.press("Shift+Escape")
    assert page.evaluate("document.activeElement.textContent") == "Clear"
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("exit 3\n")
    says(page, re.compile("The shell has ended .*3"))
    page.get_by_role("button", name="Start a new shell").click()
    says(page, "Connected.")
    page.keyboard.type("echo new=$((0+$$))\n")
    new = on_screen(page, r"new=(\d+)")[1]
    page.reload()
    says(page, "Connected.")
    page.keyboard.type("echo new=$((0+$$))\n")
    assert on_screen(page, r"new=(\d+)")[1] == new
    other = watch(page.context.new_page())  # a shell of its own
    other.goto(page.url)
    says(other, "Connected.")
    assert len(made.commands.list()) == 2 and other.wrong == []
    other.close()


def test_files_are_created_edited_uploaded_renamed_downloaded_and_removed(show, shared, page):
    show("sandboxes", shared.sandbox_id, "files")
    page.get_by_role("button", name="New folder").click()
    page.get_by_role("textbox", name="Name").fill("a/b")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    assert "not a file name" in page.get_by_role("dialog").get_by_role("alert").inner_text()
    page.get_by_role("textbox", name="Name").fill("work")
    accept(page, "Create")
    page.get_by_role("link", name="work/").click()
    page.get_by_text("The folder is empty.").wait_for()
    page.get_by_role("button", name="New file").click()
    page.get_by_role("textbox", name="Name").fill("note.txt")
    accept(page, "Create")
    area = page.get_by_label("Text of /home/user/work/note.txt")
    area.fill("grüße\nzwei\n")
    page.keyboard.press("Control+s")
    says(page, "Saved.")
    assert shared.files.read("work/note.txt") == "grüße\nzwei\n"
    shared.files.write("work/note.txt", "other\n")
    area.fill("mine\n")
    page.get_by_role("button", name="Save").click()
    accept(page, "Overwrite")
    until(page, "document.querySelector('.bar .main').disabled")
    assert shared.files.read("work/note.txt") == "mine\n"
    page.get_by_role("link", name="Close").click()
    page.set_input_files("input[type=file]", files=[{"name": "data.bin", "mimeType": "x/y", "buffer": bytes(range(256))}])
    page.get_by_role("row", name="data.bin").wait_for()
    assert bytes(shared.files.read("work/data.bin", format="bytes")) == bytes(range(256))
    with page.expect_download() as download:
        page.get_by_role("link", name="Download data.bin").click()
    assert open(download.value.path(), "rb").read() == bytes(range(256))
    assert download.value.suggested_filename == "data.bin"
    page.get_by_role("link", name="data.bin", exact=True).click()
    says(page, re.compile("not text"))
    assert "00000000  00 01 02" in page.locator("pre").inner_text()
    page.get_by_role("link", name="Close").click()
    page.get_by_role("button", name="Rename data.bin").click()
    page.get_by_label("New path").fill("/home/user/work/renamed")
    accept(page, "Rename")
    page.get_by_role("button", name="Remove renamed").click()
    accept(page, "Remove")
    page.get_by_role("row", name="renamed").wait_for(state="detached")
    assert [one.name for one in shared.files.list("work")] == ["note.txt"]


def test_processes_show_their_output_and_take_signals(show, shared, page):
    show("sandboxes", shared.sandbox_id, "processes")
    page.get_by_label("Command", exact=True).fill("echo begin; echo problem >&2; exec sleep 9876")
    page.get_by_role("button", name="Run").click()
    output = page.locator("pre.output")
    output.get_by_text("begin").wait_for()
    output.locator(".stderr").get_by_text("problem").wait_for()
    row = page.get_by_role("row", name="sleep 9876")
    row.get_by_role("button", name="Terminate").click()
    row.wait_for(state="detached")
    says(page, re.compile("signal: terminated"))


def test_metrics_are_charts_and_a_table(show, shared, page):
    show("sandboxes", shared.sandbox_id, "metrics")
    page.locator("svg[aria-label^='Memory. Memory: now']:not([aria-label*='no samples'])").wait_for()
    assert page.locator("svg[role=img]").count() == 4
    page.get_by_text("The numbers as a table").click()
    assert page.get_by_role("region", name="Samples").locator("tbody tr").count() >= 1
    page.get_by_label("Period").select_option("86400")
    page.locator("svg[role=img] path.line").first.wait_for(state="attached")


def test_events_are_listed_filtered_and_have_details(show, shared, page):
    shared.commands.run("true # seek-me")
    show("sandboxes", shared.sandbox_id, "events")
    page.get_by_text("seek-me").first.wait_for()
    page.get_by_label("Text", exact=True).fill("file.nothing")
    says(page, "No events match.")
    page.get_by_label("Text", exact=True).fill("seek-me")
    row = page.get_by_role("row", name="seek-me").first
    row.get_by_text("Details").click()
    row.get_by_text("req_").wait_for()
    show("sandboxes", shared.sandbox_id, "network")
    says(page, "It has not tried to reach anything.")


def test_network_attempts_have_a_verdict(browser, own_server):
    from e2b import Sandbox

    server = own_server("--internet", "pypi")
    context = browser.new_context(viewport=WIDE)
    page = watch(context.new_page())
    with Sandbox.create(timeout=300) as made:
        made.commands.run("""python3 -c "import socket; socket.getaddrinfo('denied.test', 80)" || true""")
        log_in(page, server.url, server.key)
        page.goto(f"{server.url}/ui/#/sandboxes/{made.sandbox_id}/network")
        row = page.get_by_role("row", name="denied.test:53")
        row.get_by_text("denied", exact=True).first.wait_for()
        row.get_by_text("python3").first.wait_for()
        made.kill()
    assert page.wrong == []
    context.close()


def test_checkpoints_are_a_tree_with_differences_and_rollback(server, show, create, page):
    made = create()
    made.files.write("file", "one\n")
    show("sandboxes", made.sandbox_id, "checkpoints")
    for name in ("first", "second"):
        page.get_by_role("button", name="Create a checkpoint").click()
        page.get_by_role("textbox", name="Name").fill(name)
        accept(page, "Create")
        page.get_by_text(f"({name})").first.wait_for()
        made.files.write("file", "two\n")
    page.get_by_role("button", name="Changes of checkpoint 2").click()
    status, reply = server.api("GET", f"/sandboxes/{made.sandbox_id}/diff?from=1&to=2")
    if status == 501:  # a template whose files cannot be compared
        page.locator(".message.error").get_by_text(reply["message"]).wait_for()
    else:
        page.locator(".diff .added").get_by_text("+two").wait_for()
        page.locator(".diff .removed").get_by_text("-one").wait_for()
    page.get_by_role("button", name="Roll back to checkpoint 1").click()
    accept(page, "Roll back")
    page.locator("li.current").get_by_text("(first)").wait_for()
    assert made.files.read("file") == "one\n"
    made.files.write("file", "three\n")
    page.get_by_role("button", name="Create a checkpoint").click()
    accept(page, "Create")
    page.locator("li.branch").nth(1).wait_for()
    branches = page.locator("li.branch > ul > li:first-child strong").all_inner_texts()
    assert branches == ["2 (second)", str(server.api("GET", f"/sandboxes/{made.sandbox_id}/checkpoints")[1][-1]["id"])]


# --- Keys and tenants -----------------------------------------------------------------


@pytest.fixture(name="office")
def fixture_office(browser, origin, server):
    """A page that is logged in with an admin key."""
    key = server.cay("key", "new", "--admin", "office").stdout.strip()
    context = browser.new_context(viewport=WIDE)
    page = watch(context.new_page())
    log_in(page, origin, key)
    yield page
    assert (page.wrong, page.evaluate("window.pwned")) == ([], None)
    context.close()


def create_key(page, name):
    page.get_by_role("button", name="Create a key").click()
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    key = page.get_by_role("textbox", name="The new key").input_value()
    accept(page, "Done")
    return key


def test_an_admin_manages_tenants_and_their_keys(server, office, axe):
    page = office
    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("row", name="office").get_by_role("cell").last.get_by_text("1").wait_for()
    assert findings(page, axe) == []
    page.get_by_role("button", name="Create a tenant").click()
    page.get_by_role("textbox", name="Name").fill("a/b")
    page.get_by_role("dialog").get_by_role("button", name="Continue").click()
    assert "not a name of a tenant" in page.get_by_role("dialog").get_by_role("alert").inner_text()
    page.get_by_role("textbox", name="Name").fill("guests")
    accept(page, "Continue")
    says(page, "There are no keys.")
    key = create_key(page, HOSTILE_NAME)
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=key) == (200, [])
    row = page.get_by_role("row", name=key[:10])
    row.get_by_text(HOSTILE_NAME).wait_for()
    assert markup(page) == 0 and key not in page.content() and findings(page, axe) == []
    page.set_viewport_size(NARROW)
    until(page, "document.documentElement.scrollWidth <= innerWidth")
    row.get_by_role("button", name="Rename").click()
    page.get_by_role("textbox", name="Name").fill("visitors")
    accept(page, "Rename")
    row.get_by_role("rowheader", name="visitors").wait_for()
    row.get_by_role("button", name="Revoke").click()
    accept(page, "Revoke")
    says(page, "There are no keys.")
    assert server.api("GET", "/v2/sandboxes", X_API_KEY=key)[0] == 401


def test_a_key_of_a_tenant_lists_keys_and_changes_none(server, show, page):
    show("keys")
    page.get_by_role("row", name=server.key[:10]).wait_for()
    says(page, "cay key new --admin")
    assert page.get_by_role("button", name=re.compile("Create a key|Revoke|Rename")).count() == 0
    assert page.get_by_role("link", name="Tenants").count() == 0
    show("tenants")
    says(page, "only an admin key may do this")


# --- Approvals ------------------------------------------------------------------------


def test_commands_that_wait_are_answered_and_remembered_answers_removed(server, show, page):
    from e2b import Sandbox
    from test_approvals import Run

    show("create")
    page.get_by_text("Approvals", exact=True).last.click()
    page.get_by_label("Commands that wait").fill("*guarded*")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("envd version").wait_for()
    made = Sandbox.connect(page.get_by_role("heading", level=1).inner_text())
    first = Run(made, "echo guarded one")
    show("approvals")
    page.get_by_label("What waits").get_by_text("guarded one").wait_for()
    page.get_by_role("button", name="Show the content").click()
    content = page.get_by_label("Content", exact=True)
    content.wait_for()
    whole = server.api("GET", f"/approvals/{server.api('GET', '/approvals')[1][0]['approvalID']}")[1]["content"]
    assert content.inner_text().split() == whole.split()
    page.get_by_role("button", name="Always allow").click()
    assert first.wait() == "guarded one\n"
    page.get_by_role("button", name="Remove the rule").click()
    accept(page, "Remove")
    says(page, "There are none.")
    assert server.api("GET", "/approval-rules") == (200, [])
    second = Run(made, "echo guarded two")
    page.get_by_role("button", name="Deny").click()
    page.get_by_label("Reason").fill("not before noon")
    accept(page, "Deny")
    assert "not before noon" in str(second.wait())
    made.kill(request_timeout=PATIENCE)


# --- Hostile texts --------------------------------------------------------------------


@pytest.fixture(scope="module", name="hostile")
def fixture_hostile(server):
    """A sandbox with markup in each text that a client or a program can choose."""
    from e2b import Sandbox

    made = Sandbox.create(timeout=3600, metadata={"note": HOSTILE})
    made.files.write(f"{HOSTILE_NAME}.txt", HOSTILE)
    made.files.make_dir(f"{HOSTILE_NAME}/\u202egnp.exe")
    made.commands.run(f"exec -a '{HOSTILE_NAME}' sleep 3600", background=True)
    made.commands.run(f"echo '{HOSTILE_NAME}'; echo '{HOSTILE_NAME}' >&2")
    yield made
    made.kill(request_timeout=PATIENCE)


def markup(page):
    """The elements that a text would have become."""
    return page.evaluate("document.querySelectorAll('#content :is(img[src=x], script, iframe, [onerror])').length")


def test_hostile_texts_of_a_sandbox_stay_text_on_every_page(show, hostile, page):
    sandbox_id = hostile.sandbox_id
    places = [(("sandboxes",), {}), (("sandboxes", sandbox_id), {}), (("sandboxes", sandbox_id, "files"), {}),
              (("sandboxes", sandbox_id, "files"), {"path": "%2Fhome%2Fuser%2F%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E"}),
              (("sandboxes", sandbox_id, "processes"), {}), (("sandboxes", sandbox_id, "events"), {}),
              (("sandboxes", HOSTILE_NAME.replace(" ", "%20")), {})]
    for parts, query in places:
        show(*parts, **query)
        page.get_by_text(HOSTILE_NAME[:10]).first.wait_for()
        assert markup(page) == 0, parts
    show("sandboxes", sandbox_id, "files", path="%2Fhome%2Fuser%2F%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E")
    page.get_by_text("\\u{202e}gnp.exe").first.wait_for()
    show("sandboxes", sandbox_id, "files", path=f"%2Fhome%2Fuser%2F{HOSTILE_NAME.replace(' ', '%20')}.txt", file=1)
    area = page.locator("textarea")
    area.wait_for()
    assert area.input_value() == HOSTILE and markup(page) == 0


def test_hostile_output_stays_text_in_processes_and_the_terminal(show, hostile, page):
    show("sandboxes", hostile.sandbox_id, "processes")
    page.get_by_label("Command", exact=True).fill(f"echo '{HOSTILE_NAME}'; printf '\\033]0;{HOSTILE_NAME}\\007\\033[31mred'")
    page.get_by_role("button", name="Run").click()
    page.locator("pre.output").get_by_text("red").wait_for()
    assert page.locator("pre.output").inner_text() == f"{HOSTILE_NAME}\nred"
    assert markup(page) == 0
    show("sandboxes", hostile.sandbox_id, "terminal")
    says(page, "Connected.")
    page.keyboard.type(f"clear; printf '\\033]8;;javascript:window.pwned=1\\007link\\033]8;;\\007\\n'; echo '{HOSTILE_NAME}' end\n")
    on_screen(page, "> end")
    page.locator(".xterm-screen").click(position={"x": 12, "y": 8})
    assert markup(page) == 0 and len(page.context.pages) == 1


def test_hostile_replies_of_the_server_stay_text(show, shared, page):
    """Names that the server refuses, in case that it does not some day."""
    def give(value):
        return lambda route: route.fulfill(status=200, content_type="application/json", body=json.dumps(value))

    log = {"timestamp": "2026-01-01T00:00:00Z", "level": HOSTILE, "message": HOSTILE,
           "fields": {"action": "network.connect", "to": HOSTILE, "program": HOSTILE, HOSTILE: HOSTILE}}
    point = {"id": 1, "parent": None, "name": HOSTILE, "cause": HOSTILE, "current": True, "files": 1, "bytes": 1}
    template = {"templateID": HOSTILE, "names": [HOSTILE], "buildStatus": HOSTILE, "builds": [{"buildID": HOSTILE, "status": HOSTILE}]}
    key = {"id": HOSTILE, "name": HOSTILE, "mask": {"prefix": HOSTILE}}
    page.route("**/templates", give([template]))
    page.route("**/templates/*", give(template))
    page.route("**/logs?*", give({"logs": [log]}))
    page.route("**/checkpoints", give([point]))
    page.route("**/diff?*", lambda route: route.fulfill(status=200, content_type="text/plain", body=f"+{HOSTILE}\n"))
    page.route("**/api-keys", give([key]))
    page.route("**/admin/tenants", give([{"name": HOSTILE, "running": 1, "paused": HOSTILE, "keys": 1}]))
    page.route("**/approvals", give([{"approvalID": HOSTILE, "kind": HOSTILE, "scope": HOSTILE, "subject": HOSTILE, "summary": HOSTILE}]))
    page.route("**/approval-rules", give([{"ruleID": HOSTILE, "verdict": HOSTILE, "kind": HOSTILE, "scope": HOSTILE, "subject": HOSTILE}]))
    for parts in (("templates",), ("templates", "x"), ("keys",), ("tenants",), ("approvals",), *(
            ("sandboxes", shared.sandbox_id, tab) for tab in ("events", "network", "checkpoints"))):
        show(*parts)
        body(page).get_by_text("<img src=x").first.wait_for()
        assert markup(page) == 0, parts
        if parts == ("approvals",):
            page.get_by_role("button", name="Remove the rule").wait_for()
            assert markup(page) == 0
    page.get_by_role("button", name="Compare with now").click()
    page.locator(".diff .added").wait_for()
    assert markup(page) == 0
    page.unroute_all(behavior="ignoreErrors")


# --- Accessibility --------------------------------------------------------------------


def settle(page, name):
    """Until the page has what it shows."""
    if name == "terminal":
        says(page, "Connected.")
    elif name == "metrics":
        page.locator("path.line").first.wait_for(state="attached")
    until(page, "!/Loading…/.test(document.querySelector('#content').textContent)")


def findings(page, axe):
    client = page.context.new_cdp_session(page)
    client.send("Runtime.evaluate", {"expression": axe})  # not bound by the page's policy
    script = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(" \
        "found.violations.map((one) => [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 200))])))"
    reply = client.send("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
    client.detach()
    return [one for one in json.loads(reply["result"]["value"]) if one[0] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_serious_accessibility_findings_and_none_is_wider_than_a_phone(scheme, show, page, hostile, axe):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    pages = [("sandboxes",), ("create",), ("templates",), ("keys",), ("approvals",)] + [("sandboxes", hostile.sandbox_id, tab) for tab in TABS]
    found = {}
    for parts in pages:
        page.set_viewport_size(WIDE)
        show(*parts)
        settle(page, parts[-1])
        found["/".join(parts)] = findings(page, axe)
        page.set_viewport_size(NARROW)
        until(page, "document.documentElement.scrollWidth <= innerWidth")
    assert {name: one for name, one in found.items() if one} == {}


def test_the_login_and_a_dialog_have_no_serious_accessibility_findings(browser, origin, show, page, shared, axe):
    context = browser.new_context(viewport=NARROW)
    login = watch(context.new_page())
    login.goto(f"{origin}/ui/")
    login.get_by_label("API key").wait_for()
    assert findings(login, axe) == []
    context.close()
    show("sandboxes", shared.sandbox_id)
    page.get_by_role("button", name="Set time to live").click()
    page.get_by_role("dialog").wait_for()
    assert findings(page, axe) == []


def test_the_dashboard_works_by_keyboard(show, shared, page):
    show("sandboxes")
    page.get_by_role("row", name=shared.sandbox_id).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Create a sandbox"
    page.get_by_role("link", name=shared.sandbox_id).focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Set time to live").wait_for()
    assert page.evaluate("document.activeElement.id") == "content"
    page.get_by_role("button", name="Set time to live").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Seconds from now").wait_for()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    until(page, "document.activeElement.textContent === 'Set time to live'")


# --- Loss of the server ---------------------------------------------------------------


def test_the_list_shows_a_failure_and_recovers(show, page):
    page.route("**/v2/sandboxes?*", lambda route: route.fulfill(
        status=503, content_type="application/json", body='{"code": 503, "message": "the server is full"}'))
    show("sandboxes")
    says(page, "the server is full")
    assert "try again" in page.get_by_role("alert").inner_text()
    page.unroute_all(behavior="ignoreErrors")
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("alert").wait_for(state="detached")


def test_an_error_of_an_action_goes_with_its_page(show, page, shared):
    page.route("**/pause", lambda route: route.fulfill(
        status=409, content_type="application/json", body='{"code": 409, "message": "not now"}'))
    show("sandboxes", shared.sandbox_id)
    page.get_by_role("button", name="Pause").click()
    message = page.locator("#messages .error")
    message.get_by_text("not now").wait_for()
    page.get_by_role("link", name="Events").click()  # another part of the same page
    page.get_by_label("Level").wait_for()
    assert message.count() == 1
    page.get_by_role("link", name="Templates").click()
    message.wait_for(state="detached")
    page.unroute_all(behavior="ignoreErrors")


def refuse(page, path):
    page.route(path, lambda route: route.fulfill(
        status=401, content_type="application/json", body='{"code": 401, "message": "no such user"}'))


def test_a_sandbox_that_refuses_a_user_does_not_end_the_session(show, page, shared):
    refuse(page, "**/process.Process/List")
    show("sandboxes", shared.sandbox_id, "processes")
    says(page, "no such user")
    assert "its template" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("navigation", name="Main").is_visible()
    page.unroute_all(behavior="ignoreErrors")


def test_the_end_of_a_session_shows_the_login(origin, page):
    refuse(page, "**/v2/sandboxes?*")
    page.goto(f"{origin}/ui/#/sandboxes")
    says(page, "no such user")  # the session itself still counts
    refuse(page, "**/ui/session")
    page.get_by_role("button", name="Try again").click()
    page.get_by_label("API key").wait_for()
    assert "The session is over" in body(page).inner_text()
    assert not page.get_by_role("navigation", name="Main").is_visible()
    page.unroute_all(behavior="ignoreErrors")
