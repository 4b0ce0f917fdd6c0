"""picoquic as an endpoint of the public QUIC interop runner, over HTTP/0.9.

Reads the environment variables of the runner's contract, as endpoint/ does for Clearway, and exits
with 127 for a test case that aiopquic, picoquic's Python package, does not support.
"""

import asyncio
import os
import ssl
import sys
from urllib.parse import urlparse

from aiopquic.asyncio.client import connect
from aiopquic.asyncio.protocol import QuicConnectionProtocol
from aiopquic.asyncio.server import serve
from aiopquic.quic.configuration import QUIC_V1, QUIC_V2, QuicConfiguration
from aiopquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset

UNSUPPORTED = 127
ALPN = "hq-interop"
CHACHA20 = 0x1303
# How long picoquic may take to receive a session ticket, which it does not announce.
TICKET_PAUSE = 0.3
# How long a connection may be silent: with 30 % loss, some handshakes take long.
IDLE = 120.0
# Packets of a key phase in `keyupdate`.
KEY_PHASE = 100
# More than the largest file.
BUFFER = 32 << 20

CASES = {
    "handshake",
    "transfer",
    "longrtt",
    "chacha20",
    "multiplexing",
    "retry",
    "resumption",
    "zerortt",
    "blackhole",
    "keyupdate",
    "ecn",
    "amplificationlimit",
    "multiconnect",
    "handshakeloss",
    "transferloss",
    "handshakecorruption",
    "transfercorruption",
    "ipv6",
    "v2",
    "goodput",
    "crosstraffic",
    "rebind-port",
    "rebind-addr",
}


def variable(name, default=None):
    return os.environ.get(name) or default


def configure(is_client, case):
    configuration = QuicConfiguration(
        is_client=is_client,
        alpn_protocols=[ALPN],
        idle_timeout=IDLE,
        stream_ring_cap=BUFFER,
        tx_max_queued_bytes=None,
        congestion_control_algorithm=variable("CONGESTION", "cubic"),
        secrets_log_file=variable("SSLKEYLOGFILE"),
        qlog_dir=variable("QLOGDIR"),
    )
    if is_client:
        configuration.verify_mode = ssl.CERT_NONE
    if case == "v2":
        configuration.supported_versions = [QUIC_V2, QUIC_V1]
    if case == "chacha20":
        configuration.cipher_suite = CHACHA20
    if case == "keyupdate":
        configuration.key_update_interval = KEY_PHASE
    return configuration


class Server(QuicConnectionProtocol):
    """Answers `GET /path` with the file."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = {}

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            return
        request = self.requests.get(event.stream_id, b"") + bytes(event.data)
        self.requests[event.stream_id] = request
        if not event.end_stream:
            return
        name = os.path.basename(request.decode("ascii", "replace").strip())
        try:
            with open(os.path.join(variable("WWW", "/www"), name), "rb") as file:
                self._quic.send_stream_data(event.stream_id, file.read(), end_stream=True)
        except OSError:
            self._quic.reset_stream(event.stream_id, 1)


class Client(QuicConnectionProtocol):
    """Downloads files, each on a stream."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.downloads = {}

    async def get(self, url):
        parsed = urlparse(url)
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.downloads[stream] = [bytearray(), done]
        self._quic.send_stream_data(
            stream, f"GET {parsed.path}\r\n".encode("ascii"), end_stream=True
        )
        content = await done
        name = os.path.basename(parsed.path)
        with open(os.path.join(variable("DOWNLOADS", "/downloads"), name), "wb") as file:
            file.write(content)

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            for _, done in self.downloads.values():
                if not done.done():
                    done.set_exception(RuntimeError("the connection ended"))
        if isinstance(event, (StreamDataReceived, StreamReset)):
            content, done = self.downloads[event.stream_id]
            if isinstance(event, StreamReset):
                done.set_exception(RuntimeError("the server reset the stream"))
            else:
                content += bytes(event.data)
                if event.end_stream and not done.done():
                    done.set_result(bytes(content))


async def download(urls, configuration, pause=0.0, early=False):
    """Downloads `urls` on one connection, which stays open for `pause` seconds more."""
    server = urlparse(urls[0])
    async with connect(
        server.hostname,
        server.port or 443,
        configuration=configuration,
        create_protocol=Client,
        wait_connected=not early,
    ) as client:
        await asyncio.gather(*[client.get(url) for url in urls])
        await asyncio.sleep(pause)


async def run_client(case):
    urls = (variable("REQUESTS") or "").split()
    if not urls:
        raise SystemExit("REQUESTS is empty")
    if case in ("multiconnect", "handshakeloss", "handshakecorruption"):
        for url in urls:
            await download([url], configure(True, case))
    elif case in ("resumption", "zerortt"):
        tickets = os.path.join(variable("DOWNLOADS", "/downloads"), os.pardir, "tickets")
        for part, early in ((urls[:1], False), (urls[1:], case == "zerortt")):
            configuration = configure(True, case)
            configuration.session_ticket_file = tickets
            await download(part, configuration, pause=TICKET_PAUSE, early=early)
    else:
        await download(urls, configure(True, case))


async def run_server(case):
    configuration = configure(False, case)
    certs = variable("CERTS", "/certs")
    configuration.load_cert_chain(
        os.path.join(certs, "cert.pem"), os.path.join(certs, "priv.key")
    )
    server = await serve(
        "::",
        int(variable("PORT", "443")),
        configuration=configuration,
        create_protocol=Server,
        retry=case == "retry",
    )
    await asyncio.Future()
    server.close()


def main():
    case, role = variable("TESTCASE"), variable("ROLE")
    if case not in CASES:
        return UNSUPPORTED
    if role not in ("client", "server"):
        raise SystemExit(f"ROLE is {role!r}: expected client or server")
    asyncio.run(run_client(case) if role == "client" else run_server(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
