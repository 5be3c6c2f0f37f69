# SPDX-License-Identifier: Apache-2.0
"""The JavaScript SDK of E2B, unmodified, new and old."""


def test_sandboxes(node):
    node("sandboxes.mjs")


def test_commands(node):
    node("commands.mjs")


def test_files(node):
    node("files.mjs")
