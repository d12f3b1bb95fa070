"""A whole session with the Python client of the Model Context Protocol (PyPI: mcp), over standard input and output.

Usage: python3 session.py legacy|auto SECRET PROGRAM ARGUMENT…

PROGRAM is the server, started in this directory, which is its workspace. SECRET is a file that it may not read. What the person
answers: "no" to whatever has `never` in it, otherwise "once".
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
LOOKS = 60 / 0.02


def text(result):
    return result.content[0].text


async def eventually(what, holds):
    for _ in range(int(LOOKS)):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within a minute: {what}")


def runs(marker):
    """How many programs were started with this word."""
    found = 0
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else []
        except OSError:
            continue
        found += words[:1] == [b"tail"] and marker.encode() in words
    return found


class Person:
    def __init__(self):
        self.asked = []

    async def answer(self, _context, params):
        self.asked.append(params.message)
        fields = params.requested_schema["properties"]
        if "answer_1" in fields:
            return ElicitResult(action="accept", content={"answer_1": fields["answer_1"]["enum"][1]})
        return ElicitResult(action="accept", content={"answer": "no" if "never" in params.message else "once"})


async def session(client, person, secret):
    async def bash(command, **more):
        return await client.call_tool("bash", {"command": command}, **more)

    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"read", "edit", "bash", "question"} <= set(tools), tools
    assert tools["read"].annotations.read_only_hint and not tools["bash"].annotations.read_only_hint
    assert all(tool.input_schema["type"] == "object" for tool in tools.values())

    result = await client.call_tool("read", {"path": "a"})
    assert not result.is_error and result.structured_content["content"] == "hello\n", result
    assert not person.asked, "reading needs no approval"
    result = await client.call_tool("edit", {"path": "a", "old_string": "hello", "new_string": "changed"})
    assert not result.is_error, result
    assert Path("a").read_text() == "changed\n"

    # What is outside: neither a tool nor a program reads it, whatever the person says.
    result = await client.call_tool("read", {"path": secret})
    assert result.is_error and "is denied" in text(result), result
    assert "a secret" not in str(result)
    result = await bash(f"cat {secret}")
    assert result.structured_content["exit_code"] != 0 and "a secret" not in str(result), result

    # Output comes while the program runs: it waits for what is done here when its first line has come.
    pieces = []

    async def progress(_progress, _total, message):
        pieces.append(message)
        if "one\n" in "".join(pieces):
            Path("seen").touch()

    result = await bash("echo one; until [ -e seen ]; do sleep 0.02; done; cat a", progress_callback=progress)
    assert text(result).startswith("one\nchanged\n"), result

    before = len(person.asked)
    result = await bash("echo x > never")
    assert result.is_error and text(result) == "bash is denied: a person said no", result
    result = await bash("echo x > once")
    assert result.structured_content["exit_code"] == 0, result
    assert len(person.asked) == before + 2 and "echo x > once" in person.asked[-1], person.asked
    assert not Path("never").exists() and Path("once").read_text() == "x\n"

    question = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}
    result = await client.call_tool("question", {"questions": [question]})
    assert result.structured_content == {"answers": [["B"]]}, result

    # What is cancelled ends.
    marker = str(Path("marker").absolute())
    call = asyncio.create_task(bash(f"touch {marker}; exec tail -f {marker}"))
    await eventually("the call runs", lambda: runs(marker) == 1)
    call.cancel()
    await eventually("the call has ended", lambda: runs(marker) == 0)
    result = await client.call_tool("read", {"path": "once"})
    assert result.structured_content["content"] == "x\n", result


async def main(mode, secret, program, *arguments):
    server = StdioServerParameters(command=program, args=list(arguments), env=dict(os.environ), cwd=os.getcwd())
    person = Person()
    async with Client(server, mode=mode, elicitation_callback=person.answer, read_timeout_seconds=60) as client:
        assert client.protocol_version == VERSIONS[mode], client.protocol_version
        assert client.server_info.name == "callgate", client.server_info
        await session(client, person, secret)
    print("the whole session")


asyncio.run(main(*sys.argv[1:]))
