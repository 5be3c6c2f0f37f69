# SPDX-License-Identifier: Apache-2.0
"""A task for `inspect eval`, with a model that knows what to say.

Each sample calls the four tools that work in a sandbox, looks at what they said, and asks
for the next.  CAY_TEST_IDS names a file that gets the ids of the sandboxes made, and
CAY_TEST_STEP=wait makes the first tool never end.
"""

from __future__ import annotations

import os
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor

import cay.sandbox.sandbox as module

SAMPLES = 20
create = module._create


def recorded(*arguments: Any) -> Any:
    handles = create(*arguments)
    with open(os.environ["CAY_TEST_IDS"], "a", encoding="utf-8") as file:
        file.write(f"{handles.id}\n")
    return handles


if "CAY_TEST_IDS" in os.environ:
    module._create = recorded

STEPS: list[tuple[str, dict[str, Any], str]] = [
    ("bash", {"command": "cat given.txt; id -un; echo $HOME"}, "given\nuser\n/home/user"),
    ("python", {"code": "print(sum(range(10)))"}, "45"),
    (
        "text_editor",
        {"command": "create", "path": "/home/user/made.txt", "file_text": "one\n"},
        "made.txt",
    ),
    (
        "text_editor",
        {
            "command": "str_replace",
            "path": "/home/user/made.txt",
            "old_str": "one",
            "new_str": "two",
        },
        "two",
    ),
    ("bash_session", {"action": "type_submit", "input": "cd /tmp; X=4"}, ""),
    (
        "bash_session",
        {"action": "type_submit", "input": "echo $PWD-$X$(id -un)"},
        "/tmp-4user",
    ),
    ("bash", {"command": "cat made.txt; stat -c %U made.txt"}, "two\nuser"),
]
if os.environ.get("CAY_TEST_STEP") == "wait":
    STEPS[0] = ("bash", {"command": "sleep 1000 & setsid sleep 1000"}, "")


def answer(messages: list[Any], *_: Any) -> ModelOutput:
    """The next step, if what the last one gave is right."""
    said = [message for message in messages if isinstance(message, ChatMessageTool)]
    for (_, _, expected), message in zip(STEPS, said):
        if message.error or expected not in message.text:
            return finished(
                f"wrong: {expected!r} is not in {message.text!r} {message.error}"
            )
    if len(said) == len(STEPS):
        return finished("all is well")
    tool, arguments, _ = STEPS[len(said)]
    return counted(ModelOutput.for_tool_call("mockllm/model", tool, arguments))


def finished(text: str) -> ModelOutput:
    return counted(ModelOutput.from_content("mockllm/model", text))


def counted(output: ModelOutput) -> ModelOutput:
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


@task
def tools() -> Task:
    return Task(
        dataset=[
            Sample(
                id=number,
                input="Use the tools.",
                target="all is well",
                files={"given.txt": "given\n"},
                setup="#!/bin/sh\ntest -f given.txt",
            )
            for number in range(SAMPLES)
        ],
        solver=[
            use_tools(
                bash(timeout=60), python(timeout=60), text_editor(), bash_session()
            ),
            generate(),
        ],
        scorer=includes(),
        model=get_model("mockllm/model", custom_outputs=answer),
        sandbox="cay",
    )
