"""HTTP/3 by aioquic, behind the command line that every peer shares (see peers/README.md)."""

import argparse
import asyncio
import json
import os
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    StreamReset,
)
from aioquic.tls import Epoch

PEER = "aioquic"
UNSUPPORTED = 127
PERIOD = 1 << 24
PIECE = 1 << 16
# Unsent bytes of a connection at which a sender waits.
HIGH_WATER = 1 << 20
NO_ERROR = 0x100
# How long to wait for a session ticket.
TICKET_PATIENCE = 5.0


class Unsupported(Exception):
    """What this program cannot do, whoever its peer is."""


class Wrong(Exception):
    """What is wrong with an answer."""


def make_table(length):
    block = bytes(range(256))
    pages = []
    for page in range(0, length, 256):
        mask = ((page >> 8) ^ (page >> 16)) & 0xFF
        pages.append(bytes(b ^ mask for b in block))
    return b"".join(pages)[:length]


class Pattern:
    """The bytes of every answer, made as far as they are needed."""

    def __init__(self):
        self.table = b""

    def get(self, offset, length):
        start = offset % PERIOD
        end = min(start + length, PERIOD)
        if end > len(self.table):
            self.table = make_table(min(PERIOD, max(end, 2 * len(self.table), 1 << 16)))
        return self.table[start:end]

    def verify(self, offset, data):
        while data:
            expected = self.get(offset, len(data))
            if data[: len(expected)] != expected:
                raise Wrong(f"wrong byte at offset {offset} or soon after")
            offset += len(expected)
            data = data[len(expected) :]

    def sum(self, length):
        offset, total = 0, 0
        while offset < length:
            part = self.get(offset, length - offset)
            total += sum(part)
            offset += len(part)
        return total


PATTERN = Pattern()


def say(text):
    print(text, flush=True)


