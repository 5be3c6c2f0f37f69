# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: signals mean what they mean at a terminal, also when whoever
started the tests ignores them, as shells do for jobs in the background."""

import signal

for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes many seconds; make test-long runs it")
