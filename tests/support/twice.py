"""Run one command of a Java tool twice, directly at the brokers and through a proxy, and require the same output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools, Printed

ADDRESS = re.compile(r"127\.0\.0\.1(?::|\s+)(\d+)")
"""Addresses as tools print them: in one word, or in two columns."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Runs commands directly and through the proxy of one rack."""

    stack: Stack
    tools: JavaTools
    rack: str = "rack-b"

    def run(
        self,
        main_class: str,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        until: str = "",
        names: tuple[str, str] = ("", ""),
        clean: Callable[[str], str] = str,
        exit_code: int = 0,
        endpoints_only: bool = True,
    ) -> Printed:
        """Return the output of both, with `broker N` in place of addresses, without stack traces, and with sorted
        lines.

        In an argument, `{name}` stands for the first of `names` directly and for the second through the proxy; in the
        output, both become `<name>`. `{bootstrap}` stands for the bootstrap address, which comes first if no argument
        has it. `clean` is applied to the output and removes what changes from run to run. Both runs must end with
        `exit_code`. A tool that does not end by itself is stopped once it has printed `until`. Without
        `endpoints_only`, the tool may print the brokers' own addresses, because no client connects to them.
        """
        sides = zip((self.stack.direct_bootstrap, self.stack.bootstrap(self.rack)), names, strict=True)
        if not any("{bootstrap}" in argument for argument in arguments):
            arguments = ("--bootstrap-server", "{bootstrap}", *arguments)
        printed = []
        for bootstrap, name in sides:
            filled = [word.replace("{bootstrap}", bootstrap).replace("{name}", name) for word in arguments]
            printed.append(self.tools.run(main_class, *filled, stdin=stdin.replace("{name}", name), until=until))
        codes = [one.exit_code for one in printed]
        assert codes == [exit_code] * 2, f"directly: {printed[0]}\nthrough the proxy: {printed[1]}"
        if endpoints_only:
            self.assert_no_broker_address(printed[1])
        direct, proxied = (
            Printed(one.exit_code, *(self._comparable(text, name, clean) for text in (one.out, one.err)))
            for one, name in zip(printed, names, strict=True)
        )
        assert proxied == direct, f"directly: {direct}\nthrough the proxy: {proxied}"
        return direct

    def assert_no_broker_address(self, printed: Printed) -> None:
        """Require that a tool printed no address of a broker itself."""
        brokers = {self.stack.ports.broker(node) for node in self.stack.kafka.racks}
        shown = {int(found[1]) for found in ADDRESS.finditer(printed.out + printed.err)}
        assert not shown & brokers, printed

    def _comparable(self, text: str, name: str, clean: Callable[[str], str]) -> str:
        for bootstrap in (self.stack.direct_bootstrap, self.stack.bootstrap(self.rack)):
            text = text.replace(bootstrap, "<bootstrap>")
        rack = list(self.stack.proxies).index(self.rack)
        brokers = {}
        for node in self.stack.kafka.racks:
            for port in (self.stack.ports.broker(node), self.stack.ports.broker_port_start(rack) + node):
                brokers[port] = f"broker {node}"
        text = ADDRESS.sub(lambda found: brokers.get(int(found[1]), found[0]), text)
        text = text.replace(name, "<name>") if name else text
        # The width of columns depends on the names in them, and the order of lines on hash tables.
        lines = (re.sub(r"[ \t]+", " ", line) for line in text.splitlines() if not line.startswith("\tat "))
        return "\n".join(sorted(clean("\n".join(lines)).splitlines()))


def api_versions(printed: str) -> dict[int, dict[str, str]]:
    """Map node ID to API to range of versions, as `kafka-broker-api-versions` prints them."""
    found: dict[int, dict[str, str]] = {}
    for line in printed.splitlines():
        if match := re.search(r"\(id: (\d+) rack: ", line):
            found[node := int(match[1])] = {}
        elif match := re.match(r"\s(\w+\(\d+\)): (\d+(?: to \d+)?) ", line):
            found[node][match[1]] = match[2]
    return found