class Protocol(QuicConnectionProtocol):
    """What client and server share: HTTP/3 events, and senders that wait for room."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.handshake = None
        self.cause = None
        self.phases = 0
        self.phase = 0

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, ConnectionTerminated):
            self.cause = event
            self.ended(event)
        elif isinstance(event, StreamReset):
            self.reset(event.stream_id, event.error_code)
        if self.http is None and not isinstance(event, ConnectionTerminated):
            self.http = H3Connection(self._quic)
        if self.http is not None:
            for told in self.http.handle_event(event):
                self.http_event(told)

    def datagram_received(self, data, addr):
        super().datagram_received(data, addr)
        # aioquic tells of no key update; its key phase does.
        phase = self._quic._cryptos[Epoch.ONE_RTT].key_phase
        if phase != self.phase:
            self.phase = phase
            self.phases += 1

    @property
    def key_updates(self):
        return self.phases

    async def room(self, stream_id):
        """Waits until little of what is written to a stream is unsent."""
        while self.cause is None:
            stream = self._quic._streams.get(stream_id)
            if stream is None:
                return
            sender = stream.sender
            if sender._buffer_stop - sender._buffer_start < HIGH_WATER:
                return
            await asyncio.sleep(0.001)

    async def send_pattern(self, stream_id, length, end):
        offset = 0
        while offset < length:
            await self.room(stream_id)
            part = PATTERN.get(offset, min(PIECE, length - offset))
            offset += len(part)
            self.http.send_data(stream_id, part, end_stream=end and offset == length)
            self.transmit()

    def ended(self, event):
        pass

    def reset(self, stream_id, code):
        pass


class Server(Protocol):
    options = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.echoes = {}

    def http_event(self, event):
        if isinstance(event, HeadersReceived):
            if event.stream_id in self.echoes:
                self.trailers(event)
            else:
                self.request(event)
        elif isinstance(event, DataReceived) and event.stream_id in self.echoes:
            if event.data:
                self.echoes[event.stream_id] += sum(event.data)
                self.http.send_data(event.stream_id, event.data, end_stream=False)
            if event.stream_ended:
                self.finish(event.stream_id, None)
        self.transmit()

    def request(self, event):
        fields = dict(event.headers)
        stream_id = event.stream_id
        if fields[b":method"] == b"POST":
            self.http.send_headers(stream_id, [(b":status", b"200")])
            self.echoes[stream_id] = 0
            if event.stream_ended:
                self.finish(stream_id, None)
            return
        path = fields[b":path"].lstrip(b"/")
        if not path.isdigit():
            self.http.send_headers(stream_id, [(b":status", b"404")], end_stream=True)
            return
        length = int(path)
        head = [(b":status", b"200"), (b"content-length", path)]
        self.http.send_headers(stream_id, head, end_stream=length == 0)
        asyncio.ensure_future(self.send_pattern(stream_id, length, end=True))

    def trailers(self, event):
        self.finish(event.stream_id, dict(event.headers).get(b"x-sum"))

    def finish(self, stream_id, told):
        total = str(self.echoes.pop(stream_id)).encode()
        if told is not None and told != total:
            self._quic.reset_stream(stream_id, 0x10E)
            return
        self.http.send_headers(stream_id, [(b"x-sum", total)], end_stream=True)

    def ended(self, event):
        if not self.options.json:
            return
        handshake = self.handshake
        say(
            json.dumps(
                {
                    "peer": PEER,
                    "event": "closed",
                    "retried": self._quic._retry_source_connection_id is not None,
                    "resumed": bool(handshake and handshake.session_resumed),
                    "zero_rtt_accepted": bool(handshake and handshake.early_data_accepted),
                    "key_updates": self.key_updates,
                    "peer_key_updates": None,
                    "cause": event.reason_phrase or hex(event.error_code),
                }
            )
        )


class Answer:
    """One answer, verified while it arrives."""

    def __init__(self, wanted, expected_sum):
        self.wanted = wanted
        self.sum = expected_sum
        self.offset = 0
        self.status = None
        self.trailer = False
        self.done = asyncio.get_running_loop().create_future()

    def fail(self, why):
        if not self.done.done():
            self.done.set_exception(Wrong(why))

    def headers(self, fields):
        fields = dict(fields)
        if self.status is None:
            self.status = fields.get(b":status")
            if self.status != b"200":
                self.fail(f"status {self.status}")
        elif b"x-sum" in fields:
            if fields[b"x-sum"] != str(self.sum).encode():
                self.fail(f"x-sum is {fields[b'x-sum']}, expected {self.sum}")
            self.trailer = True

    def data(self, data):
        if len(data) > self.wanted - self.offset:
            self.fail(f"received more than the expected {self.wanted} bytes")
            return
        try:
            PATTERN.verify(self.offset, data)
        except Wrong as wrong:
            self.fail(str(wrong))
        self.offset += len(data)

    def end(self):
        if self.offset != self.wanted:
            self.fail(f"received {self.offset} bytes, expected {self.wanted}")
        if not self.done.done():
            self.done.set_result(None)


class Client(Protocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.answers = {}
        self.received = 0
        self.halfway = None

    def http_event(self, event):
        answer = self.answers.get(getattr(event, "stream_id", None))
        if answer is None:
            return
        if isinstance(event, HeadersReceived):
            answer.headers(event.headers)
        elif isinstance(event, DataReceived):
            answer.data(event.data)
            self.received += len(event.data)
            if self.halfway is not None and self.received >= self.halfway:
                self.halfway = None
                self._quic.request_key_update()
                self.transmit()
        if event.stream_ended:
            answer.end()

    def ended(self, event):
        for answer in self.answers.values():
            answer.fail(f"closed: {event.error_code:#x} {event.reason_phrase}")

    def reset(self, stream_id, code):
        if stream_id in self.answers:
            self.answers[stream_id].fail(f"reset: {code:#x}")

    async def exchange(self, options, wanted, upload):
        if self.http is None:
            self.http = H3Connection(self._quic)
        stream_id = self._quic.get_next_available_stream_id()
        answer = Answer(wanted, options.sum)
        self.answers[stream_id] = answer
        if self.cause is not None:
            self.ended(self.cause)
        port = options.server.rsplit(":", 1)[1]
        head = [
            (b":method", b"POST" if upload else b"GET"),
            (b":scheme", b"https"),
            (b":authority", f"{options.server_name}:{port}".encode()),
            (b":path", b"/echo" if upload else f"/{wanted}".encode()),
        ]
        self.http.send_headers(stream_id, head, end_stream=not upload)
        if upload:
            await self.send_pattern(stream_id, upload, end=False)
            trailer = [(b"x-sum", str(options.sum).encode())]
            self.http.send_headers(stream_id, trailer, end_stream=True)
        self.transmit()
        await answer.done
        del self.answers[stream_id]
        return answer.trailer


async def visit(options, configuration, tickets, early, report):
    async with connect(
        options.server.rsplit(":", 1)[0].strip("[]"),
        int(options.server.rsplit(":", 1)[1]),
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=tickets.put_nowait,
        wait_connected=not early,
    ) as client:
        wanted = options.post or options.bytes
        if options.key_update:
            client.halfway = wanted * options.requests // 2
        lanes = asyncio.Semaphore(options.parallel or options.requests)

        async def request():
            async with lanes:
                return await client.exchange(options, wanted, options.post)

        begun = time.monotonic()
        trailers = await asyncio.gather(*(request() for _ in range(options.requests)))
        report["seconds"] += time.monotonic() - begun
        if options.key_update:
            await client.exchange(options, 1000, 0)
            report["key_updates"] = client.key_updates
        report["bytes"] += wanted * options.requests
        report["requests"] += options.requests
        report["trailers_seen"] += sum(trailers)
        # wait_connected() knows nothing of a handshake that is over when it is called.
        while client.handshake is None and client.cause is None:
            await asyncio.sleep(0.001)
        report["retried"] = client._quic._retry_count > 0
        if options.resume or options.zero_rtt:
            report["resumed"] = client.handshake.session_resumed
            if options.zero_rtt:
                report["zero_rtt_accepted"] = client.handshake.early_data_accepted
            if configuration.session_ticket is None:
                configuration.session_ticket = await asyncio.wait_for(
                    tickets.get(), TICKET_PATIENCE
                )
        client._quic.close(error_code=NO_ERROR)
        client.transmit()


async def get(options):
    if options.raw or options.seconds or options.handshakes or options.idle:
        raise Unsupported("clearway-raw and loads")
    options.sum = PATTERN.sum(options.post)
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name=options.server_name
    )
    configuration.load_verify_locations(options.ca)
    configuration.max_data = configuration.max_stream_data = 1 << 24
    report = {
        "peer": PEER,
        "bytes": 0,
        "requests": 0,
        "seconds": 0.0,
        "resumed": None,
        "zero_rtt_accepted": None,
        "retried": None,
        "key_updates": None,
        "trailers_seen": 0,
    }
    tickets = asyncio.Queue()
    await visit(options, configuration, tickets, False, report)
    if options.resume or options.zero_rtt:
        await visit(options, configuration, tickets, options.zero_rtt, report)
    say(json.dumps(report))


async def run_server(options):
    if options.raw:
        raise Unsupported("clearway-raw")
    Server.options = options
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(options.cert, options.key)
    tickets = {}
    # Tickets of aioquic always allow early data: without --zero-rtt, too.
    fetch, keep = tickets.get, lambda ticket: tickets.update({ticket.ticket: ticket})
    host, port = options.listen.rsplit(":", 1)
    server = await serve(
        host.strip("[]"),
        int(port),
        configuration=configuration,
        create_protocol=Server,
        session_ticket_fetcher=fetch,
        session_ticket_handler=keep,
        retry=options.retry,
    )
    local = server._transport.get_extra_info("sockname")
    host = f"[{local[0]}]" if ":" in local[0] else local[0]
    say(f"listening on {host}:{local[1]}")
    await asyncio.Event().wait()


def parse():
    parser = argparse.ArgumentParser(prog="peer-aioquic", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("serve")
    for option in ["--listen", "--cert", "--key"]:
        server.add_argument(option, required=True)
    for option in ["--retry", "--zero-rtt", "--raw", "--json"]:
        server.add_argument(option, action="store_true")
    client = roles.add_parser("get")
    client.add_argument("server")
    for option in ["--server-name", "--ca"]:
        client.add_argument(option, required=True)
    client.add_argument("--bytes", type=int, default=1 << 20)
    client.add_argument("--requests", type=int, default=1)
    for option in ["--parallel", "--post", "--idle"]:
        client.add_argument(option, type=int, default=0)
    client.add_argument("--seconds", type=float, default=0)
    for option in ["--resume", "--zero-rtt", "--key-update", "--raw", "--handshakes", "--json"]:
        client.add_argument(option, action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    try:
        asyncio.run((run_server if options.role == "serve" else get)(options))
    except Unsupported as why:
        print(f"peer-aioquic: unsupported: {why}", file=sys.stderr)
        sys.exit(UNSUPPORTED)
    except Exception as error:
        print(f"peer-aioquic: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
